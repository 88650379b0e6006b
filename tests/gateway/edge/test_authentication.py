"""Credentials and their cache."""

import asyncio
import time
from contextlib import suppress

import pytest

from gateway.contract import Caller
from gateway.edge.authentication import BearerAuthenticator
from gateway.errors import Fault, Kind

ALICE = Caller("default", "alice")


class Keys:
    """A verifier that counts how often it is asked."""

    def __init__(self, **known: Caller) -> None:
        self.known = known
        self.asked = 0

    async def __call__(self, token: str) -> Caller | None:
        self.asked += 1
        return self.known.get(token)


async def refused(bearer: BearerAuthenticator, authorization: str | None, address: str = "192.0.2.1") -> Fault:
    with pytest.raises(Fault) as caught:
        await bearer.caller(authorization, address)
    return caught.value


async def test_a_credential_is_verified_once_and_then_known() -> None:
    keys = Keys(good=ALICE)
    bearer = BearerAuthenticator(keys)
    for header in ("Bearer good", "bearer good", "BEARER  good "):
        assert await bearer.caller(header) is ALICE
    assert keys.asked == 1


async def test_many_who_come_at_once_with_one_credential_have_it_verified_once() -> None:
    asked, answer = 0, asyncio.Event()

    async def verify(token: str) -> Caller | None:
        nonlocal asked
        asked += 1
        await answer.wait()
        return ALICE

    bearer = BearerAuthenticator(verify)
    waiting = [asyncio.create_task(bearer.caller("Bearer good")) for _ in range(50)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    answer.set()
    assert await asyncio.gather(*waiting[1:]) == [ALICE] * 49
    assert asked == 1


async def test_who_comes_after_forget_does_not_share_an_older_verdict() -> None:
    verdicts: list[asyncio.Future[Caller | None]] = []

    def verify(token: str) -> "asyncio.Future[Caller | None]":
        verdicts.append(asyncio.get_running_loop().create_future())
        return verdicts[-1]

    bearer = BearerAuthenticator(verify)
    before = asyncio.create_task(bearer.caller("Bearer good"))
    await asyncio.sleep(0)
    bearer.forget()
    after = asyncio.create_task(bearer.caller("Bearer good"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    verdicts[0].set_result(ALICE)
    verdicts[1].set_result(None)
    assert await before is ALICE
    with pytest.raises(Fault):
        await after


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic good", "good", "Bearergood"])
async def test_without_a_bearer_credential_it_is_missing(header: str | None) -> None:
    keys = Keys(good=ALICE)
    fault = await refused(BearerAuthenticator(keys), header)
    assert (fault.kind, fault.details, keys.asked) == (Kind.UNAUTHENTICATED, {"reason": "missing"}, 0)


@pytest.mark.parametrize("header", ["Bearer bad", "Bearer good, Bearer good", "Bearer g\xf6\xf6d"])
async def test_a_credential_nobody_knows_is_invalid(header: str) -> None:
    fault = await refused(BearerAuthenticator(Keys(good=ALICE)), header)
    assert (fault.kind, fault.details) == (Kind.UNAUTHENTICATED, {"reason": "invalid"})


async def test_a_failure_is_remembered_for_a_moment() -> None:
    keys = Keys()
    bearer = BearerAuthenticator(keys)
    for _ in range(5):
        await refused(bearer, "Bearer bad")
    assert keys.asked == 1


async def test_an_expired_credential_is_invalid() -> None:
    bearer = BearerAuthenticator(Keys(old=Caller("default", "alice", expires=time.time() - 1)))
    assert (await refused(bearer, "Bearer old")).details == {"reason": "invalid"}


async def test_a_credential_is_not_known_beyond_its_own_end() -> None:
    keys = Keys(short=Caller("default", "alice", expires=time.time() + 0.2))
    bearer = BearerAuthenticator(keys)
    await bearer.caller("Bearer short")
    async with asyncio.timeout(5):
        while keys.asked == 1:
            with suppress(Fault):
                await bearer.caller("Bearer short")
            await asyncio.sleep(0.02)
    assert time.time() >= (keys.known["short"].expires or 0) - 0.01
    assert (await refused(bearer, "Bearer short")).details == {"reason": "invalid"}


async def test_after_forget_a_revoked_credential_is_invalid_at_once() -> None:
    keys = Keys(good=ALICE)
    bearer = BearerAuthenticator(keys)
    await bearer.caller("Bearer good")
    del keys.known["good"]
    await bearer.caller("Bearer good")
    bearer.forget()
    await refused(bearer, "Bearer good")


async def test_after_forget_a_new_credential_is_good_at_once() -> None:
    keys = Keys()
    bearer = BearerAuthenticator(keys)
    await refused(bearer, "Bearer new")
    keys.known["new"] = ALICE
    bearer.forget()
    assert await bearer.caller("Bearer new") is ALICE


async def test_what_was_verified_before_forget_is_not_kept_after_it() -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()
    answers = [ALICE, None]

    async def verify(_token: str) -> Caller | None:
        answer = answers.pop(0)
        asked.set()
        await may_answer.wait()
        return answer

    bearer = BearerAuthenticator(verify)
    first = asyncio.create_task(bearer.caller("Bearer good"))
    await asked.wait()
    bearer.forget()
    may_answer.set()
    assert await first is ALICE
    await refused(bearer, "Bearer good")


async def test_only_the_latest_used_are_kept() -> None:
    keys = Keys(a=ALICE, b=ALICE, c=ALICE)
    bearer = BearerAuthenticator(keys, size=2)
    for token in ("a", "b", "a", "c", "a"):
        await bearer.caller(f"Bearer {token}")
    assert keys.asked == 3
    await bearer.caller("Bearer b")
    assert keys.asked == 4


async def test_threat_35_an_address_that_guesses_is_told_to_wait_and_its_neighbours_are_not() -> None:
    bearer = BearerAuthenticator(Keys(good=ALICE, other=ALICE))
    await bearer.caller("Bearer good", "192.0.2.1")
    faults = [await refused(bearer, f"Bearer guess{n}") for n in range(1000)]
    assert {fault.kind for fault in faults[:20]} == {Kind.UNAUTHENTICATED}
    assert {fault.kind for fault in faults[20:]} == {Kind.RATE_LIMITED}
    assert 0 < (faults[-1].retry_after or 0) <= 60
    assert await bearer.caller("Bearer good", "192.0.2.1") is ALICE
    assert await bearer.caller("Bearer other", "192.0.2.1") is ALICE
    assert (await refused(bearer, "Bearer guess", "192.0.2.2")).kind is Kind.UNAUTHENTICATED
    assert (await refused(bearer, None)).kind is Kind.UNAUTHENTICATED


async def test_threat_35_an_ipv6_guesser_cannot_hide_in_its_own_network() -> None:
    bearer = BearerAuthenticator(Keys(), failures=2)
    kinds = [(await refused(bearer, f"Bearer g{n}", f"2001:db8::{n:x}")).kind for n in range(4)]
    assert kinds == [Kind.UNAUTHENTICATED] * 2 + [Kind.RATE_LIMITED] * 2


async def test_a_window_ends() -> None:
    bearer = BearerAuthenticator(Keys(), failures=1, window=0.1)
    await refused(bearer, "Bearer a")
    fault = await refused(bearer, "Bearer b")
    async with asyncio.timeout(5):
        while fault.kind is Kind.RATE_LIMITED:
            fault = await refused(bearer, "Bearer c")
            await asyncio.sleep(0.01)
    assert fault.kind is Kind.UNAUTHENTICATED


async def test_threat_35_guesses_at_one_key_are_counted_wherever_they_come_from() -> None:
    bearer = BearerAuthenticator(Keys(**{"k1-right": ALICE}), failures=3, key_id=lambda token: token.partition("-")[0])
    kinds = [(await refused(bearer, f"Bearer k1-{n}", f"192.0.2.{n}")).kind for n in range(5)]
    assert kinds == [Kind.UNAUTHENTICATED] * 3 + [Kind.RATE_LIMITED] * 2
    assert (await refused(bearer, "Bearer k2-0", "192.0.2.9")).kind is Kind.UNAUTHENTICATED
    assert await bearer.caller("Bearer k1-right", "192.0.2.1") is ALICE


async def test_threat_7_within_the_leeway_a_token_is_good_and_verified_each_time() -> None:
    keys = Keys(late=Caller("default", "alice", expires=time.time() - 1, token="t"))
    bearer = BearerAuthenticator(keys, leeway=30)
    for _ in range(3):
        await bearer.caller("Bearer late")
    assert keys.asked == 3
