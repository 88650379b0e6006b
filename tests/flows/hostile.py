"""Hypothesis strategies for hostile requests: random bytes, and valid messages of either era with mutations."""

import copy
import json
from typing import Any, Final

from hypothesis import strategies as st

from tests.flows.process import HANDSHAKE, MODERN, modern, modern_headers
from tests.flows.rawhttp import Headers, request

Json = dict[str, Any]
Draw = st.DrawFn

_META: Final = {"name": "hostile", "version": "1"}
_INITIALIZE: Final[Json] = {"protocolVersion": HANDSHAKE, "capabilities": {"elicitation": {}}, "clientInfo": _META}
SHARED: Final[tuple[tuple[str, Json], ...]] = (
    ("tools/list", {}),
    ("tools/list", {"cursor": "2"}),
    ("tools/call", {"name": "plain_echo", "arguments": {"text": "hi"}}),
    ("tools/call", {"name": "plain_count", "arguments": {"to": 2}, "_meta": {"progressToken": "p"}}),
    ("tools/call", {"name": "plain_greet", "arguments": {}}),
    ("tools/call", {"name": "core_ping", "arguments": {}}),
    ("tools/call", {"name": "strict.double", "arguments": {"number": 2}}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "gox://runs"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "plain_nothing", "arguments": {}}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": "b"}}),
)
HANDSHAKE_ONLY: Final[tuple[tuple[str, Json], ...]] = (
    ("initialize", _INITIALIZE),
    ("ping", {}),
    ("logging/setLevel", {"level": "info"}),
    ("resources/subscribe", {"uri": "gox://runs"}),
    ("resources/unsubscribe", {"uri": "gox://runs"}),
    ("notifications/initialized", {}),
    ("notifications/cancelled", {"requestId": 1, "reason": "why not"}),
    ("notifications/progress", {"progressToken": "p", "progress": 1}),
)
MODERN_ONLY: Final[tuple[tuple[str, Json], ...]] = (
    ("server/discover", {}),
    ("subscriptions/listen", {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["gox://runs"]}}),
    ("tools/call", {"name": "plain_greet", "arguments": {}, "inputResponses": {}, "requestState": "v1.x"}),
    ("tools/call", {"name": "plain_greet", "arguments": {}, "_meta": {"io.modelcontextprotocol/logLevel": "debug"}}),
)

ODD_TEXT: Final = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", "\x00", "\r\nX: y", "\u202e", "\u2028", "../..", "%00", "__proto__", "x" * 5000, "🦊", "$"]),
)
VALUES: Final = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([0, -1, 2**63, -(2**64), 10**40, 1e308, float("nan"), float("inf"), -0.0]),
        ODD_TEXT,
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ODD_TEXT, inner, max_size=4),
    max_leaves=8,
)
ODD_HEADERS: Final = st.sampled_from(
    [
        b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id", b"mcp-param-x", b"last-event-id",
        b"accept", b"content-type", b"content-encoding", b"origin", b"authorization", b"x-api-key", b"traceparent",
        b"x-correlation-id", b"x-request-id", b"expect", b"connection", b"upgrade", b"x-forwarded-for", b"cookie",
    ]
)  # fmt: skip
ODD_HEADER_VALUES: Final = st.one_of(
    st.sampled_from(
        [
            b"", b"*/*", b"2026-07-28", b"2025-11-25", b"2025-03-26", b"2099-01-01", b"application/json", b"text/html",
            b"application/json; charset=utf-7", b"=?base64?!!!?=", b"=?base64?aGk=?=", b"null", b"http://evil.example",
            b"gzip", b"Bearer", b"Bearer x", b"Basic eDp5", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01", b"x" * 9000,
            b"tools/call", b"\xff\xfe", b"a\tb", b"100-continue", b"websocket", b"Upgrade", b"keep-alive",
        ]
    ),
    st.binary(max_size=30).map(lambda noise: bytes(byte for byte in noise if byte > 31 and byte != 127)),
)  # fmt: skip


def one_in(number: int) -> st.SearchStrategy[bool]:
    """True in about one of `number` draws. Not an integer range: Hypothesis draws its ends too often."""
    return st.sampled_from([False] * (number - 1) + [True])


