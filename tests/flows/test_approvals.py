"""A call that a policy holds runs exactly as another person approved it, once and in time."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import types
from sqlalchemy import text

from gateway.contract.caller import ADMIN, APPROVE, DEFAULT_SCOPES
from gateway.settings import ModuleBackend
from tests.conftest import HANDSHAKE
from tests.flows.approval_site import ApprovalSite, approval_site

Json = dict[str, Any]


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApprovalSite]:
    monkeypatch.chdir(tmp_path)
    async with approval_site(tmp_path, tenants={"default": {}, "other": {}}) as running:
        yield running


async def held(site: ApprovalSite, name: str = "x", **more: Any) -> str:
    """Call the tool and return the id of the approval it waits for."""
    error = await site.drop(name, **more)
    assert error["kind"] == "approval_required", error
    return error["details"]["approval_id"]


async def approved(site: ApprovalSite, name: str = "x") -> str:
    id = await held(site, name)
    assert (await site.decide(site.bob, id)).status_code == 200
    return id


# ---- the caller ----


async def test_held_call_names_the_approval_its_link_and_its_approvers(site: ApprovalSite) -> None:
    error = await site.drop()
    details = error["details"]
    expected = "Dropping is irreversible. It waits for approval by a member of the group platform"
    assert error["message"].startswith(expected)
    assert details["url"] == f"{site.gateway.base}/console/approvals/{details['approval_id']}"
    assert details["approvers"] == [{"group": "platform", "count": 1}]
    assert details["url"] in error["suggested_fix"]
    assert 3590 < details["expires_at"] - time.time() <= 3600
    assert site.dropped() == []


async def test_the_same_call_waits_for_one_approval_and_runs_once_it_is_approved(site: ApprovalSite) -> None:
    id = await held(site)
    assert await held(site) == id
    answer = await site.decide(site.bob, id, reason="checked")
    assert answer.json()["status"] == "approved"
    assert await site.drop() == {"ok": "dropped x"}
    assert site.dropped() == ["x"]


async def test_call_in_the_handshake_era_is_held_and_runs_once_approved(site: ApprovalSite) -> None:
    async with site.gateway.client(HANDSHAKE) as client:
        first = await client.call_tool("danger_drop", {"name": "old"})
        assert first.is_error
        assert first.meta is not None
        id = first.meta["gatehouse/error"]["details"]["approval_id"]
        await site.decide(site.bob, id)
        assert (await client.call_tool("danger_drop", {"name": "old"})).is_error is False
    assert site.dropped() == ["old"]


async def test_neither_meta_approved_nor_elicitation_satisfies_a_group(site: ApprovalSite) -> None:
    await held(site, approved=True)

    async def accept(*_: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"approve": True})

    async with site.gateway.client(elicitation_callback=accept) as client:
        assert (await client.call_tool("danger_drop", {"name": "x"})).is_error
    assert site.dropped() == []


# ---- what is approved is exactly what runs ----


async def test_threat_62_changed_arguments_are_not_approved(site: ApprovalSite) -> None:
    first = await approved(site, "x")
    assert await held(site, "y") != first
    assert site.dropped() == []


async def test_threat_62_another_caller_cannot_use_an_approval(site: ApprovalSite) -> None:
    first = await approved(site)
    mallory = site.gateway.as_(await site.gateway.new_key(subject="mallory"))
    assert await held(site, gateway=mallory) != first
    service = site.gateway.as_(await site.gateway.new_key(subject="alice", kind="service"))
    assert await held(site, gateway=service) != first
    assert site.dropped() == []


async def test_threat_62_an_approval_is_void_once_the_tool_changes(site: ApprovalSite) -> None:
    first = await approved(site)
    changed = {"danger": ModuleBackend(module="tests.flows.fixtures.danger_changed")}
    await site.gateway.app.apply(site.gateway.app.settings.model_copy(update={"backends": changed}))
    error = await site.drop()
    assert error["kind"] == "approval_required"
    assert "The tool has changed since an equal call was approved." in error["message"]
    assert error["details"]["approval_id"] != first
    assert site.dropped() == []


async def test_threat_62_an_approval_is_void_once_the_policies_change(site: ApprovalSite) -> None:
    first = await approved(site)
    site.edit_policy('@approvers("2")')
    await site.gateway.app.policies.refresh()
    error = await site.drop()
    assert error["kind"] == "approval_required"
    assert "The policies have changed since an equal call was approved." in error["message"]
    assert error["details"]["approval_id"] != first
    assert site.dropped() == []


async def test_threat_62_an_approval_is_used_once_also_by_concurrent_calls(site: ApprovalSite) -> None:
    await approved(site)
    answers = await asyncio.gather(*(site.drop() for _ in range(8)))
    assert [each for each in answers if "ok" in each] == [{"ok": "dropped x"}]
    assert {each["kind"] for each in answers if "kind" in each} == {"approval_required"}
    assert site.dropped() == ["x"]


async def test_threat_62_an_expired_approval_is_refused(site: ApprovalSite) -> None:
    first = await approved(site)
    await expire(site, first)
    assert await held(site) != first
    assert site.dropped() == []
    late = await held(site, "z")
    await expire(site, late)
    answer = await site.decide(site.bob, late)
    assert (answer.status_code, answer.json()["error"]["message"]) == (403, "This call no longer waits; it is expired.")


async def expire(site: ApprovalSite, id: str) -> None:
    async with site.gateway.app.database.transaction() as connection:
        await connection.execute(text("UPDATE approvals SET expires_at = :at WHERE id = :id"), {"at": 1.0, "id": id})


# ---- who decides ----


async def test_threat_64_the_caller_cannot_approve_with_another_key(site: ApprovalSite) -> None:
    own = await site.gateway.new_key(subject="alice", scopes=(*DEFAULT_SCOPES, APPROVE), groups=("platform",))
    answer = await site.decide(own, await held(site))
    assert answer.status_code == 403
    assert answer.json()["error"]["message"].startswith("You cannot decide on your own call.")


@pytest.mark.parametrize(
    ("key", "status"),
    [
        ({"subject": "eve", "groups": ("other",), "scopes": (*DEFAULT_SCOPES, APPROVE)}, 404),
        ({"subject": "eve", "groups": ("platform",)}, 403),
        ({"subject": "ops", "groups": (), "scopes": (*DEFAULT_SCOPES, APPROVE, ADMIN)}, 403),
        ({"subject": "bot", "kind": "service", "groups": ("platform",), "scopes": (*DEFAULT_SCOPES, APPROVE)}, 403),
        ({"tenant": "other", "subject": "bob", "groups": ("platform",), "scopes": (*DEFAULT_SCOPES, APPROVE)}, 404),
    ],
    ids=["another group", "without the scope", "an operator outside the group", "a service", "another tenant"],
)
async def test_threat_64_others_cannot_decide(site: ApprovalSite, key: Json, status: int) -> None:
    id = await held(site)
    for decision in ("approve", "deny"):
        answer = await site.decide(await site.gateway.new_key(**key), id, decision, reason="no")
        assert answer.status_code == status, answer.text
    assert await held(site) == id


async def test_two_approvers_are_needed_and_one_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with approval_site(tmp_path, '@approvers("2") @within("10m")') as site:
        id = await held(site)
        assert (await site.decide(site.bob, id)).json()["status"] == "waiting"
        assert (await site.decide(site.bob, id)).json()["error"]["message"] == "You have already decided on this call."
        assert await held(site) == id
        assert (await site.decide(site.carol, id)).json()["status"] == "approved"
        assert "ok" in await site.drop()


async def test_a_denied_call_is_refused_with_the_reason(site: ApprovalSite) -> None:
    id = await held(site)
    assert (await site.decide(site.bob, id, "deny")).status_code == 400  # without a reason
    assert (await site.decide(site.bob, id, "deny", reason="not on a Friday")).json()["status"] == "denied"
    error = await site.drop()
    assert (error["kind"], error["message"]) == ("denied", "An approver denied this call. Reason: not on a Friday")
    assert (await site.decide(site.carol, id)).status_code == 403
    assert site.dropped() == []


# ---- what approvers see ----


async def test_threat_63_an_approver_who_cannot_see_all_arguments_cannot_approve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tenants = {"default": {"approvals": {"redact": ["NAME"], "visible_to": ["security"]}}}
    async with approval_site(tmp_path, tenants=tenants) as site:
        id = await held(site, "secret-object")
        shown = (await site.api(site.bob, "GET", f"/{id}")).json()
        assert "secret-object" not in str(shown)
        assert (shown["arguments_complete"], shown["can_approve"]) == (False, False)
        refused = await site.decide(site.bob, id)
        assert refused.json()["error"]["message"] == (
            "You cannot see all arguments, so you cannot approve. Ask a member of the group security."
        )
        assert "secret-object" in (await site.api(site.carol, "GET", f"/{id}")).json()["arguments"]
        assert (await site.decide(site.carol, id)).json()["status"] == "approved"


async def test_threat_63_arguments_that_are_too_large_to_review_are_not_held(site: ApprovalSite) -> None:
    error = await site.drop("x" * 70_000)
    assert error["kind"] == "too_large"
    assert (await site.api(site.bob, "GET", "")).json() == {"approvals": []}


async def test_threat_63_hidden_characters_in_arguments_are_shown_as_escapes(site: ApprovalSite) -> None:
    id = await held(site, "a\u202eb\u200bc")
    assert '"a\\u202eb\\u200bc"' in (await site.api(site.bob, "GET", f"/{id}")).json()["arguments"]


async def test_threat_63_mcp_tools_of_approvers_list_and_show_but_never_decide(site: ApprovalSite) -> None:
    id = await held(site)
    bob = site.gateway.as_(site.bob)
    listed = [tool["name"] for tool in (await bob.post("tools/list")).json()["result"]["tools"]]
    assert [name for name in listed if name.startswith("approvals")] == ["approvals_list", "approvals_show"]
    found = (await bob.call("approvals_list"))["result"]["structuredContent"]["approvals"]
    assert [each["id"] for each in found] == [id]
    shown = (await bob.call("approvals_show", {"id": id}))["result"]["structuredContent"]
    assert shown["url"].endswith(f"/console/approvals/{id}")
    # Others neither see the tools nor can call them.
    assert "approvals_list" not in (await site.gateway.post("tools/list")).text
    assert (await site.gateway.call("approvals_list"))["error"]["message"] == "Unknown tool: approvals_list"


# ---- bounds, records, erasure ----


async def test_a_caller_can_keep_only_so_many_calls_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    limits = {"max_waiting_per_principal": 2, "max_waiting_per_tenant": 3}
    async with approval_site(tmp_path, approvals=limits) as site:
        await held(site, "a")
        await held(site, "b")
        assert (await site.drop("c"))["kind"] == "rate_limited"
        other = site.gateway.as_(await site.gateway.new_key(subject="mallory"))
        await held(site, "a", gateway=other)
        assert (await site.drop("b", gateway=other))["kind"] == "rate_limited"


async def test_asked_seen_decided_and_run_are_audited(site: ApprovalSite) -> None:
    id = await held(site)
    await site.api(site.bob, "GET", f"/{id}")
    await site.decide(site.bob, id, reason="fine")
    await site.drop()
    about = [(method, principal) for method, principal, _ in await site.audited() if method.startswith("approvals/")]
    assert about == [
        ("approvals/asked", "default/user:alice"),
        ("approvals/seen", "default/user:bob"),
        ("approvals/approved", "default/user:bob"),
        ("approvals/run", "default/user:alice"),
    ]


async def test_removing_a_user_erases_their_approvals_and_voids_those_they_gave(site: ApprovalSite) -> None:
    users = site.gateway.app.identity.users
    await users.put("default", "alice", None, DEFAULT_SCOPES)
    await users.put("default", "bob", None, DEFAULT_SCOPES)
    first = await approved(site, "x")
    mallory = site.gateway.as_(await site.gateway.new_key(subject="mallory"))
    second = await held(site, gateway=mallory)
    await site.decide(site.bob, second)
    await users.remove("default", "bob")
    assert await held(site, gateway=mallory) != second  # approved by a user who no longer exists
    await users.remove("default", "alice")
    async with site.gateway.app.database.reading() as connection:
        rows = (await connection.execute(text("SELECT principal, id FROM approvals"))).all()
        decisions = (await connection.execute(text("SELECT * FROM approval_decisions"))).all()
    assert {row.principal for row in rows} == {"default/user:mallory"}
    assert first not in {row.id for row in rows}
    assert decisions == []


async def test_arguments_and_rows_are_deleted_when_their_time_has_passed(site: ApprovalSite) -> None:
    app = site.gateway.app
    await approved(site, "ran")
    await site.drop("ran")
    await held(site, "waits")
    rows = app.approvals._rows
    await rows.prune(time.time() + 1, 0)
    async with app.database.reading() as connection:
        left = (await connection.execute(text("SELECT state, arguments FROM approvals ORDER BY state"))).all()
    assert [tuple(row) for row in left] == [("used", None), ("waiting", '{"name":"waits"}')]
    await rows.prune(0, time.time() + 90_000)
    assert (await site.api(site.bob, "GET", "")).json() == {"approvals": []}


# ---- grants ----


async def test_a_grant_for_an_hour_covers_later_calls_until_it_is_revoked(site: ApprovalSite) -> None:
    id = await held(site, "a")
    await site.decide(site.bob, id, duration="hour")
    for name in ("a", "b", "c"):
        assert await site.drop(name) == {"ok": f"dropped {name}"}
    (grant,) = (await site.api(site.bob, "GET", "/grants")).json()["grants"]
    assert (grant["caller"], grant["tool"], grant["for"]) == ("default/user:alice", "danger.drop", "hour")
    assert 3500 < grant["ends_at"] - time.time() <= 3600
    mallory = site.gateway.as_(await site.gateway.new_key(subject="mallory"))
    await held(site, "b", gateway=mallory)
    assert (await site.api(mallory.key, "DELETE", f"/grants/{grant['id']}")).status_code == 403
    outsider = await site.gateway.new_key(subject="eve", scopes=(APPROVE,), groups=("other",))
    assert (await site.api(outsider, "GET", "/grants")).json() == {"grants": []}
    assert (await site.api(outsider, "DELETE", f"/grants/{grant['id']}")).status_code == 404
    assert (await site.api(site.carol, "DELETE", f"/grants/{grant['id']}")).status_code == 200
    await held(site, "d")


async def test_a_grant_for_a_session_covers_that_session_only(site: ApprovalSite) -> None:
    async with site.gateway.client(HANDSHAKE) as one, site.gateway.client(HANDSHAKE) as other:
        first = await one.call_tool("danger_drop", {"name": "a"})
        assert first.meta is not None
        id = first.meta["gatehouse/error"]["details"]["approval_id"]
        assert (await site.decide(site.bob, id, duration="session")).json()["status"] == "approved"
        # The approval itself is for one call; the grant covers the next ones of the same session.
        assert not (await one.call_tool("danger_drop", {"name": "b"})).is_error
        assert (await other.call_tool("danger_drop", {"name": "c"})).is_error


async def test_a_grant_is_void_once_the_policies_change(site: ApprovalSite) -> None:
    await site.decide(site.bob, await held(site, "a"), duration="hour")
    assert "ok" in await site.drop("b")
    site.edit_policy('@within("5m")')
    await site.gateway.app.policies.refresh()
    await held(site, "c")


async def test_a_user_keeps_their_own_approval_for_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []

    async def accept(_: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"approve": True, "duration": "hour"})

    danger = {"danger": {"module": "tests.flows.fixtures.danger", "effects": {"drop": 3}}}
    async with approval_site(tmp_path, backends=danger) as site:
        (tmp_path / "policies" / "default" / "20-approval.cedar").unlink()
        await site.gateway.app.policies.refresh()
        async with site.gateway.client(elicitation_callback=accept) as client:
            for name in ("a", "b"):
                assert not (await client.call_tool("danger_drop", {"name": name})).is_error
        assert len(asked) == 1
        # The caller's own grant does not satisfy a policy that asks a group.
        site.edit_policy("")
        await site.gateway.app.policies.refresh()
        await held(site, "c")


async def test_a_running_copy_of_the_policies_without_the_attribute_still_decides(site: ApprovalSite) -> None:
    """Policy folders copied before `needs_approval` existed keep working."""
    policies = site.folder / "policies"
    schema, grants = policies / "schema.cedarschema", policies / "default" / "10-grants.cedar"
    schema.write_text(schema.read_text().replace(", needs_approval: Bool", ""))
    grants.write_text(grants.read_text().replace("resource.needs_approval", "resource.effect >= 3"))
    await site.gateway.app.policies.refresh()
    assert site.gateway.app.policies.problems == ()
    await held(site)
