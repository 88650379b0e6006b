"""Approvals in both databases: decided and used once by any process, bounded, pruned and erased."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gateway.state.approval_deliveries import ApprovalDeliveries
from gateway.state.approval_rows import ApprovalRow, ApprovalRows, DecisionRow, GrantRow, erase_principal
from gateway.state.database import Database

ROW = ApprovalRow(
    tenant="acme",
    id="one",
    principal="acme/user:alice",
    tool="danger.drop",
    effect=3,
    arguments='{"name":"x"}',
    arguments_digest="digest",
    definition_digest="definition",
    policy_version="v1",
    policies="approval.platform",
    reason="why",
    requirement='[["platform", 1]]',
    correlation_id="c1",
    session=None,
    state="waiting",
    created_at=1000.0,
    expires_at=2000.0,
)
DELIVERY: dict[str, Any] = {
    "id": "d1", "tenant": "acme", "approval_id": "one", "channel": "webhook:ops", "created_at": 1000.0,
}  # fmt: skip


def decision(approver: str, made: str = "approve", **more: Any) -> DecisionRow:
    return DecisionRow(
        **{
            "tenant": "acme",
            "approval_id": "one",
            "approver": f"acme/user:{approver}",
            "approver_groups": '["platform"]',
            "decision": made,
            "duration": "once",
            "reason": "",
            "at": 1100.0,
            **more,
        }
    )


def always(_: object) -> bool:
    return True


def no_grant(_: object) -> None:
    return None


async def test_an_equal_waiting_call_is_found_instead_of_added(database: Database, second_database: Database) -> None:
    one, two = ApprovalRows(database), ApprovalRows(second_database)
    rows = [replace(ROW, id=str(number)) for number in range(6)]
    added = await asyncio.gather(*((one, two)[at % 2].add(row, 10, 10, []) for at, row in enumerate(rows)))
    assert len({row.id for row in added if row is not None}) == 1
    other = await one.add(replace(ROW, id="other", policy_version="v2"), 10, 10, [])
    assert other is not None
    assert other.id == "other"


async def test_waiting_calls_are_bounded_by_principal_and_tenant(database: Database) -> None:
    rows = ApprovalRows(database)
    for number in range(2):
        assert await rows.add(replace(ROW, id=str(number), arguments_digest=str(number)), 2, 3, [])
    assert await rows.add(replace(ROW, id="x", arguments_digest="x"), 2, 3, []) is None
    assert await rows.add(replace(ROW, id="y", principal="acme/user:bob"), 2, 3, [])
    assert await rows.add(replace(ROW, id="z", principal="acme/user:carol"), 2, 3, []) is None
    late = replace(ROW, id="late", arguments_digest="late", created_at=2500.0, expires_at=3000.0)
    assert await rows.add(late, 2, 3, [])  # expired ones do not count


async def test_an_approval_is_used_once_by_any_process(database: Database, second_database: Database) -> None:
    one, two = ApprovalRows(database), ApprovalRows(second_database)
    await one.add(ROW, 10, 10, [])
    assert not await one.use(ROW, 1100.0)  # not approved yet
    assert await one.decide(decision("bob"), always, no_grant) == "approved"
    used = await asyncio.gather(*((one, two)[at % 2].use(ROW, 1200.0) for at in range(8)))
    assert used.count(True) == 1


async def test_an_expired_approval_is_neither_used_nor_decided(database: Database) -> None:
    rows = ApprovalRows(database)
    await rows.add(ROW, 10, 10, [])
    assert await rows.decide(decision("bob", at=2000.0), always, no_grant) is None
    await rows.decide(decision("bob"), always, no_grant)
    assert not await rows.use(ROW, 2000.0)


async def test_the_first_denial_ends_the_wait(database: Database) -> None:
    rows = ApprovalRows(database)
    await rows.add(ROW, 10, 10, [])
    assert await rows.decide(decision("bob"), lambda made: len(made) >= 2, no_grant) == "waiting"
    assert await rows.decide(decision("carol", "deny"), always, no_grant) == "denied"
    assert await rows.decide(decision("dora"), always, no_grant) is None
    assert [each.approver for each in await rows.decisions("acme", "one")] == ["acme/user:bob", "acme/user:carol"]


async def test_a_grant_is_added_with_the_decision_and_ends(database: Database) -> None:
    rows = ApprovalRows(database)
    grant = GrantRow(
        tenant="acme", id="g", principal=ROW.principal, tool=ROW.tool, definition_digest="definition",
        policy_version="v1", session=None, approver="acme/user:bob", created_at=1100.0, ends_at=1500.0,
    )  # fmt: skip
    await rows.add(ROW, 10, 10, [])
    await rows.decide(decision("bob"), always, lambda _: grant)
    assert await rows.find_grants("acme", ROW.principal, ROW.tool, 1400.0) == [grant]
    assert await rows.find_grants("acme", ROW.principal, ROW.tool, 1500.0) == []
    assert await rows.find_grants("other", ROW.principal, ROW.tool, 1400.0) == []
    assert not await rows.add_grant(replace(grant, id="h"), 1)
    assert await rows.revoke_grant("acme", "g", "acme/user:eve", 1300.0)
    assert not await rows.revoke_grant("acme", "g", "acme/user:eve", 1300.0)
    assert await rows.list_grants("acme", 1400.0) == []


async def test_erasing_a_principal_leaves_no_row_of_it(database: Database) -> None:
    rows = ApprovalRows(database)
    await rows.add(ROW, 10, 10, [DELIVERY])
    await rows.add(replace(ROW, id="bobs", principal="acme/user:bob"), 10, 10, [])
    await rows.decide(decision("alice", approval_id="bobs"), always, no_grant)
    async with database.transaction() as connection:
        await erase_principal(connection, "acme", "acme/user:alice")
    assert await rows.get("acme", "one") is None
    left = await rows.get("acme", "bobs")
    assert left is not None
    assert left.state == "void"
    assert await rows.decisions("acme", "bobs") == []
    assert await ApprovalDeliveries(database).claim(5000.0) == []


@pytest.mark.parametrize("state", ["waiting", "approved", "denied", "used"])
async def test_arguments_are_erased_only_after_the_call_ended(database: Database, state: str) -> None:
    rows = ApprovalRows(database)
    used_at = 1200.0 if state == "used" else None
    await rows.add(replace(ROW, state=state, decided_at=1100.0, used_at=used_at), 10, 10, [])

    async def has_arguments() -> bool:
        row = await rows.get("acme", "one")
        return row is not None and row.arguments is not None

    await rows.prune(1050.0, 0.0)
    assert await has_arguments()
    await rows.prune(1300.0, 0.0)
    assert await has_arguments() is (state in ("waiting", "approved"))
    await rows.prune(2001.0, 0.0)
    assert not await has_arguments()
    assert await rows.prune(2001.0, 2001.0) == 1


async def test_a_notification_is_claimed_by_one_process_until_the_claim_ends(
    database: Database, second_database: Database
) -> None:
    await ApprovalRows(database).add(ROW, 10, 10, [DELIVERY])
    one, two = ApprovalDeliveries(database), ApprovalDeliveries(second_database)
    claimed = await asyncio.gather(one.claim(1000.0), two.claim(1000.0))
    assert sorted(map(len, claimed)) == [0, 1]
    assert await two.claim(1059.0) == []
    (again,) = await two.claim(1061.0)  # the first process died
    assert again.attempts == 1
    await two.fail(again.id, "refused", None)
    (letter,) = await one.dead_letters("acme")
    assert (letter.attempts, letter.last_error) == (2, "refused")
    assert await one.dead_letters("other") == []
    assert not await one.retry("other", letter.id, 1100.0)
    assert await one.retry("acme", letter.id, 1100.0)
    assert len(await one.claim(1100.0)) == 1
