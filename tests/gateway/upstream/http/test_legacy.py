"""Streamable HTTP in the handshake era, against a small server that records what it receives."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.contract import Call, Json
from gateway.errors import Fault, Kind
from gateway.outbound import parse_target
from gateway.stages.deadline import Deadline
from gateway.upstream.conversation import MessageHandler, NullMessageHandler
from gateway.upstream.http.legacy import LegacyHttp
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.http.request import LegacyRequest, RequestHead, SessionKey
from gateway.upstream.http.sessions import UpstreamSession, UpstreamSessions
from gateway.upstream.http.target import HttpTarget
from tests.gateway.fakes import SERVER_INFO, WAIT, a_call, a_route

ALICE: SessionKey = ("acme/user:alice", frozenset())
EVENTS = "content-type: text/event-stream\r\n"
INITIALIZE_RESULT: Json = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "far"},
}


class Server:
    """Responds in JSON and opens a session for each `initialize`.

    A call of "slow" gets no response, a call of "interrupt" only when the client resumes the stream. With
    `close_delimited`, responses have no length and end with their connection.
    """

    def __init__(self) -> None:
        self.received: list[Json] = []
        self.lost_sessions: set[str] = set()
        self.sessions = 0
        self.ended_sessions: list[str] = []
        self.interrupted_id = 0
        self.close_delimited = False
        self.condition = asyncio.Condition()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                session = headers.get("mcp-session-id", "")
                status, response, more = await self._answer(head.split()[0], session, json.loads(body or b"{}"))
                raw = b"" if response is None else json.dumps(response).encode()
                if headers.get("last-event-id") == "e7":
                    status, more, raw = (
                        200,
                        EVENTS,
                        b'data: {"id": %d, "result": {"whole": true}}\n\n' % self.interrupted_id,
                    )
                elif more == EVENTS:
                    raw = b"retry: 1\nid: e7\ndata: \n\n"
                if self.close_delimited:
                    writer.write(f"HTTP/1.0 {status} X\r\n{more}\r\n".encode() + raw)
                    break
                writer.write(f"HTTP/1.1 {status} X\r\n{more}content-length: {len(raw)}\r\n\r\n".encode() + raw)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, verb: str, session: str, message: Json) -> tuple[int, Json | None, str]:
        async with self.condition:
            self.received.append(message)
            if verb == "DELETE":
                self.ended_sessions.append(session)
            self.condition.notify_all()
        if verb != "POST":
            return 405 if verb == "GET" else 200, None, ""
        if message["method"] == "initialize":
            self.sessions += 1
            return 200, _result(message, INITIALIZE_RESULT), f"mcp-session-id: s{self.sessions}\r\n"
        if "id" not in message:
            return 202, None, ""
        if session in self.lost_sessions:
            return 404, None, ""
        if message["params"].get("name") == "interrupt":
            self.interrupted_id = message["id"]
            return 200, None, EVENTS
        if message["params"].get("name") == "slow":
            await asyncio.Event().wait()
        return 200, _result(message, {"session": session}), ""

    async def wait_until(self, predicate: Callable[[], Any]) -> Any:
        async with asyncio.timeout(WAIT), self.condition:
            await self.condition.wait_for(predicate)
        return predicate()

    def methods(self, method: str) -> list[Json]:
        return [each for each in self.received if each.get("method") == method]


def _result(message: Json, result: Json) -> Json:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


@asynccontextmanager
async def connect(max_sessions: int = 100) -> AsyncIterator[tuple[LegacyHttp, Server]]:
    server = Server()
    tcp_server = await asyncio.start_server(server, "127.0.0.1", 0)
    destination = parse_target(f"http://127.0.0.1:{tcp_server.sockets[0].getsockname()[1]}/mcp", allow_private=True)
    target = HttpTarget(ConnectionPool("far", destination, max_bytes=10_000), RequestHead(destination, {}))
    legacy = LegacyHttp("far", target, 10_000, SERVER_INFO, max_sessions)
    try:
        yield legacy, server
    finally:
        await legacy.close()
        await target.close()
        tcp_server.close()


def call(legacy: LegacyHttp, name: str = "quick", key: SessionKey = ALICE, **capabilities: Any) -> Awaitable[Json]:
    return legacy.request(LegacyRequest(key, capabilities, "tools/call", {"name": name}, NullMessageHandler()))


async def test_call_cancelled_before_its_response_is_cancelled_on_the_server() -> None:
    async with connect() as (legacy, server):
        waiting = asyncio.ensure_future(call(legacy, "slow"))
        [slow_call] = await server.wait_until(lambda: server.methods("tools/call"))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        [received] = await server.wait_until(lambda: server.methods("notifications/cancelled"))
        assert received["params"] == {"requestId": slow_call["id"]}
        assert waiting.cancelled()


async def test_call_that_times_out_is_cancelled_on_the_server() -> None:
    async with connect() as (legacy, server):

        async def send(request: Call) -> Json:
            return await call(legacy, "slow")

        with pytest.raises(Fault) as error:
            await Deadline()(a_call(route=a_route(timeout=0.2)), send)
        assert error.value.kind is Kind.TIMEOUT
        [received] = await server.wait_until(lambda: server.methods("notifications/cancelled"))
        assert received["params"] == {"requestId": server.methods("tools/call")[0]["id"]}


async def test_calls_in_a_lost_session_share_one_new_session() -> None:
    async with connect() as (legacy, server):
        await call(legacy)
        server.lost_sessions.add("s1")
        answers = await asyncio.gather(*(call(legacy) for _ in range(8)))
        assert [each["session"] for each in answers] == ["s2"] * 8
        assert server.sessions == 2


async def test_idle_session_is_evicted_and_busy_session_is_not() -> None:
    async with connect(max_sessions=2) as (legacy, server):
        busy: SessionKey = ("acme/user:busy", frozenset())
        slow_call = asyncio.ensure_future(call(legacy, "slow", busy))
        await server.wait_until(lambda: server.methods("tools/call"))
        for number in range(3):
            await call(legacy, key=(f"acme/user:{number}", frozenset()))
        await server.wait_until(lambda: len(server.ended_sessions) == 2)
        assert server.ended_sessions == ["s2", "s3"]
        assert (await call(legacy, key=busy))["session"] == "s1"
        slow_call.cancel()


async def _never_read(session: UpstreamSession, handler: MessageHandler, ready: asyncio.Event) -> None:
    """The stream has no messages."""


def _sessions(limit: int, *names: str) -> UpstreamSessions:
    sessions = UpstreamSessions(limit)
    for name in names:
        sessions[(name, frozenset())] = UpstreamSession(_never_read, accepts_requests=False)
    return sessions


async def test_tenant_with_many_sessions_evicts_its_own() -> None:
    sessions = _sessions(4, "", "b/user:1", "a/user:1", "a/user:2", "a/user:3")
    assert len(sessions.evict()) == 1
    assert [key[0] for key in sessions] == ["", "b/user:1", "a/user:2", "a/user:3"]


async def test_sessions_in_use_are_not_evicted_above_the_limit() -> None:
    sessions = _sessions(1, "", "a/user:1", "a/user:2")
    for key, session in sessions.items():
        session.active_requests += key[0] != ""
    assert sessions.evict() == []
    with sessions["a/user:2", frozenset()].stream.attach(NullMessageHandler()):
        sessions["a/user:2", frozenset()].active_requests = 0
        assert sessions.evict() == []
    assert len(sessions.evict()) == 1
    assert [key[0] for key in sessions] == ["", "a/user:1"]


async def test_drop_keeps_a_session_that_replaced_the_dropped_one() -> None:
    sessions = _sessions(9, "a/user:1")
    [(key, first)] = sessions.items()
    sessions.drop(key, first)
    sessions[key] = second = UpstreamSession(_never_read, accepts_requests=False)
    sessions.drop(key, first)
    assert sessions[key] is second


@pytest.mark.parametrize("close_delimited", [False, True], ids=["content length", "end of connection"])
async def test_stream_that_ended_without_the_response_is_resumed(close_delimited: bool) -> None:
    async with connect() as (legacy, server):
        server.close_delimited = close_delimited
        assert await call(legacy) == {"session": "s1"}
        assert await asyncio.wait_for(call(legacy, "interrupt"), WAIT) == {"whole": True}
