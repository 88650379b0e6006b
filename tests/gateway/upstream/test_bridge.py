"""The relay over real sockets: sessions, handshake, answers by request id, Studios that vanish and come back."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from gateway.contract import Caller
from gateway.edge.stream_expiry import StreamExpiry
from gateway.edge.studio_bridge import bridge_router
from gateway.errors import Fault, Kind
from gateway.state.bus import MemoryBus
from gateway.upstream.bridge import BackendBridge, Bridges
from tests.backends.roblox.fake_studio import FakeStudio, Json
from tests.quiet import QuietServer

SCOPES = frozenset({"bridge:roblox"})
CALLERS = {
    "alice": Caller("red", "alice", scopes=SCOPES, credential="a"),
    "bob": Caller("red", "bob", scopes=SCOPES, credential="b"),
    "eve": Caller("blue", "eve", scopes=SCOPES, credential="e"),
    "powerless": Caller("red", "zed", credential="z"),
}
ALICE, EVE = CALLERS["alice"], CALLERS["eve"]


async def _authenticate(headers: Mapping[str, str], address: str) -> Caller:
    caller = CALLERS.get(headers.get("authorization", "").removeprefix("Bearer "))
    if caller is None:
        raise Fault(Kind.UNAUTHENTICATED, "The credential is not valid.")
    return caller


@dataclass
class Relay:
    base: str
    bridges: Bridges
    bridge: BackendBridge

    async def polling(self, yes: bool) -> None:
        while self.bridge.peers(ALICE)[0]["polling"] is not yes:
            await asyncio.sleep(0.005)

    async def ask(self, caller: Caller = ALICE, peer: str | None = None, timeout: float = 10, **payload: Any) -> Json:
        return await self.bridge.request(caller, peer, {"operation": "x.y", "payload": payload}, timeout)


@asynccontextmanager
async def _serving(port: int = 0, cut: float = 0.2) -> AsyncIterator[Relay]:
    bridges = Bridges(MemoryBus(), cut=cut)
    app = FastAPI()
    app.include_router(bridge_router(bridges, _authenticate, StreamExpiry()))
    server = QuietServer(uvicorn.Config(app, port=port, log_config=None, access_log=False, lifespan="off"))
    async with server.running(force=True) as bound:
        yield Relay(f"http://127.0.0.1:{bound}", bridges, bridges.for_backend("roblox"))


@pytest.fixture
async def relay() -> AsyncIterator[Relay]:
    async with _serving() as running:
        yield running


async def _silent(request: Json) -> Json | None:
    return None


async def test_an_answer_comes_back_whole(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice") as studio:
        await studio.wait_until_connected()
        answer = await relay.ask(n=1)
        assert answer["payload"] == {"operation": "x.y", "n": 1}
        request = studio.requests[0]
        assert {"requestId", "correlationId", "operation", "timestamp", "idempotencyKey", "payload"} == request.keys()
        assert request["idempotencyKey"] == request["requestId"]


async def test_the_handshake_gives_the_studio_its_own_token_back(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice") as studio:
        await studio.wait_until_connected()
        auth, hello = studio.received
        assert auth["payload"] == {"token": "alice", "clientName": "gatehouse"}
        assert hello["payload"] == {"protocolVersion": "1.1", "clientName": "gatehouse"}
        peer = relay.bridge.peers(ALICE)[0]
        assert peer["connected"] is True
        assert peer["capabilities"] == ["typed-values.v2", "instance-id", "idempotency-key"]


async def test_a_bearer_header_serves_as_well(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice", authorization="Bearer alice") as studio:
        await studio.wait_until_connected()
        assert (await relay.ask())["success"] is True


async def test_answers_find_their_question_in_whatever_order(relay: Relay) -> None:
    hold: list[Json] = []

    async def backwards(request: Json) -> Json | None:
        hold.append(request)
        if len(hold) == 20:
            for each in reversed(hold):
                await studio.send({"requestId": each["requestId"], "success": True, "payload": each["payload"]})
        return None

    async with FakeStudio(relay.base, "alice", answer=backwards) as studio:
        await studio.wait_until_connected()
        answers = await asyncio.gather(*(relay.ask(n=n) for n in range(20)))
    assert [answer["payload"]["n"] for answer in answers] == list(range(20))


async def test_one_timed_out_request_does_not_disturb_the_next_thousand(relay: Relay) -> None:
    late: list[Json] = []

    async def answer(request: Json) -> Json | None:
        if request["payload"].get("late"):
            late.append(request)
            return None
        if late:
            first = late.pop()
            assert await studio.send({"requestId": first["requestId"], "success": True, "payload": {"n": -1}}) == 204
        return {"success": True, "payload": request["payload"]}

    async with FakeStudio(relay.base, "alice", answer=answer) as studio:
        await studio.wait_until_connected()
        with pytest.raises(Fault) as caught:
            await relay.ask(timeout=0.1, late=True)
        assert caught.value.kind is Kind.TIMEOUT
        for start in range(0, 1000, 50):
            batch = await asyncio.gather(*(relay.ask(n=n) for n in range(start, start + 50)))
            assert [each["payload"]["n"] for each in batch] == list(range(start, start + 50))
        assert relay.bridge.peers(ALICE)[0]["consecutive_failures"] == 0


async def test_a_request_that_nobody_waits_for_any_more_is_not_handed_out(relay: Relay) -> None:
    async with httpx.AsyncClient(verify=False, base_url=relay.base, headers={"x-gox-auth": "alice"}) as http:
        session = await _greet(http)
        with pytest.raises(Fault) as caught:
            await relay.ask(timeout=0.05)
        assert caught.value.kind is Kind.UNAVAILABLE  # it was never fetched, so nothing was done
        assert (await http.get(f"/v1/bridge/session/{session}/read?timeout_ms=0")).status_code == 204


async def test_killing_the_studio_in_mid_call_is_unavailable_and_the_call_after_its_return_works(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice", answer=_silent) as studio:
        await studio.wait_until_connected()
        asking = asyncio.create_task(relay.ask(timeout=30))
        while not studio.requests:
            await studio.arrived.wait()
            studio.arrived.clear()
        await relay.polling(True)
        await studio.kill()
        with pytest.raises(Fault, match="connection was lost") as caught:
            await asking
        assert (caught.value.kind, caught.value.retryable) == (Kind.UNAVAILABLE, False)
    async with FakeStudio(relay.base, "alice") as studio:
        await studio.wait_until_connected()
        assert (await relay.ask())["success"] is True


async def test_a_poll_that_breaks_and_comes_back_loses_nothing(relay: Relay) -> None:
    async with httpx.AsyncClient(verify=False, base_url=relay.base, headers={"x-gox-auth": "alice"}) as http:
        session = await _greet(http)
        with pytest.raises(httpx.ReadTimeout):
            await http.get(f"/v1/bridge/session/{session}/read", timeout=0.05)
        await relay.polling(False)
        asking = asyncio.create_task(relay.ask())
        line = (await http.get(f"/v1/bridge/session/{session}/read")).json()["line"]
        await _write(http, session, {"requestId": json.loads(line)["requestId"], "success": True, "payload": {}})
        assert (await asking)["success"] is True


async def test_the_studio_reconnects_by_itself_when_the_gateway_is_started_anew() -> None:
    async with _serving() as first:
        port = int(first.base.rpartition(":")[2])
        async with httpx.AsyncClient(verify=False, base_url=first.base, headers={"x-gox-auth": "alice"}) as http:
            session = await _greet(http)
    async with _serving(port) as second:
        async with httpx.AsyncClient(verify=False, base_url=second.base, headers={"x-gox-auth": "alice"}) as http:
            # What the plugin does on 404: open a session anew.
            assert (await http.get(f"/v1/bridge/session/{session}/read")).status_code == 404
            await _greet(http)
        assert len(second.bridge.peers(ALICE)) == 1


async def test_the_same_key_and_name_replace_a_session_and_another_name_adds_one(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice", name="one") as one, FakeStudio(relay.base, "alice", name="two") as two:
        await one.wait_until_connected()
        await two.wait_until_connected()
        assert {peer["name"] for peer in relay.bridge.peers(ALICE)} == {"one", "two"}
        async with httpx.AsyncClient(verify=False, base_url=relay.base, headers={"x-gox-auth": "alice"}) as http:
            old, opened = one.session, one.opened
            await http.post("/v1/bridge/session", json={"clientName": "one"})
            while one.opened == opened:  # its poll is told 404, and it opens a session of its own again
                await asyncio.sleep(0.005)
            assert one.session != old
        assert len(relay.bridge.peers(ALICE)) == 2


async def test_a_key_has_at_most_32_studios_and_the_oldest_goes(relay: Relay) -> None:
    async with httpx.AsyncClient(verify=False, base_url=relay.base, headers={"x-gox-auth": "alice"}) as http:
        for number in range(34):
            await http.post("/v1/bridge/session", json={"clientName": f"s{number}"})
    assert [peer["name"] for peer in relay.bridge.peers(ALICE)] == [f"s{number}" for number in range(2, 34)]


async def test_an_answer_for_a_worker_that_is_gone_is_dropped(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice") as studio:
        await studio.wait_until_connected()
        assert await studio.send({"requestId": "dead.1.x", "success": True, "payload": {}}) == 204


async def test_studios_of_two_tenants_never_meet(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice") as hers, FakeStudio(relay.base, "eve") as others:
        await hers.wait_until_connected()
        await others.wait_until_connected()
        assert [peer["id"] for peer in relay.bridge.peers(EVE)] == [others.session]
        with pytest.raises(Fault):
            await relay.ask(EVE, peer=hers.session)
        await asyncio.gather(*(relay.ask(caller, n=n) for n in range(20) for caller in (ALICE, EVE)))
        assert len(hers.requests) == len(others.requests) == 20


async def test_a_studio_cannot_answer_for_another(relay: Relay) -> None:
    async with FakeStudio(relay.base, "alice", answer=_silent) as hers, FakeStudio(relay.base, "eve") as others:
        await hers.wait_until_connected()
        await others.wait_until_connected()
        asking = asyncio.create_task(relay.ask(timeout=5))
        while not hers.requests:
            await hers.arrived.wait()
            hers.arrived.clear()
        request_id = hers.requests[0]["requestId"]
        assert await others.send({"requestId": request_id, "success": True, "payload": {"forged": True}}) == 204
        assert await hers.send({"requestId": request_id, "success": True, "payload": {"forged": False}}) == 204
        assert (await asking)["payload"] == {"forged": False}


@pytest.mark.parametrize("who", ["eve", "bob"])
async def test_a_session_is_of_its_own_key_only(relay: Relay, who: str) -> None:
    async with httpx.AsyncClient(verify=False, base_url=relay.base, headers={"x-gox-auth": "alice"}) as http:
        session = await _greet(http)
        other = {"x-gox-auth": who}
        at = f"/v1/bridge/session/{session}"
        assert (await http.get(f"{at}/read", headers=other)).status_code == 404
        assert (await http.post(f"{at}/write", json={"line": "{}"}, headers=other)).status_code == 404
        assert (await http.delete(f"{at}/close", headers=other)).status_code == 404
        assert (await http.delete(f"{at}/close")).status_code == 204
        assert (await http.delete(f"{at}/close")).status_code == 404


@pytest.mark.parametrize(
    ("verb", "path", "headers", "body", "status"),
    [
        ("POST", "", {}, "{}", 401),
        ("POST", "", {"x-gox-auth": "nobody"}, "{}", 401),
        ("POST", "", {"x-gox-auth": "powerless"}, "{}", 403),
        ("POST", "", {"x-gox-auth": "alice"}, "", 200),
        ("POST", "", {"x-gox-auth": "alice"}, "[]", 400),
        ("POST", "", {"x-gox-auth": "alice"}, '{"clientName": 5}', 400),
        ("GET", "", {"x-gox-auth": "alice"}, "", 405),
        ("POST", "/unknown/read", {"x-gox-auth": "alice"}, "", 405),
        ("GET", "/unknown/read", {"x-gox-auth": "alice"}, "", 404),
        ("POST", "/unknown/write", {"x-gox-auth": "alice"}, '{"line": "{}"}', 404),
        ("DELETE", "/unknown/close", {"x-gox-auth": "alice"}, "", 404),
    ],
)
async def test_each_route_answers_as_the_wire_says(
    relay: Relay, verb: str, path: str, headers: dict[str, str], body: str, status: int
) -> None:
    async with httpx.AsyncClient(verify=False, base_url=relay.base) as http:
        response = await http.request(verb, f"/v1/bridge/session{path}", headers=headers, content=body)
        assert response.status_code == status, response.text


@pytest.mark.parametrize(
    "line",
    [
        *("", "nonsense", "[]", "{}", "[" * 100_000),
        '{"requestId": 5, "success": true}',
        '{"requestId": "r", "success": false}',
        '{"requestId": "r", "success": false, "error": {"code": "X"}}',
    ],
)
async def test_a_line_that_is_no_answer_is_refused(relay: Relay, line: str) -> None:
    async with httpx.AsyncClient(verify=False, base_url=relay.base, headers={"x-gox-auth": "alice"}) as http:
        session = await _greet(http)
        response = await http.post(f"/v1/bridge/session/{session}/write", json={"line": line})
        assert response.status_code == 400


async def test_an_old_plugin_without_hello_is_taken_as_it_is(relay: Relay) -> None:
    async with httpx.AsyncClient(verify=False, base_url=relay.base, headers={"x-gox-auth": "alice"}) as http:
        error = {"code": "NOT_FOUND", "message": "operation bridge.hello is not supported"}
        await _greet(http, hello={"success": False, "error": error})
        peer = relay.bridge.peers(ALICE)[0]
        assert (peer["connected"], peer["capabilities"]) == (True, [])


async def test_a_plugin_that_was_loaded_anew_is_greeted_again(relay: Relay) -> None:
    forgetful = [True]

    async def answer(request: Json) -> Json | None:
        if forgetful.pop() if forgetful else False:
            return {"success": False, "error": {"code": "ACCESS_DENIED", "message": "bridge.hello required"}}
        return {"success": True, "payload": {}}

    async with FakeStudio(relay.base, "alice", answer=answer) as studio:
        await studio.wait_until_connected()
        assert (await relay.ask())["success"] is True
        assert [each["operation"] for each in studio.received].count("bridge.hello") == 2


async def test_with_no_studio_at_all_it_is_unavailable(relay: Relay) -> None:
    with pytest.raises(Fault) as caught:
        await relay.ask()
    assert (caught.value.kind, caught.value.category) == (Kind.UNAVAILABLE, "platform")


async def _greet(http: httpx.AsyncClient, hello: Json | None = None) -> str:
    """A session past its handshake, by hand."""
    session = (await http.post("/v1/bridge/session", json={"clientName": "hand"})).json()["sessionId"]
    good: Json = {"success": True, "payload": {"protocolVersion": "1.1", "capabilities": []}}
    for answer in (good, hello or good):
        line = (await http.get(f"/v1/bridge/session/{session}/read")).json()["line"]
        await _write(http, session, {"requestId": json.loads(line)["requestId"], **answer})
    return session


async def _write(http: httpx.AsyncClient, session: str, answer: Json) -> None:
    written = await http.post(f"/v1/bridge/session/{session}/write", json={"line": json.dumps(answer)})
    assert written.status_code == 204, written.text
