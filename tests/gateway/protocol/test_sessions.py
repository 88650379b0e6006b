"""Sessions whose id is their state."""

import time

import pytest

from gateway.contract import Caller, Json
from gateway.protocol.sealed_tokens import SESSION_SECONDS, SessionToken, TokenSeal, mint_session
from gateway.protocol.sessions import _KEPT, McpSessions
from tests.gateway.fakes import ALICE, BOB, FakeRows

SEAL = TokenSeal([b"k" * 32])
CAPABILITIES: Json = {"elicitation": {}}


def sessions() -> McpSessions:
    return McpSessions(SEAL, FakeRows())


def test_a_session_is_opened_by_any_replica_that_has_the_key() -> None:
    id = sessions().mint(ALICE, "2025-06-18", CAPABILITIES, {"name": "x"})
    found = sessions().find(ALICE, id)
    assert found is not None
    assert (found.client.version, found.client.capabilities, found.client.info) == (
        "2025-06-18",
        CAPABILITIES,
        {"name": "x"},
    )
    assert found.client.session == found.digest
    assert id not in found.digest
    assert McpSessions(TokenSeal([b"j" * 32]), FakeRows()).find(ALICE, id) is None


def test_two_sessions_of_one_client_have_nothing_in_common() -> None:
    house = sessions()
    ids = [house.mint(ALICE, "2025-06-18", CAPABILITIES, None) for _ in range(2)]
    first, second = [house.find(ALICE, id) for id in ids]
    assert first is not None
    assert second is not None
    assert first.digest != second.digest


@pytest.mark.parametrize(
    "caller", [BOB, Caller("other", "alice"), Caller("acme", "alice", kind="service"), Caller("acme", "Alice")]
)
def test_only_the_principal_it_was_made_for_finds_it(caller: Caller) -> None:
    house = sessions()
    id = house.mint(ALICE, "2025-06-18", CAPABILITIES, None)
    assert house.find(caller, id) is None
    assert house.find(ALICE, id) is not None
    assert house.find(caller, id) is None


def test_another_credential_of_the_same_principal_finds_it() -> None:
    house = sessions()
    id = house.mint(ALICE, "2025-06-18", CAPABILITIES, None)
    assert house.find(Caller("acme", "alice", credential="other"), id) is not None


async def test_an_ended_session_is_found_no_more() -> None:
    house = sessions()
    found = house.find(ALICE, house_id := house.mint(ALICE, "2025-06-18", CAPABILITIES, None))
    assert found is not None
    await house.end(found)
    assert house.find(ALICE, house_id) is None


def test_a_session_ends_by_itself_after_thirty_days() -> None:
    def minted(age: float) -> str:
        issued = int(time.time() - age)
        return mint_session(SEAL, SessionToken("acme", ALICE.principal, "2025-06-18", {}, None, issued, "n"))

    assert sessions().find(ALICE, minted(SESSION_SECONDS - 60)) is not None
    assert sessions().find(ALICE, minted(SESSION_SECONDS + 1)) is None


def test_no_number_of_sessions_fills_the_memory() -> None:
    house = sessions()
    first = house.mint(ALICE, "2025-06-18", {}, None)
    for _ in range(_KEPT + 10):
        house.find(ALICE, house.mint(ALICE, "2025-06-18", {}, None))
    assert len(house._opened) == _KEPT
    for bad in range(50):
        house.find(ALICE, f"v1.{bad}")
    assert len(house._opened) == _KEPT
    assert house.find(ALICE, first) is not None
