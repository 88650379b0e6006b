"""A minimal MCP client for revision 2026-07-28: one POST per request, answered as JSON or as an event stream."""

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

import httpx

from gateway.cli.failure import CALL_FAILED, UNAUTHENTICATED, UNREACHABLE, CommandError
from gateway.contract import MODERN, Json
from gateway.contract.distribution import installed_version

# A call may run until the deadline of its tool, at most an hour; the gateway times out first.
_TIMEOUT: Final = httpx.Timeout(3660, connect=5)
Progress = Callable[[float, float | None, str], None]
_META: Final = "io.modelcontextprotocol/"


class RpcCallError(Exception):
    """A JSON-RPC error returned by the server."""

    def __init__(self, error: Json) -> None:
        super().__init__(error.get("message"))
        self.error = error


class McpClient:
    """Calls one MCP endpoint. Every failure is a `CommandError` that says what to do, or an `RpcCallError`."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url
        self._token = token
        self._http = httpx.Client(timeout=_TIMEOUT, trust_env=False)
        self._last_id = 0

    def __enter__(self) -> "McpClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def tools(self) -> list[Json]:
        """List all tools, following pagination."""
        found: list[Json] = []
        cursor: str | None = None
        while True:
            page = self.request("tools/list", {"cursor": cursor} if cursor else {})
            found += page.get("tools", [])
            cursor = page.get("nextCursor")
            if not cursor:
                return found

    def call(self, tool: str, arguments: Json, progress: Progress | None = None, *, approved: bool = False) -> Json:
        """Call a tool. `progress` receives the progress notifications; `approved` states the caller's own approval."""
        params: Json = {"name": tool, "arguments": arguments}
        if approved:
            params["_meta"] = {"approved": True}
        return self.request("tools/call", params, tool, progress)

    def request(self, method: str, params: Json, name: str | None = None, progress: Progress | None = None) -> Json:
        self._last_id += 1
        meta = {**_envelope(), **params.get("_meta", {})}
        if progress is not None:
            meta["progressToken"] = self._last_id
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": {**params, "_meta": meta}}
        try:
            with self._http.stream("POST", self._url, json=message, headers=self._headers(method, name)) as response:
                return self._result(response, progress)
        except httpx.InvalidURL as exc:
            raise self._unreachable("not a valid URL") from exc
        except httpx.TimeoutException as exc:
            raise self._unreachable("timed out") from exc
        except httpx.TransportError as exc:
            raise self._unreachable(str(exc)) from exc

    def _headers(self, method: str, name: str | None) -> dict[str, str]:
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": method,
        }
        if name is not None:
            headers["Mcp-Name"] = header_value(name)
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _result(self, response: httpx.Response, progress: Progress | None) -> Json:
        if response.status_code == 401:
            raise CommandError(self._unauthenticated(), code=UNAUTHENTICATED)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            messages = events(response.iter_lines())
        else:
            messages = iter([response.read().decode(errors="replace")])
        for message in map(_message, messages):
            if progress is not None and message is not None and message.get("method") == "notifications/progress":
                params: Json = message.get("params") or {}
                progress(params.get("progress") or 0, params.get("total"), params.get("message") or "")
            # An error without an id answers our request: no other request is in progress.
            if message is not None and message.get("id") in (self._last_id, None) and "error" in message:
                raise RpcCallError(message["error"])
            if message is not None and message.get("id") == self._last_id and "result" in message:
                return message["result"]
        raise CommandError(
            f"{self._url} is not an MCP endpoint (HTTP {response.status_code}); check --url, such as "
            "http://127.0.0.1:8080/mcp",
            code=UNREACHABLE,
        )

    def _unauthenticated(self) -> str:
        if self._token:
            return f"{self._url} rejected the token; create a key with `gatehouse key create`"
        return f"{self._url} requires a token; give --token or set GATEHOUSE_TOKEN (create one: `gatehouse key create`)"

    def _unreachable(self, reason: str) -> CommandError:
        return CommandError(
            f"cannot reach {self._url}: {reason}; start it with `gatehouse serve` or give --url", code=UNREACHABLE
        )


def to_command_error(error: RpcCallError) -> CommandError:
    """Convert an error of the server into the failure of a command."""
    data = error.error.get("data")
    return CommandError(
        f"{error.error.get('message')} (code {error.error.get('code')})", *suggested_fixes(data), code=CALL_FAILED
    )


def suggested_fixes(data: Any) -> list[str]:
    """The suggested fix of an error object, if it has one."""
    if not isinstance(data, dict):
        return []
    error = cast("Json", data)
    if fix := error.get("suggested_fix"):
        return [str(fix)]
    return ["list the tools you may call with `gatehouse tools`"] if error.get("stage") == "resolve" else []


def header_value(text: str) -> str:
    """Encode a name for a header: verbatim where that is safe, else in base64."""
    plain = text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?base64?")
    return text if plain else f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def events(lines: Iterable[str]) -> Iterator[str]:
    """Yield the data of each server-sent event."""
    data: list[str] = []
    for line in lines:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data = []


def _message(text: str) -> Json | None:
    try:
        message: Any = json.loads(text)
    except ValueError:
        return None
    return cast("Json", message) if isinstance(message, dict) else None


def _envelope() -> Json:
    return {
        f"{_META}protocolVersion": MODERN,
        f"{_META}clientInfo": {"name": "gatehouse", "version": installed_version()},
        f"{_META}clientCapabilities": {},
    }
