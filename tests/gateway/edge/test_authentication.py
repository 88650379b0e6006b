"""Bearer authentication: verification, caching, and rate limits of failed attempts."""

import asyncio
import time
from contextlib import suppress

import pytest

from gateway.contract import Caller
from gateway.edge.authentication import BearerAuthenticator
from gateway.errors import Fault, Kind

ALICE = Caller("default", "alice")


class CountingVerifier:
    """A verifier that counts its calls."""

    def __init__(self, **known: Caller) -> None:
        self.known = known
        self.verifications = 0

    async def __call__(self, token: str) -> Caller | None:
        self.verifications += 1
        return self.known.get(token)


async def authentication_fault(
    bearer: BearerAuthenticator, authorization: str | None, address: str = "192.0.2.1"
) -> Fault:
    with pytest.raises(Fault) as caught:
        await bearer.authenticate({} if authorization is None else {"authorization": authorization}, address)
    return caught.value


async def test_credential_is_verified_once_and_then_cached() -> None:
    keys = CountingVerifier(good=ALICE)
    bearer = BearerAuthenticator(keys)
    for header in ("Bearer good", "bearer good", "BEARER  good "):
        assert await bearer.authenticate({"authorization": header}) is ALICE
    assert keys.verifications == 1


async def test_concurrent_requests_with_one_credential_verify_it_once() -> None:
    verifications, answer = 0, asyncio.Event()

    async def verify(token: str) -> Caller | None:
        nonlocal verifications
        verifications += 1
        await answer.wait()
        return ALICE

    bearer = BearerAuthenticator(verify)
    requests = [asyncio.create_task(bearer.authenticate({"authorization": "Bearer good"})) for _ in range(50)]
    await asyncio.sleep(0)
    requests[0].cancel()
    answer.set()
    assert await asyncio.gather(*requests[1:]) == [ALICE] * 49
    assert verifications == 1