@st.composite
def messages(draw: Draw) -> tuple[Json, dict[str, str]]:
    """A valid message and the headers of its era."""
    if draw(st.booleans()):
        method, params = draw(st.sampled_from(SHARED + MODERN_ONLY))
        return modern(method, copy.deepcopy(params), elicitation={}), modern_headers(method, params)
    method, params = draw(st.sampled_from(SHARED + HANDSHAKE_ONLY))
    message: Json = {"jsonrpc": "2.0", "method": method, "params": copy.deepcopy(params)}
    if not method.startswith("notifications/"):
        message["id"] = draw(st.sampled_from([1, "a", 2**53]))
    return message, {"mcp-protocol-version": HANDSHAKE}


@st.composite
def wrong(draw: Draw, message: Json) -> Any:
    """The message with up to three members replaced, removed or added, or an unrelated value."""
    if draw(one_in(20)):
        return draw(VALUES | st.just([message]) | st.just([]))
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 1, 2, 3]))):
        place: Any = message
        while True:
            inner = [key for key, value in place.items() if isinstance(value, dict) and value]
            if not inner or draw(one_in(4)):
                break
            place = place[draw(st.sampled_from(inner))]
        key = draw(st.sampled_from([*place, ""])) or draw(ODD_TEXT)
        if draw(st.booleans()):
            place[key] = draw(VALUES)
        else:
            place.pop(key, None)
    return message


@st.composite
def bodies(draw: Draw, message: Json) -> bytes:
    """The encoded message, sometimes with changed bytes."""
    body = json.dumps(draw(wrong(message)), ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")
    damage = draw(st.sampled_from([0] * 15 + [1, 2, 3, 4, 5]))
    if damage == 5:
        body = body[: draw(st.integers(0, len(body)))]
    elif damage == 1:
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.binary(max_size=6)) + body[at:]
    elif damage == 2:
        body = draw(st.binary(max_size=60))
    elif damage == 3:
        body = body.replace(b'"params"', b'"params": {}, "params"', 1)
    elif damage == 4:
        body = body.replace(b'"hi"', b'"\\ud800"')
    return body


@st.composite
def requests(draw: Draw, key: str, sessions: list[str]) -> bytes:
    """One complete HTTP request to the gateway."""
    message, known = draw(messages())
    headers: Headers = [
        (b"host", b"127.0.0.1"),
        (b"authorization", b"Bearer " + key.encode()),
        (b"accept", b"application/json, text/event-stream"),
        (b"content-type", b"application/json"),
        *((name.encode(), value.encode()) for name, value in known.items()),
    ]
    if known["mcp-protocol-version"] != MODERN and message["method"] != "initialize":
        headers.append((b"mcp-session-id", draw(st.sampled_from(sessions)).encode()))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        match draw(st.sampled_from(("add", "drop", "replace", "replace"))):
            case "add":
                headers.append((draw(ODD_HEADERS), draw(ODD_HEADER_VALUES)))
            case "drop":
                headers.pop(draw(st.integers(1, len(headers) - 1)))
            case _:
                at = draw(st.integers(1, len(headers) - 1))
                headers[at] = headers[at][0], draw(ODD_HEADER_VALUES)
    verb = draw(st.sampled_from([b"POST"] * 40 + [b"GET", b"DELETE", b"PUT", b"HEAD", b"OPTIONS", b"PATCH"]))
    path = draw(st.sampled_from([b"/mcp"] * 24 + [b"/mcp/core", b"/mcp/plain", b"/mcp/x%2f", b"/", b"/mcp/", b"//mcp"]))
    body = draw(bodies(message)) if verb == b"POST" else b""
    if not draw(one_in(6)):
        headers.append((b"content-length", b"%d" % len(body)))
    else:
        headers.append((b"transfer-encoding", b"chunked"))
        body = (b"%x\r\n%s\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
    return request(verb, path, headers, body)


@st.composite
def noise(draw: Draw, key: str, sessions: list[str]) -> bytes:
    """Bytes that may or may not be a request."""
    if draw(one_in(3)):
        return draw(st.binary(min_size=1, max_size=300))
    sent = bytearray(draw(requests(key, sessions)))
    for _ in range(draw(st.integers(1, 4))):
        sent[draw(st.integers(0, len(sent) - 1))] = draw(st.integers(0, 255))
    return bytes(sent[: draw(st.integers(1, len(sent)))])
