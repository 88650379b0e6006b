"""An approval from end to end: asked, announced, approved by another person in Chromium or by command, run once."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, expect
from standardwebhooks.webhooks import Webhook as Verifier

from gateway.cli.failure import CALL_FAILED
from gateway.contract import Caller
from gateway.contract.caller import ADMIN, APPROVE, DEFAULT_SCOPES
from tests.conftest import Running, run_gateway
from tests.flows.approval_site import SECRET, ApprovalSite, approval_site, webhook_receiver
from tests.flows.process import run
from tests.flows.test_console import accessibility_violations
from tests.peers import npm
from tests.peers.browser import browser_context

Json = dict[str, Any]
PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def axe() -> str:
    return (npm.install_package(npm.AXE) / "node_modules" / "axe-core" / "axe.min.js").read_text()


async def sign_in(page: Page, name: str) -> None:
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").last.click()


async def add_user(gateway: Running, name: str, *scopes: str, groups: tuple[str, ...] = ("platform",)) -> None:
    await gateway.app.identity.users.put("default", name, PASSWORD, (*DEFAULT_SCOPES, *scopes), groups)


async def test_another_person_approves_in_the_browser_and_the_call_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, axe: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with webhook_receiver() as hook:
        webhooks = {"ops": {"url": hook.url, "secret": SECRET, "allow_private": True}}
        async with approval_site(tmp_path, approvals={"webhooks": webhooks}) as site:
            await add_user(site.gateway, "dora", APPROVE)
            await site.drop("the-table")
            headers, body = await asyncio.to_thread(hook.received.get, timeout=30)
            link = Verifier(SECRET).verify(body, headers)["url"]
            await site.drop("another-table")
            async with browser_context(viewport={"width": 1280, "height": 900}) as context:
                page = await context.new_page()
                problems: list[str] = []
                page.on("pageerror", lambda error: problems.append(str(error)))
                await page.goto(link)
                await sign_in(page, "dora")
                await expect(page.get_by_role("heading", name="danger.drop")).to_be_visible()
                await expect(page.locator("#arguments")).to_contain_text('"name": "the-table"')
                await expect(page.get_by_text("Dropping is irreversible.")).to_be_visible()
                problems += await accessibility_violations(page, axe)
                await page.get_by_label("Reason").fill("reviewed with alice")
                await page.get_by_role("button", name="Approve").click()
                await expect(page.locator("#decision")).to_contain_text("reviewed with alice")

                # Deny the other one from the queue.
                await page.get_by_role("link", name="Approvals", exact=True).click()
                await expect(page.locator("#waiting tbody tr")).to_have_count(1)
                problems += await accessibility_violations(page, axe)
                await page.locator("#waiting").get_by_role("link", name="danger.drop").click()
                await page.get_by_label("Reason").fill("wrong table")
                await page.get_by_role("button", name="Deny").click()
                await expect(page.locator("#decision")).to_contain_text("denied")

                # An approver who is no operator sees the approvals only.
                await page.goto(f"{site.gateway.base}/console/calls")
                await expect(page.get_by_role("heading", name="Access denied")).to_be_visible()
                await page.goto(f"{site.gateway.base}/console")
                await expect(page.get_by_role("heading", name="Approvals")).to_be_visible()
                assert await page.get_by_role("link", name="Calls", exact=True).count() == 0
            assert problems == []
            assert await site.drop("the-table") == {"ok": "dropped the-table"}
            assert (await site.drop("the-table"))["kind"] == "approval_required"
            assert (await site.drop("another-table"))["message"].endswith("Reason: wrong table")
    assert site.dropped() == ["the-table"]


async def test_threat_64_a_form_without_the_token_of_the_session_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with approval_site(tmp_path) as site:
        await add_user(site.gateway, "dora", APPROVE, ADMIN)
        await add_user(site.gateway, "eve", APPROVE)
        details = (await site.drop())["details"]
        id, link = details["approval_id"], details["url"]
        foreign = await _form_token(site, "eve", link)
        async with browser_context() as context:
            page = await context.new_page()
            await page.goto(link)
            await sign_in(page, "dora")
            await expect(page.get_by_role("button", name="Approve")).to_be_visible()
            cookies = {each.get("name", ""): each.get("value", "") for each in await context.cookies()}
            token = await page.locator("form.stacked input[name=form_token]").get_attribute("value") or ""
        async with httpx.AsyncClient(cookies=cookies, verify=False, trust_env=False) as http:
            for form in ({}, {"form_token": "x"}, {"form_token": foreign}):
                answer = await http.post(link, data={"decision": "approve", **form})
                assert answer.status_code == 403
                assert "Open the page again" in answer.text
            json_body = await http.post(link, json={"decision": "approve", "form_token": token})
            assert json_body.status_code == 400
            assert (await site.api(site.bob, "GET", f"/{id}")).json()["status"] == "waiting"
            assert (await http.post(link, data={"decision": "approve", "form_token": token})).status_code == 303
        assert (await site.api(site.bob, "GET", f"/{id}")).json()["status"] == "approved"


async def _form_token(site: ApprovalSite, name: str, link: str) -> str:
    async with browser_context() as context:
        page = await context.new_page()
        await page.goto(link)
        await sign_in(page, name)
        field = page.locator("form.stacked input[name=form_token]")
        return await field.get_attribute("value") or ""


async def test_another_person_approves_by_command_and_the_call_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with approval_site(tmp_path) as site:

        async def command(key: str, *words: str) -> Any:
            return await asyncio.to_thread(run, tmp_path, *words, GATEHOUSE_URL=site.gateway.url, GATEHOUSE_TOKEN=key)

        call = ("call", "danger_drop", '{"name": "by-command"}')
        first = await command(site.gateway.key, *call)
        assert first.returncode == CALL_FAILED
        assert "Ask a member of the group platform to approve it" in first.stderr
        listed = await command(site.bob, "approvals", "list")
        assert "danger.drop" in listed.stdout
        id = listed.stdout.splitlines()[1].split()[0]
        own = await command(site.gateway.key, "approvals", "approve", id)
        assert own.returncode != 0
        shown = await command(site.bob, "approvals", "show", id)
        assert '"name": "by-command"' in shown.stdout
        done = await command(site.bob, "approvals", "approve", id, "--reason", "fine", "--for", "hour")
        assert done.stdout == "approved danger.drop for alice\n"
        assert (await command(site.gateway.key, *call)).stdout == "dropped by-command\n"
        grants = await command(site.bob, "approvals", "grants")
        grant = grants.stdout.splitlines()[1].split()[0]
        assert (await command(site.bob, "approvals", "revoke", grant)).stdout == f"revoked {grant}\n"
        await command(site.gateway.key, "call", "danger_drop", '{"name": "second"}')
        waiting = (await command(site.bob, "approvals", "list", "--json")).stdout
        assert '"status": "waiting"' in waiting
        second = (await command(site.bob, "approvals", "list")).stdout.splitlines()[1].split()[0]
        denied = await command(site.bob, "approvals", "deny", second, "--reason", "enough")
        assert denied.stdout == "denied danger.drop for alice\n"
    assert site.dropped() == ["by-command"]


async def test_caller_approves_by_command_where_policy_lets_the_caller_approve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    backends = {"danger": {"module": "tests.flows.fixtures.danger", "effects": {"dr*": 3}}}
    async with run_gateway(tmp_path, backends=backends) as gateway:

        async def command(*words: str) -> Any:
            return await asyncio.to_thread(
                run, tmp_path, *words, GATEHOUSE_URL=gateway.url, GATEHOUSE_TOKEN=gateway.key
            )

        listed = await command("tools")
        assert ["danger_drop", "destructive"] in [line.split()[:2] for line in listed.stdout.splitlines()]
        call = ("call", "danger_drop", '{"name": "mine"}')
        refused = await command(*call)
        assert refused.returncode == CALL_FAILED
        assert "repeat the command with --approve to approve the call" in refused.stderr
        assert (await command(*call, "--approve")).stdout == "dropped mine\n"
        route = gateway.app.catalogue.full_view().tools["danger.drop"]
        explained = gateway.app.policy_explainer.explain(Caller("default", "alice"), "danger.drop", {}, False)
        assert route.effect == explained["effect"] == 3  # the same in console, policy and command
