"""Peer sessions of one worker, without a route: handshake, messages that name the peer, and the end of a backend."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind
from gateway.state.bus import MemoryBus
from gateway.upstream.peers.service import BackendPeers, PeerService

ALICE = Caller("red", "alice", credential="a")


class LampProtocol:
    """`failure` is raised by the handshake."""

    def __init__(self, failure: Exception | None = None) -> None:
        self._failure = failure

    def parse(self, line: str) -> Json:
        return json.loads(line)

    async def handshake(self, request: Callable[[Json], Awaitable[Json]]) -> Sequence[str]:
        if self._failure is not None:
            raise self._failure
        return [str(number) for number in range(40)]

    def lost_handshake(self, response: Json) -> bool:
        return False


async def wait_for_state(peers: BackendPeers, state: str) -> Json:
    async with asyncio.timeout(5):
        while (peer := peers.list(ALICE)[0])["state"] != state:
            await asyncio.sleep(0)
    return peer


async def test_peer_is_ready_with_at_most_32_capabilities_after_the_handshake() -> None:
    peers = PeerService(MemoryBus()).for_backend("lamps", "lamp")
    session = await peers.open(ALICE, "desk", LampProtocol())
    peer = await wait_for_state(peers, "ready")
    assert (peer["id"], len(peer["capabilities"])) == (session, 32)
    asking = asyncio.create_task(peers.request(ALICE, None, {"what": "on"}, 5))
    message = await peers.read(ALICE, session, 5)
    assert message is not None
    await peers.write(ALICE, session, json.dumps({"requestId": message["requestId"], "on": True}))
    assert (message["what"], (await asking)["on"]) == ("on", True)


async def test_peer_whose_handshake_is_denied_is_refused_and_its_requests_are_not_sent() -> None:
    peers = PeerService(MemoryBus()).for_backend("lamps", "lamp")
    session = await peers.open(ALICE, "desk", LampProtocol(Fault(Kind.DENIED, "wrong token")))
    assert (await wait_for_state(peers, "refused"))["last_failure_message"] == "wrong token"
    with pytest.raises(Fault, match=r"^The lamp did not fetch the request within 0\.05 s\.$"):
        await peers.request(ALICE, None, {}, 0.05)
    assert await peers.read(ALICE, session, 0) is None


async def test_error_of_a_modules_handshake_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    peers = PeerService(MemoryBus()).for_backend("lamps", "lamp")
    with caplog.at_level(logging.ERROR):
        await peers.open(ALICE, "desk", LampProtocol(ZeroDivisionError()))
        async with asyncio.timeout(5):
            while not caplog.records:
                await asyncio.sleep(0)
    assert caplog.records[0].exc_info is not None


@pytest.mark.parametrize(("noun", "message"), [("lamp", "No lamp is connected."), ("peer", "No peer is connected.")])
async def test_message_names_the_peer_as_the_module_does(noun: str, message: str) -> None:
    with pytest.raises(Fault) as caught:
        await PeerService(MemoryBus()).for_backend("lamps", noun).request(ALICE, None, {}, 1)
    assert caught.value.message == message


async def test_sessions_end_with_their_backend_and_others_stay() -> None:
    service = PeerService(MemoryBus())
    lamps, bells = service.for_backend("lamps", "lamp"), service.for_backend("bells", "bell")
    session = await lamps.open(ALICE, "desk", LampProtocol())
    await bells.open(ALICE, "front", LampProtocol())
    await wait_for_state(lamps, "ready")
    reading: Any = asyncio.create_task(lamps.read(ALICE, session, 10))
    pending = asyncio.create_task(lamps.request(ALICE, None, {}, 10))
    await asyncio.sleep(0)
    await service.end_backend("lamps")
    with pytest.raises(Fault, match="no longer served"):
        await pending
    await asyncio.gather(reading, return_exceptions=True)
    with pytest.raises(Fault) as caught:
        await lamps.read(ALICE, session, 0)
    assert caught.value.kind is Kind.NOT_FOUND
    assert service.count_by_backend() == {"bells": 1}
