"""HTTP side of `gatehouse stdio`: one POST per message in either era, and the GET stream of a session."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx

from gateway.cli.mcp_client import header_value
from gateway.cli.signin.credential import AuthChallenge, ClientCredential, CredentialRejected, CredentialStep
from gateway.contract import Json
from gateway.sse import SseParser

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
_MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
_NAME_PARAMETERS: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# Longer than any tool deadline, so that the gateway times out first.
_TIMEOUT: Final = httpx.Timeout(3660, connect=10)
_END_SECONDS: Final = 1.0
_LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "::1")


@dataclass
class StdioSession:
    """Session id and protocol version of the handshake era."""

    id: str = ""
    version: str = ""

    def headers(self) -> dict[str, str]:
        headers = {"Mcp-Session-Id": self.id, "MCP-Protocol-Version": self.version}
        return {name: value for name, value in headers.items() if value}


@dataclass
class GatewayEndpoint:
    url: str
    credential: ClientCredential
    session: StdioSession = field(default_factory=StdioSession)
    header_schemas: dict[str, Json] = field(default_factory=dict[str, Json])
    """Input schemas of listed tools that require some arguments in headers as well (revision 2026-07-28)."""

    def __post_init__(self) -> None:
        # Proxy and CA settings of the environment do not apply to loopback addresses.
        remote = (urlsplit(self.url).hostname or "") not in _LOOPBACK_HOSTS
        self._http = httpx.AsyncClient(timeout=_TIMEOUT, trust_env=remote)

    async def close(self) -> None:
        await self._http.aclose()

    def send(self, message: Json, raw: bytes | None = None) -> AsyncGenerator[bytes, None]:
        """Send a message and yield the messages received, the response last. `raw` is the original line.

        Raises `CredentialRejected`.
        """
        modern = modern_version(message)
        headers = self.session.headers() if modern is None else self._modern_headers(message, modern)
        body = raw or json.dumps(message, ensure_ascii=False).encode()
        # Only a request may open the browser: the user waits for its response.
        return self._messages("POST", headers, body, interactive="method" in message and "id" in message)

    def listen(self) -> AsyncGenerator[bytes, None]:
        """Yield the messages of the session's GET stream. Raises `CredentialRejected`."""
        return self._messages("GET", self.session.headers(), None, interactive=False)

    async def end(self) -> None:
        """Terminate the session, if the gateway responds quickly."""
        if self.session.id:
            async with asyncio.timeout(_END_SECONDS):
                headers = self._headers(self.session.headers(), await self.credential.token())
                await self._http.delete(self.url, headers=headers)

    async def _messages(
        self, method: str, headers: Mapping[str, str], body: bytes | None, *, interactive: bool
    ) -> AsyncGenerator[bytes, None]:
        done: list[CredentialStep] = []
        while True:
            token = await self.credential.token()
            async with self._open_response(method, self._headers(headers, token), body) as response:
                challenge = _challenge(response, headers)
                if challenge is None:
                    async with aclosing(self._read_messages(response)) as messages:
                        async for message in messages:
                            yield message
                    return
                content = await response.aread()
            step = await self.credential.renew(challenge, token, done, interactive=interactive)
            if step is None:
                yield self._checked_message(response, content)
                return
            done.append(step)

    @asynccontextmanager
    async def _open_response(
        self, method: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncGenerator[httpx.Response]:
        try:
            async with self._http.stream(method, self.url, headers=headers, content=body) as response:
                yield response
        except httpx.HTTPError as exc:
            raise CredentialRejected(0, f"{self.url} is unreachable: {str(exc) or type(exc).__name__}") from exc

    async def _read_messages(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        if (session_id := response.headers.get("mcp-session-id")) is not None:
            self.session.id = session_id
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            parser = SseParser(_MAX_EVENT_BYTES)
            async for chunk in response.aiter_bytes():
                for event in parser.feed(chunk):
                    if event.data:
                        yield event.data
            return
        content = await response.aread()
        if response.status_code != 202:
            yield self._checked_message(response, content)

    def _checked_message(self, response: httpx.Response, content: bytes) -> bytes:
        if not _is_message(content):
            raise CredentialRejected(response.status_code, self._error_message(response, content))
        return content

    def _headers(self, more: Mapping[str, str], token: str | None) -> dict[str, str]:
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **more}
        return headers | ({"Authorization": f"Bearer {token}"} if token else {})

    def _modern_headers(self, message: Json, version: str) -> dict[str, str]:
        method, params = str(message.get("method")), cast("Json", message.get("params"))
        headers = {"MCP-Protocol-Version": version, "Mcp-Method": method}
        name: Any = params.get(_NAME_PARAMETERS.get(method, "taskId" if method.startswith("tasks/") else ""))
        if isinstance(name, str):
            headers["Mcp-Name"] = header_value(name)
            schema = self.header_schemas.get(name) if method == "tools/call" else None
            arguments: Any = params.get("arguments")
            if schema is not None and isinstance(arguments, dict):
                # Imported late: the SDK is slow to load, and few tools need it.
                from mcp.shared.inbound import mcp_param_headers, x_mcp_header_map

                headers |= mcp_param_headers(x_mcp_header_map(schema), cast("Json", arguments))
        return headers

    def _error_message(self, response: httpx.Response, content: bytes) -> str:
        if response.status_code == 401:
            return f"{self.url} {self.credential.rejection_hint} (create one: `gatehouse key create`)"
        try:
            message: Any = json.loads(content)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            message = "not an MCP response; check the URL"
        return f"{self.url} returned HTTP {response.status_code}: {message}"


def modern_version(message: Json) -> str | None:
    """The protocol version that a modern message names; None in the handshake era."""
    params: Any = message.get("params")
    meta: Any = cast("Json", params).get("_meta") if isinstance(params, dict) else None
    version: Any = cast("Json", meta).get(VERSION_KEY) if isinstance(meta, dict) else None
    return version if isinstance(version, str) and version.isprintable() and version.isascii() else None


def _challenge(response: httpx.Response, sent: Mapping[str, str]) -> AuthChallenge | None:
    header = response.headers.get("www-authenticate", "")
    challenge = AuthChallenge(response.status_code, header, sent.get("MCP-Protocol-Version", ""))
    return challenge if challenge.status == 401 or challenge.wants_scope else None


def _is_message(content: bytes) -> bool:
    try:
        message: Any = json.loads(content)
    except ValueError:
        return False
    return isinstance(message, dict) and cast("Json", message).get("jsonrpc") == "2.0"
