"""Sessions whose id contains their encrypted state."""

import time

import pytest

from gateway.contract import Caller, Json
from gateway.protocol.sealed_tokens import SESSION_SECONDS, SessionToken, TokenSeal, mint_session
from gateway.protocol.sessions import _CACHE_SIZE, McpSessions
from tests.gateway.fakes import ALICE, BOB, FakeSessionStore

SEAL = TokenSeal([b"k" * 32])
CAPABILITIES: Json = {"elicitation": {}}


def make_sessions() -> McpSessions:
    return McpSessions(SEAL, FakeSessionStore())


def test_a_session_is_opened_by_any_replica_that_has_the_key() -> None:
    id = make_sessions().mint(ALICE, "2025-06-18", CAPABILITIES, {"name": "x"})
    found = make_sessions().find(ALICE, id)
    assert found is not None
    assert (found.client.version, found.client.capabilities, found.client.info) == (
        "2025-06-18",
        CAPABILITIES,
        {"name": "x"},
    )
    assert found.client.session == found.digest
    assert id not in found.digest
    assert McpSessions(TokenSeal([b"j" * 32]), FakeSessionStore()).find(ALICE, id) is None


def test_two_sessions_of_one_client_have_different_digests() -> None:
    store = make_sessions()
    ids = [store.mint(ALICE, "2025-06-18", CAPABILITIES, None) for _ in range(2)]
    first, second = [store.find(ALICE, id) for id in ids]
    assert first is not None
    assert second is not None
    assert first.digest != second.digest


@pytest.mark.parametrize(
    "caller", [BOB, Caller("other", "alice"), Caller("acme", "alice", kind="service"), Caller("acme", "Alice")]
)
def test_session_is_found_only_by_its_principal(caller: Caller) -> None:
    store = make_sessions()
    id = store.mint(ALICE, "2025-06-18", CAPABILITIES, None)
    assert store.find(caller, id) is None
    assert store.find(ALICE, id) is not None
    assert store.find(caller, id) is None


def test_session_is_found_with_another_credential_of_its_principal() -> None:
    store = make_sessions()
    id = store.mint(ALICE, "2025-06-18", CAPABILITIES, None)
    assert store.find(Caller("acme", "alice", credential="other"), id) is not None


async def test_ended_session_is_not_found() -> None:
    store = make_sessions()
    found = store.find(ALICE, id := store.mint(ALICE, "2025-06-18", CAPABILITIES, None))
    assert found is not None
    await store.end(found)
    assert store.find(ALICE, id) is None


def test_session_older_than_thirty_days_is_not_found() -> None:
    def minted(age: float) -> str:
        issued = int(time.time() - age)
        return mint_session(SEAL, SessionToken("acme", ALICE.principal, "2025-06-18", {}, None, issued, "n"))

    assert make_sessions().find(ALICE, minted(SESSION_SECONDS - 60)) is not None
    assert make_sessions().find(ALICE, minted(SESSION_SECONDS + 1)) is None


def test_session_cache_is_bounded() -> None:
    store = make_sessions()
    first = store.mint(ALICE, "2025-06-18", {}, None)
    for _ in range(_CACHE_SIZE + 10):
        store.find(ALICE, store.mint(ALICE, "2025-06-18", {}, None))
    assert len(store._cache) == _CACHE_SIZE
    for bad in range(50):
        store.find(ALICE, f"v1.{bad}")
    assert len(store._cache) == _CACHE_SIZE
    assert store.find(ALICE, first) is not None