async def test_request_after_clear_does_not_share_an_earlier_verification() -> None:
    verdicts: list[asyncio.Future[Caller | None]] = []

    def verify(token: str) -> "asyncio.Future[Caller | None]":
        verdicts.append(asyncio.get_running_loop().create_future())
        return verdicts[-1]

    bearer = BearerAuthenticator(verify)
    before = asyncio.create_task(bearer.authenticate({"authorization": "Bearer good"}))
    await asyncio.sleep(0)
    bearer.clear()
    after = asyncio.create_task(bearer.authenticate({"authorization": "Bearer good"}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    verdicts[0].set_result(ALICE)
    verdicts[1].set_result(None)
    assert await before is ALICE
    with pytest.raises(Fault):
        await after


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic good", "good", "Bearergood"])
async def test_request_without_bearer_credential_has_reason_missing(header: str | None) -> None:
    keys = CountingVerifier(good=ALICE)
    fault = await authentication_fault(BearerAuthenticator(keys), header)
    assert (fault.kind, fault.details, keys.verifications) == (Kind.UNAUTHENTICATED, {"reason": "missing"}, 0)


@pytest.mark.parametrize("header", ["Bearer bad", "Bearer good, Bearer good", "Bearer g\xf6\xf6d"])
async def test_unknown_credential_has_reason_invalid(header: str) -> None:
    fault = await authentication_fault(BearerAuthenticator(CountingVerifier(good=ALICE)), header)
    assert (fault.kind, fault.details) == (Kind.UNAUTHENTICATED, {"reason": "invalid"})


async def test_failed_verification_is_cached_briefly() -> None:
    keys = CountingVerifier()
    bearer = BearerAuthenticator(keys)
    for _ in range(5):
        await authentication_fault(bearer, "Bearer bad")
    assert keys.verifications == 1


async def test_expired_credential_has_reason_invalid() -> None:
    bearer = BearerAuthenticator(CountingVerifier(old=Caller("default", "alice", expires=time.time() - 1)))
    assert (await authentication_fault(bearer, "Bearer old")).details == {"reason": "invalid"}


async def test_credential_is_not_cached_beyond_its_expiry() -> None:
    expires, now = 1_000.0, 999.9
    keys = CountingVerifier(short=Caller("default", "alice", expires=expires))
    bearer = BearerAuthenticator(keys, clock=lambda: now)
    await bearer.authenticate({"authorization": "Bearer short"})
    now = expires
    # The cache entry has the remaining 0.1 s to live, far less than its usual time.
    async with asyncio.timeout(5):
        while keys.verifications == 1:
            with suppress(Fault):
                await bearer.authenticate({"authorization": "Bearer short"})
            await asyncio.sleep(0.02)
    assert (await authentication_fault(bearer, "Bearer short")).details == {"reason": "invalid"}


async def test_revoked_credential_is_rejected_immediately_after_clear() -> None:
    keys = CountingVerifier(good=ALICE)
    bearer = BearerAuthenticator(keys)
    await bearer.authenticate({"authorization": "Bearer good"})
    del keys.known["good"]
    await bearer.authenticate({"authorization": "Bearer good"})
    bearer.clear()
    await authentication_fault(bearer, "Bearer good")


async def test_new_credential_is_accepted_immediately_after_clear() -> None:
    keys = CountingVerifier()
    bearer = BearerAuthenticator(keys)
    await authentication_fault(bearer, "Bearer new")
    keys.known["new"] = ALICE
    bearer.clear()
    assert await bearer.authenticate({"authorization": "Bearer new"}) is ALICE


async def test_verification_started_before_clear_is_not_cached() -> None:
    verifications, may_answer = asyncio.Event(), asyncio.Event()
    answers = [ALICE, None]

    async def verify(_token: str) -> Caller | None:
        answer = answers.pop(0)
        verifications.set()
        await may_answer.wait()
        return answer

    bearer = BearerAuthenticator(verify)
    first = asyncio.create_task(bearer.authenticate({"authorization": "Bearer good"}))
    await verifications.wait()
    bearer.clear()
    may_answer.set()
    assert await first is ALICE
    await authentication_fault(bearer, "Bearer good")


async def test_least_recently_used_credential_is_evicted() -> None:
    keys = CountingVerifier(a=ALICE, b=ALICE, c=ALICE)
    bearer = BearerAuthenticator(keys, size=2)
    for token in ("a", "b", "a", "c", "a"):
        await bearer.authenticate({"authorization": f"Bearer {token}"})
    assert keys.verifications == 3
    await bearer.authenticate({"authorization": "Bearer b"})
    assert keys.verifications == 4


async def test_threat_35_failed_attempts_of_one_address_are_rate_limited_without_affecting_others() -> None:
    bearer = BearerAuthenticator(CountingVerifier(good=ALICE, other=ALICE))
    await bearer.authenticate({"authorization": "Bearer good"}, "192.0.2.1")
    faults = [await authentication_fault(bearer, f"Bearer guess{n}") for n in range(1000)]
    assert {fault.kind for fault in faults[:20]} == {Kind.UNAUTHENTICATED}
    assert {fault.kind for fault in faults[20:]} == {Kind.RATE_LIMITED}
    assert 0 < (faults[-1].retry_after or 0) <= 60
    assert await bearer.authenticate({"authorization": "Bearer good"}, "192.0.2.1") is ALICE
    assert await bearer.authenticate({"authorization": "Bearer other"}, "192.0.2.1") is ALICE
    assert (await authentication_fault(bearer, "Bearer guess", "192.0.2.2")).kind is Kind.UNAUTHENTICATED
    assert (await authentication_fault(bearer, None)).kind is Kind.UNAUTHENTICATED


async def test_threat_35_ipv6_addresses_of_one_network_share_a_counter() -> None:
    bearer = BearerAuthenticator(CountingVerifier(), failures=2)
    kinds = [(await authentication_fault(bearer, f"Bearer g{n}", f"2001:db8::{n:x}")).kind for n in range(4)]
    assert kinds == [Kind.UNAUTHENTICATED] * 2 + [Kind.RATE_LIMITED] * 2


async def test_rate_limit_ends_with_its_window() -> None:
    bearer = BearerAuthenticator(CountingVerifier(), failures=1, window=0.1)
    await authentication_fault(bearer, "Bearer a")
    fault = await authentication_fault(bearer, "Bearer b")
    async with asyncio.timeout(5):
        while fault.kind is Kind.RATE_LIMITED:
            fault = await authentication_fault(bearer, "Bearer c")
            await asyncio.sleep(0.01)
    assert fault.kind is Kind.UNAUTHENTICATED


async def test_threat_35_failed_attempts_for_one_key_are_counted_across_addresses() -> None:
    bearer = BearerAuthenticator(
        CountingVerifier(**{"k1-right": ALICE}), failures=3, key_id=lambda token: token.partition("-")[0]
    )
    kinds = [(await authentication_fault(bearer, f"Bearer k1-{n}", f"192.0.2.{n}")).kind for n in range(5)]
    assert kinds == [Kind.UNAUTHENTICATED] * 3 + [Kind.RATE_LIMITED] * 2
    assert (await authentication_fault(bearer, "Bearer k2-0", "192.0.2.9")).kind is Kind.UNAUTHENTICATED
    assert await bearer.authenticate({"authorization": "Bearer k1-right"}, "192.0.2.1") is ALICE


async def test_threat_7_token_within_the_leeway_is_accepted_and_verified_each_time() -> None:
    keys = CountingVerifier(late=Caller("default", "alice", expires=time.time() - 1, token="t"))
    bearer = BearerAuthenticator(keys, leeway=30)
    for _ in range(3):
        await bearer.authenticate({"authorization": "Bearer late"})
    assert keys.verifications == 3
