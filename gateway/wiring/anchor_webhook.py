"""Sends the ends of the audit log's hash chains to `audit.anchor_url`."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx

from gateway.errors import Fault
from gateway.outbound import DIRECT, OutboundRoute, create_client
from gateway.state.audit import AuditLog

log = logging.getLogger("gatehouse.audit")


class AnchorWebhook:
    """POSTs `{"anchor": …}` for each anchor. A failure is logged: the next anchor covers what this one did."""

    def __init__(
        self,
        url: str,
        audit: AuditLog,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        route: OutboundRoute = DIRECT,
    ) -> None:
        self._url = url
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        # The operator chose the address, so it may be private.
        self._http: httpx.AsyncClient = create_client(
            allow_private=frozenset({urlsplit(url).hostname or ""}), route=route
        )
        audit.on_anchor(self._on_anchor)

    async def close(self) -> None:
        await self._http.aclose()

    def _on_anchor(self, token: str) -> None:
        """Runs on the audit log's thread."""
        with suppress(RuntimeError):  # the loop is closed: the gateway is shutting down
            self._loop.call_soon_threadsafe(lambda: self._spawn(self._send(token)))

    async def _send(self, token: str) -> None:
        try:
            response = await self._http.post(self._url, json={"anchor": token})
        except Fault as fault:
            log.warning("audit log: sending an anchor failed: %s", fault.message)
            return
        if response.status_code >= 400:
            log.warning("audit log: audit.anchor_url answered %d to an anchor", response.status_code)
