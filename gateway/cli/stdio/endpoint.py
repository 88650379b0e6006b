"""The gateway's side of it: one POST for each message, in either era, and the stream of a session."""

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

VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_ANSWER: Final = 64 * 1024 * 1024
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# The gateway gives up first: a call may take as long as its tool may.
_TIMEOUT: Final = httpx.Timeout(3660, connect=10)
_GOODBYE: Final = 1.0
_LOCAL: Final = ("127.0.0.1", "localhost", "::1")


@dataclass
class StdioSession:
    """What the handshake era keeps between requests."""

    id: str = ""
    version: str = ""

    def headers(self) -> dict[str, str]:
        told = {"Mcp-Session-Id": self.id, "MCP-Protocol-Version": self.version}
        return {name: value for name, value in told.items() if value}


@dataclass
class GatewayEndpoint:
    url: str
    credential: ClientCredential
    session: StdioSession = field(default_factory=StdioSession)
    mirrored: dict[str, Json] = field(default_factory=dict[str, Json])
    """Schemas of tools some of whose arguments 2026-07-28 wants in headers too, as far as they were listed."""

    def __post_init__(self) -> None:
        # Proxies and authorities of the environment are for the way out of this machine.
        outside = (urlsplit(self.url).hostname or "") not in _LOCAL
        self._http = httpx.AsyncClient(timeout=_TIMEOUT, trust_env=outside)

    async def close(self) -> None:
        await self._http.aclose()

    def send(self, message: Json, raw: bytes | None = None) -> AsyncGenerator[bytes, None]:
        """The messages that come back, the answer last. `raw` is the message as it was written. Raises `Refused`."""
        modern = version_of(message)
        headers = self.session.headers() if modern is None else self._modern(message, modern)
        body = raw or json.dumps(message, ensure_ascii=False).encode()
        # A person waits for the answer to a request, and for nothing else.
        return self._messages("POST", headers, body, asking="method" in message and "id" in message)

    def listen(self) -> AsyncGenerator[bytes, None]:
        """What the session is told beside its requests. Raises `Refused`."""
        return self._messages("GET", self.session.headers(), None, asking=False)

    async def end(self) -> None:
        """Say that the session is over, if that takes no time."""
        if self.session.id:
            async with asyncio.timeout(_GOODBYE):
                headers = self._headers(self.session.headers(), await self.credential.token())
                await self._http.delete(self.url, headers=headers)

    async def _messages(
        self, method: str, headers: Mapping[str, str], body: bytes | None, *, asking: bool
    ) -> AsyncGenerator[bytes, None]:
        done: list[CredentialStep] = []
        while True:
            token = await self.credential.token()
            async with self._answered(method, self._headers(headers, token), body) as response:
                challenge = _challenge(response, headers)
                if challenge is None:
                    async with aclosing(self._told(response)) as told:
                        async for message in told:
                            yield message
                    return
                said = await response.aread()
            step = await self.credential.renew(challenge, token, done, asking=asking)
            if step is None:
                yield self._message(response, said)
                return
            done.append(step)

    @asynccontextmanager
    async def _answered(
        self, method: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncGenerator[httpx.Response]:
        try:
            async with self._http.stream(method, self.url, headers=headers, content=body) as response:
                yield response
        except httpx.HTTPError as exc:
            raise CredentialRejected(0, f"{self.url} cannot be reached: {str(exc) or type(exc).__name__}") from exc

    async def _told(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        if (given := response.headers.get("mcp-session-id")) is not None:
            self.session.id = given
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            parser = SseParser(_ANSWER)
            async for piece in response.aiter_bytes():
                for event in parser.feed(piece):
                    if event.data:
                        yield event.data
            return
        said = await response.aread()
        if response.status_code != 202:
            yield self._message(response, said)

    def _message(self, response: httpx.Response, said: bytes) -> bytes:
        if not _is_message(said):
            raise CredentialRejected(response.status_code, self._words(response, said))
        return said

    def _headers(self, more: Mapping[str, str], token: str | None) -> dict[str, str]:
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **more}
        return headers | ({"Authorization": f"Bearer {token}"} if token else {})

    def _modern(self, message: Json, version: str) -> dict[str, str]:
        method, params = str(message.get("method")), cast("Json", message.get("params"))
        headers = {"MCP-Protocol-Version": version, "Mcp-Method": method}
        name: Any = params.get(_NAMED.get(method, "taskId" if method.startswith("tasks/") else ""))
        if isinstance(name, str):
            headers["Mcp-Name"] = header_value(name)
            schema = self.mirrored.get(name) if method == "tools/call" else None
            arguments: Any = params.get("arguments")
            if schema is not None and isinstance(arguments, dict):
                # The SDK takes a while to load, and few tools want this.
                from mcp.shared.inbound import mcp_param_headers, x_mcp_header_map

                headers |= mcp_param_headers(x_mcp_header_map(schema), cast("Json", arguments))
        return headers

    def _words(self, response: httpx.Response, said: bytes) -> str:
        if response.status_code == 401:
            return f"{self.url} {self.credential.refusal} (`gatehouse key create` makes one)"
        try:
            told: Any = json.loads(said)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            told = "not an MCP server's answer"
        return f"{self.url} answered HTTP {response.status_code}: {told}"


def version_of(message: Json) -> str | None:
    """The revision that a message of the newest era names; None in the handshake era."""
    params: Any = message.get("params")
    meta: Any = cast("Json", params).get("_meta") if isinstance(params, dict) else None
    version: Any = cast("Json", meta).get(VERSION) if isinstance(meta, dict) else None
    return version if isinstance(version, str) and version.isprintable() and version.isascii() else None


def _challenge(response: httpx.Response, sent: Mapping[str, str]) -> AuthChallenge | None:
    header = response.headers.get("www-authenticate", "")
    challenge = AuthChallenge(response.status_code, header, sent.get("MCP-Protocol-Version", ""))
    return challenge if challenge.status == 401 or challenge.wants_scope else None


def _is_message(said: bytes) -> bool:
    try:
        found: Any = json.loads(said)
    except ValueError:
        return False
    return isinstance(found, dict) and cast("Json", found).get("jsonrpc") == "2.0"
