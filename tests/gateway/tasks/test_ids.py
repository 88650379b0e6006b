"""Task ids are sealed for their owner, visible ASCII and at most 512 bytes."""

import pytest

from gateway.protocol.sealed_tokens import TokenSeal
from gateway.tasks.ids import MAX_TASK_ID_CHARS, TaskIds, TaskReference

IDS = TaskIds(TokenSeal([b"k" * 32]))
REFERENCE = TaskReference("0" * 32, "far", "far.research", "1" * 16)


def test_owner_opens_an_id_to_what_it_was_minted_from() -> None:
    id = IDS.mint("acme/user:alice", REFERENCE)
    assert IDS.open("acme/user:alice", id) == REFERENCE
    assert all(" " < char < "\x7f" for char in id)


@pytest.mark.parametrize("principal", ["acme/user:bob", "other/user:alice", "acme/service:alice", ""])
def test_another_principal_cannot_open_an_id(principal: str) -> None:
    assert IDS.open(principal, IDS.mint("acme/user:alice", REFERENCE)) is None


def test_changed_id_is_invalid() -> None:
    id = IDS.mint("acme/user:alice", REFERENCE)
    assert IDS.open("acme/user:alice", id[:-1] + ("A" if id[-1] != "A" else "B")) is None
    assert IDS.open("acme/user:alice", "") is None
    assert IDS.open("acme/user:alice", "é" * 100) is None
    assert IDS.open("acme/user:alice", id * 20) is None


def test_session_id_or_state_is_not_a_task_id() -> None:
    seal = TokenSeal([b"k" * 32])
    assert IDS.open("acme/user:alice", seal.seal("session", b"[]", b"acme/user:alice")) is None


def test_id_of_a_tool_with_a_long_name_leaves_the_name_out() -> None:
    id = IDS.mint("acme/user:alice", REFERENCE._replace(tool="t" * 2000))
    assert len(id) <= MAX_TASK_ID_CHARS
    assert IDS.open("acme/user:alice", id) == REFERENCE._replace(tool="")
