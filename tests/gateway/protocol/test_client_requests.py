"""Questions to a client of the handshake era."""

import asyncio
import json
from typing import Any

import pytest

from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.protocol.client_requests import ANSWER_SECONDS, ClientRequests
from gateway.protocol.messages import Message
from gateway.protocol.sealed_tokens import TokenSeal
from gateway.state.bus import MemoryBus
from tests.gateway.fakes import Clock, until

SEAL = TokenSeal([b"k" * 32])
ALL: Json = {"elicitation": {}, "sampling": {}, "roots": {}}
TWO: dict[str, Json] = {
    "a": {"method": "roots/list"},
    "b": {"method": "sampling/createMessage", "params": {"maxTokens": 1}},
}


class Posted:
    def __init__(self) -> None:
        self.sent: list[Json] = []

    async def __call__(self, payload: bytes) -> None:
        self.sent.append(json.loads(payload))

    @property
    def ids(self) -> list[str]:
        return [each["id"] for each in self.sent]


def begin(asking: ClientRequests, requests: Json, capabilities: Json = ALL) -> tuple[Posted, "asyncio.Task[Any]"]:
    posted = Posted()
    return posted, asyncio.create_task(asking.ask("s1", capabilities, requests, posted))


def answer(id: Any, **more: Any) -> Message:
    return Message("response", id, **more)


async def test_each_question_has_an_id_that_names_its_worker_and_is_never_used_again() -> None:
    asking = ClientRequests(MemoryBus("w7"), SEAL)
    posted, task = begin(asking, TWO)
    await until(lambda: len(posted.sent) == 2)
    again, other = begin(asking, TWO)
    await until(lambda: len(again.sent) == 2)
    assert len({*posted.ids, *again.ids}) == 4
    assert all(".w7." in id for id in posted.ids)
    task.cancel()
    other.cancel()


async def test_answers_come_back_by_their_keys_in_any_order() -> None:
    asking = ClientRequests(MemoryBus("w1"), SEAL)
    posted, task = begin(asking, TWO)
    await until(lambda: len(posted.sent) == 2)
    for id, result in reversed(list(zip(posted.ids, ({"roots": []}, {"model": "m"}), strict=True))):
        assert asking.taken("s1", answer(id, result=result))
    assert await task == {"a": {"roots": []}, "b": {"model": "m"}}
    assert asking._open == {}


async def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    asking = ClientRequests(MemoryBus("w1"), SEAL)
    posted, task = begin(asking, {"a": TWO["a"]})
    await until(lambda: posted.sent)
    (id,) = posted.ids
    assert not asking.taken("s2", answer(id, result={}))
    assert not asking.taken("s1", answer("gth.w1.999", result={}))
    assert not asking.taken("s1", answer(1, result={}))
    assert asking.taken("s1", answer(id, result={"first": 1}))
    assert not asking.taken("s1", answer(id, result={"second": 1}))
    assert await task == {"a": {"first": 1}}
    assert not asking.taken("s1", answer(id, result={}))


async def test_a_refusal_is_the_clients_own_error() -> None:
    asking = ClientRequests(MemoryBus("w1"), SEAL)
    posted, task = begin(asking, TWO)
    await until(lambda: len(posted.sent) == 2)
    asking.taken("s1", answer(posted.ids[0], error={"code": -1, "message": "x" * 5000}))
    with pytest.raises(ForeignError) as refused:
        await task
    assert (refused.value.code, len(refused.value.message)) == (-1, 1000)
    assert asking._open == {}


async def test_what_the_client_cannot_do_is_not_asked() -> None:
    posted, task = begin(ClientRequests(MemoryBus("w1"), SEAL), TWO, {"roots": {}})
    with pytest.raises(Fault, match="sampling") as refused:
        await task
    assert refused.value.kind is Kind.UNSUPPORTED
    assert posted.sent == []


async def test_a_client_that_never_answers_is_not_waited_for_without_end() -> None:
    clock, asking = Clock(), ClientRequests(MemoryBus("w1"), SEAL)
    posted, task = begin(asking, {"a": TWO["a"]})
    await until(lambda: posted.sent)
    await clock.forward(ANSWER_SECONDS + 1)
    with pytest.raises(Fault) as refused:
        await asyncio.wait_for(task, 5)
    assert refused.value.kind is Kind.TIMEOUT
    assert asking._open == {}


async def test_a_link_gets_the_name_that_this_era_wants() -> None:
    request = {"method": "elicitation/create", "params": {"mode": "url", "url": "https://x.test"}}
    posted, task = begin(ClientRequests(MemoryBus("w1"), SEAL), {"a": request}, {"elicitation": {"url": {}}})
    await until(lambda: posted.sent)
    assert posted.sent[0]["params"]["elicitationId"]
    assert "elicitationId" not in request["params"]
    task.cancel()


async def test_nothing_is_kept_when_the_question_cannot_be_sent() -> None:
    async def broken(payload: bytes) -> None:
        raise ConnectionResetError

    asking = ClientRequests(MemoryBus("w1"), SEAL)
    with pytest.raises(ConnectionResetError):
        await asking.ask("s1", ALL, TWO, broken)
    assert asking._open == {}


async def test_only_what_this_house_asked_of_a_session_is_anothers() -> None:
    here, there = ClientRequests(MemoryBus("w1"), SEAL), ClientRequests(MemoryBus("w2"), SEAL)
    posted, task = begin(there, TWO)
    await until(lambda: len(posted.sent) == 2)
    first, second = posted.ids
    assert here.is_anothers("s1", first)
    assert here.is_anothers("s1", second)
    assert not there.is_anothers("s1", first)
    assert not here.is_anothers("s2", first)  # asked of another session
    plain, _, sealed = first.rpartition(".v1.")
    assert not here.is_anothers("s1", f"{plain}9.v1.{sealed}")
    strangers = [f"gth.w2.{number}" for number in range(3)]
    for forged in (*strangers, "gth.w2.1.v1.AAAA", "gth.w2.1.", "gth.", "gth", first[:-1], first + "A", 7, None):
        assert not here.is_anothers("s1", forged)
    assert not ClientRequests(MemoryBus("w1"), TokenSeal([b"x" * 32])).is_anothers("s1", first)
    task.cancel()
