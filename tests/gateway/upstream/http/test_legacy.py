"""The handshake era over HTTP, against a server of a few lines that notes what it is told."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.contract import Call, Json
from gateway.errors import Fault, Kind
from gateway.outbound import target
from gateway.stages.deadline import Deadline
from gateway.upstream.conversation import MessageHandler, NullMessageHandler
from gateway.upstream.http.legacy import LegacyHttp
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.http.request import LegacyRequest, RequestHead, Who
from gateway.upstream.http.sessions import UpstreamSession, UpstreamSessions
from gateway.upstream.http.target import HttpTarget
from tests.gateway.fakes import SERVER_INFO, WAIT, a_call, a_route

ALICE: Who = ("acme/user:alice", frozenset())
EVENTS = "content-type: text/event-stream\r\n"
GREETING: Json = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "far"}}


class Server:
    """Answers in JSON, with a session for each `initialize`; a call of "slow" is never answered, one of "hang up" only
    to whoever comes back for the rest. `until_end`: its answers end with their connections."""

    def __init__(self) -> None:
        self.told: list[Json] = []
        self.forgotten: set[str] = set()
        self.sessions = 0
        self.ended: list[str] = []
        self.hung_up = 0
        self.until_end = False
        self.news = asyncio.Condition()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                session = fields.get("mcp-session-id", "")
                status, answer, more = await self._answer(head.split()[0], session, json.loads(body or b"{}"))
                raw = b"" if answer is None else json.dumps(answer).encode()
                if fields.get("last-event-id") == "e7":
                    status, more, raw = 200, EVENTS, b'data: {"id": %d, "result": {"whole": true}}\n\n' % self.hung_up
                elif more == EVENTS:
                    raw = b"retry: 1\nid: e7\ndata: \n\n"
                if self.until_end:
                    writer.write(f"HTTP/1.0 {status} X\r\n{more}\r\n".encode() + raw)
                    break
                writer.write(f"HTTP/1.1 {status} X\r\n{more}content-length: {len(raw)}\r\n\r\n".encode() + raw)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, verb: str, session: str, message: Json) -> tuple[int, Json | None, str]:
        async with self.news:
            self.told.append(message)
            if verb == "DELETE":
                self.ended.append(session)
            self.news.notify_all()
        if verb != "POST":
            return 405 if verb == "GET" else 200, None, ""
        if message["method"] == "initialize":
            self.sessions += 1
            return 200, _result(message, GREETING), f"mcp-session-id: s{self.sessions}\r\n"
        if "id" not in message:
            return 202, None, ""
        if session in self.forgotten:
            return 404, None, ""
        if message["params"].get("name") == "hang up":
            self.hung_up = message["id"]
            return 200, None, EVENTS
        if message["params"].get("name") == "slow":
            await asyncio.Event().wait()
        return 200, _result(message, {"session": session}), ""

    async def until(self, fact: Callable[[], Any]) -> Any:
        async with asyncio.timeout(WAIT), self.news:
            await self.news.wait_for(fact)
        return fact()

    def methods(self, method: str) -> list[Json]:
        return [each for each in self.told if each.get("method") == method]


def _result(message: Json, result: Json) -> Json:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


@asynccontextmanager
async def far(max_sessions: int = 100) -> AsyncIterator[tuple[LegacyHttp, Server]]:
    server = Server()
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    there = target(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp", allow_private=True)
    site = HttpTarget(ConnectionPool("far", there, max_bytes=10_000), RequestHead(there, {}))
    legacy = LegacyHttp("far", site, 10_000, SERVER_INFO, max_sessions)
    try:
        yield legacy, server
    finally:
        await legacy.close()
        await site.close()
        listening.close()


def call(legacy: LegacyHttp, name: str = "quick", who: Who = ALICE, **capabilities: Any) -> Awaitable[Json]:
    return legacy.request(LegacyRequest(who, capabilities, "tools/call", {"name": name}, NullMessageHandler()))


async def test_a_call_that_is_cancelled_before_a_byte_of_its_answer_came_is_cancelled_there_too() -> None:
    async with far() as (legacy, server):
        waiting = asyncio.ensure_future(call(legacy, "slow"))
        [slow] = await server.until(lambda: server.methods("tools/call"))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        [told] = await server.until(lambda: server.methods("notifications/cancelled"))
        assert told["params"] == {"requestId": slow["id"]}
        assert waiting.cancelled()


async def test_a_call_that_runs_out_of_time_is_cancelled_there_too() -> None:
    async with far() as (legacy, server):

        async def carry(given: Call) -> Json:
            return await call(legacy, "slow")

        with pytest.raises(Fault) as late:
            await Deadline()(a_call(route=a_route(timeout=0.2)), carry)
        assert late.value.kind is Kind.TIMEOUT
        [told] = await server.until(lambda: server.methods("notifications/cancelled"))
        assert told["params"] == {"requestId": server.methods("tools/call")[0]["id"]}


async def test_calls_that_find_their_session_forgotten_share_one_new_session() -> None:
    async with far() as (legacy, server):
        await call(legacy)
        server.forgotten.add("s1")
        answers = await asyncio.gather(*(call(legacy) for _ in range(8)))
        assert [each["session"] for each in answers] == ["s2"] * 8
        assert server.sessions == 2


async def test_an_idle_session_makes_room_and_one_in_use_does_not() -> None:
    async with far(max_sessions=2) as (legacy, server):
        busy: Who = ("acme/user:busy", frozenset())
        slow = asyncio.ensure_future(call(legacy, "slow", busy))
        await server.until(lambda: server.methods("tools/call"))
        for number in range(3):
            await call(legacy, who=(f"acme/user:{number}", frozenset()))
        await server.until(lambda: len(server.ended) == 2)
        assert server.ended == ["s2", "s3"]
        assert (await call(legacy, who=busy))["session"] == "s1"
        slow.cancel()


async def _hear(session: UpstreamSession, talk: MessageHandler, opened: asyncio.Event) -> None:
    """Nothing is said."""


def _sessions(most: int, *names: str) -> UpstreamSessions:
    sessions = UpstreamSessions(most)
    for name in names:
        sessions[(name, frozenset())] = UpstreamSession(_hear, asks=False)
    return sessions


async def test_a_tenant_with_many_sessions_pushes_out_its_own() -> None:
    sessions = _sessions(4, "", "b/user:1", "a/user:1", "a/user:2", "a/user:3")
    assert len(sessions.make_room()) == 1
    assert [who[0] for who in sessions] == ["", "b/user:1", "a/user:2", "a/user:3"]


async def test_sessions_in_use_are_kept_beyond_the_bound() -> None:
    sessions = _sessions(1, "", "a/user:1", "a/user:2")
    for who, session in sessions.items():
        session.active += who[0] != ""
    assert sessions.make_room() == []
    with sessions["a/user:2", frozenset()].beside.told(NullMessageHandler()):
        sessions["a/user:2", frozenset()].active = 0
        assert sessions.make_room() == []
    assert len(sessions.make_room()) == 1
    assert [who[0] for who in sessions] == ["", "a/user:1"]


async def test_a_session_that_took_anothers_place_is_not_dropped_with_it() -> None:
    sessions = _sessions(9, "a/user:1")
    [(who, first)] = sessions.items()
    sessions.drop(who, first)
    sessions[who] = second = UpstreamSession(_hear, asks=False)
    sessions.drop(who, first)
    assert sessions[who] is second


@pytest.mark.parametrize("until_end", [False, True], ids=["named length", "end of connection"])
async def test_a_stream_that_ended_without_the_answer_is_resumed_however_it_ended(until_end: bool) -> None:
    async with far() as (legacy, server):
        server.until_end = until_end
        assert await call(legacy) == {"session": "s1"}
        assert await asyncio.wait_for(call(legacy, "hang up"), WAIT) == {"whole": True}
