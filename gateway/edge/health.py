"""The probes `/healthz` and `/readyz`, and the mark of requests to the operators' port.

Probes are answered before all other routes, so that they do not build those (`deferred_app.py`).
"""

from collections.abc import Callable
from typing import Final

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.edge.error_response import send_fault
from gateway.errors import Fault, Kind

HEALTH_PATHS: Final = ("/healthz", "/readyz")
OPERATOR_PORT: Final = "gatehouse.ops"
"""Key in the scope of a request to the operators' port."""
_METHODS: Final = ("GET", "HEAD")


class HealthProbes:
    """ASGI app: answers the probes and passes all other requests to `app`.

    `unready_reason` returns None if the gateway is ready. Only the operators' port shows the reason.
    """

    def __init__(self, app: ASGIApp, unready_reason: Callable[[], str | None]) -> None:
        self._app = app
        self._unready_reason = unready_reason

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in HEALTH_PATHS:
            await self._app(scope, receive, send)
        elif scope["method"] not in _METHODS:
            fault = Fault(Kind.INVALID_INPUT, "This method is not allowed here.", code="METHOD_NOT_ALLOWED")
            await send_fault(send, 405, fault, [(b"allow", ", ".join(_METHODS).encode())])
        elif scope["path"] == "/healthz":
            await _send_status(send, 200, "ok", scope["method"])
        elif (reason := self._unready_reason()) is not None:
            await _send_status(send, 503, "unready", scope["method"], reason if scope.get(OPERATOR_PORT) else None)
        else:
            await _send_status(send, 200, "ready", scope["method"])


def for_operators(app: ASGIApp) -> ASGIApp:
    """Wrap the app for the operators' port."""

    async def mark(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, OPERATOR_PORT: True}, receive, send)

    return mark


async def _send_status(send: Send, code: int, status: str, method: str, reason: str | None = None) -> None:
    body = msgspec.json.encode({"status": status} if reason is None else {"status": status, "reason": reason})
    headers = [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"content-length", b"%d" % len(body)),
    ]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
