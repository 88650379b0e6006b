"""A small MCP client of the newest revision: one POST a request, answered in JSON or as a stream of events."""

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import Any, Final, cast

import httpx

from gateway.cli.failure import CALL_FAILED, UNAUTHENTICATED, UNREACHABLE, CommandError
from gateway.contract import MODERN, Json

# A call may run for as long as its tool's deadline, an hour at most; the gateway is the one to give up.
_TIMEOUT: Final = httpx.Timeout(3660, connect=5)
Progress = Callable[[float, float | None, str], None]
_META: Final = "io.modelcontextprotocol/"


class RpcCallError(Exception):
    """The server's own error object."""

    def __init__(self, error: Json) -> None:
        super().__init__(error.get("message"))
        self.error = error


class McpClient:
    """Speaks to one MCP endpoint; every failure is a `Failure` that says what to do, or an `RpcError`."""

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
        """Every tool, of every page."""
        found: list[Json] = []
        cursor: str | None = None
        while True:
            page = self.request("tools/list", {"cursor": cursor} if cursor else {})
            found += page.get("tools", [])
            cursor = page.get("nextCursor")
            if not cursor:
                return found

    def call(self, tool: str, arguments: Json, progress: Progress | None = None) -> Json:
        """`progress` is told how far the tool says it is."""
        return self.request("tools/call", {"name": tool, "arguments": arguments}, tool, progress)

    def request(self, method: str, params: Json, name: str | None = None, progress: Progress | None = None) -> Json:
        self._last_id += 1
        meta = _envelope() if progress is None else {**_envelope(), "progressToken": self._last_id}
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": {**params, "_meta": meta}}
        try:
            with self._http.stream("POST", self._url, json=message, headers=self._headers(method, name)) as response:
                return self._result(response, progress)
        except httpx.InvalidURL as exc:
            raise self._unreachable("not an address") from exc
        except httpx.TimeoutException as exc:
            raise self._unreachable("no answer in time") from exc
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
                told: Json = message.get("params") or {}
                progress(told.get("progress") or 0, told.get("total"), told.get("message") or "")
            # An error that belongs to no request is the answer to ours: it was the only one.
            if message is not None and message.get("id") in (self._last_id, None) and "error" in message:
                raise RpcCallError(message["error"])
            if message is not None and message.get("id") == self._last_id and "result" in message:
                return message["result"]
        raise CommandError(
            f"{self._url} did not answer as an MCP server (HTTP {response.status_code}); check --url, such as "
            "http://127.0.0.1:8080/mcp",
            code=UNREACHABLE,
        )

    def _unauthenticated(self) -> str:
        if self._token:
            return f"{self._url} does not accept this token; make one with `gatehouse key create`"
        return f"{self._url} wants a token; give --token or set GATEHOUSE_TOKEN (`gatehouse key create` makes one)"

    def _unreachable(self, reason: str) -> CommandError:
        return CommandError(
            f"cannot reach {self._url}: {reason}; start it with `gatehouse serve` or give --url", code=UNREACHABLE
        )


def refused(error: RpcCallError) -> CommandError:
    """How a command ends on an error of the server's."""
    told = error.error.get("data")
    return CommandError(
        f"{error.error.get('message')} (code {error.error.get('code')})", *advice(told), code=CALL_FAILED
    )


def advice(told: Any) -> list[str]:
    """What an error object says can be done about it, if that is what it is."""
    if not isinstance(told, dict):
        return []
    error = cast("Json", told)
    if fix := error.get("suggested_fix"):
        return [str(fix)]
    return ["`gatehouse tools` lists what you may call"] if error.get("stage") == "resolve" else []


def header_value(text: str) -> str:
    """As the protocol carries names in headers: verbatim where that is safe, else in base64."""
    plain = text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?base64?")
    return text if plain else f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def events(lines: Iterable[str]) -> Iterator[str]:
    """The data of each event in a stream."""
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
        f"{_META}clientInfo": {"name": "gatehouse", "version": version("gatehouse")},
        f"{_META}clientCapabilities": {},
    }
