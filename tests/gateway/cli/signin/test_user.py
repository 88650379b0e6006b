"""User sign-in of the stdio bridge against a real gateway, with a scripted browser."""

import asyncio
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.cli.signin.credential import AuthChallenge, CredentialRejected, CredentialStep
from tests.conftest import Running, run_gateway
from tests.peers.stdio_bridge import Browser, StdioBridge

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]
AUTH: Json = {
    "registration_rate": "1000/minute",
    "authorize_rate": "10000/minute",
    "scopes": ["mcp:list", "mcp:call"],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    backends = {"lab": {"module": "tests.flows.fixtures.writer"}}
    async with run_gateway(tmp_path_factory.mktemp("gateway"), backends=backends, auth=AUTH) as running:
        yield running


def _text(answer: Json) -> str:
    return answer["result"]["content"][0]["text"]


async def test_concurrent_requests_open_one_window_and_later_processes_none(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.signed_in_at(gateway)
    first, other = (StdioBridge(gateway, tmp_path / "made" / "here", browser) for _ in range(2))
    answers = await asyncio.gather(*(each.call("lab_look") for each in (first, first, first, other, other)))
    assert [_text(answer) for answer in answers] == ["looked"] * 5
    assert _text(await StdioBridge(gateway, tmp_path / "made" / "here", browser).call("lab_look")) == "looked"
    assert len(browser.opened_urls) == 1
    # Readable only by the user.
    assert stat.S_IMODE(first.token_store.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.token_store.file.parent.stat().st_mode) == 0o700
    assert first.stored_tokens.access_token not in repr(first.stored_tokens)


async def test_rejected_or_stale_token_is_refreshed_once_without_the_browser(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.signed_in_at(gateway)
    bridge = StdioBridge(gateway, tmp_path, browser)
    await bridge.call("lab_look")
    before = bridge.stored_tokens
    # Rejected in two processes at the same time.
    bridge.token_store.write(replace(before, access_token="rejected"))
    both = [StdioBridge(gateway, tmp_path, browser) for _ in range(2)]
    challenge = AuthChallenge(401, "Bearer")
    steps = await asyncio.gather(*(each.sign_in.renew(challenge, "rejected", (), interactive=True) for each in both))
    assert set(steps) == {CredentialStep.REFRESHED, CredentialStep.FOUND}
    after = bridge.stored_tokens
    assert before.refresh_token != after.refresh_token
    # Stale: refreshed before it is sent.
    bridge.token_store.write(replace(after, stale_at=1.0))
    late = StdioBridge(gateway, tmp_path, browser)
    assert await late.sign_in.token() not in (after.access_token, None)
    assert _text(await late.call("lab_look")) == "looked"
    assert len(browser.opened_urls) == 1


async def test_rejected_refresh_opens_the_browser_again(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.signed_in_at(gateway)
    bridge = StdioBridge(gateway, tmp_path, browser)
    await bridge.call("lab_look")
    registered = bridge.stored_tokens.client["client_id"]
    bridge.token_store.write(replace(bridge.stored_tokens, access_token="rejected", refresh_token="spent"))
    again = StdioBridge(gateway, tmp_path, browser)
    assert _text(await again.call("lab_look")) == "looked"
    assert len(browser.opened_urls) == 2
    # It used the same redirect URI and the same client.
    assert again.stored_tokens.client["client_id"] == registered


async def test_unknown_client_registers_again(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.signed_in_at(gateway)
    bridge = StdioBridge(gateway, tmp_path, browser)
    await bridge.call("lab_look")
    unknown_client = replace(
        bridge.stored_tokens,
        access_token="rejected",
        client={**bridge.stored_tokens.client, "client_id": "gthc_x"},
    )
    bridge.token_store.write(unknown_client)
    again = StdioBridge(gateway, tmp_path, browser)
    assert _text(await again.call("lab_look")) == "looked"
    assert again.stored_tokens.client["client_id"] not in ("gthc_x", "")
    # Also after a sign-in that timed out.
    bridge.token_store.write(replace(unknown_client, refresh_token=None))
    with pytest.raises(CredentialRejected, match="timed out after"):
        await StdioBridge(gateway, tmp_path, lambda address: None, patience=0.2).call("lab_look")
    assert _text(await StdioBridge(gateway, tmp_path, browser).call("lab_look")) == "looked"


async def test_step_up_requests_more_scopes_and_keeps_the_granted_ones(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.signed_in_at(gateway)
    bridge = StdioBridge(gateway, tmp_path, browser)
    assert _text(await bridge.call("lab_look")) == "looked"
    assert set(bridge.stored_tokens.scope.split()) == {"mcp:list", "mcp:call"}
    # A new process reads the granted scopes from the token store.
    again = StdioBridge(gateway, tmp_path, browser)
    assert _text(await again.call("lab_save", text="it")) == "saved it"
    assert set(again.stored_tokens.scope.split()) == {"mcp:list", "mcp:call", "mcp:call:write"}
    assert len(browser.opened_urls) == 2


async def test_step_up_for_granted_scopes_is_not_repeated(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.signed_in_at(gateway)
    bridge = StdioBridge(gateway, tmp_path, browser)
    await bridge.call("lab_look")
    token = await bridge.sign_in.token()
    granted_challenge = AuthChallenge(403, 'Bearer error="insufficient_scope", scope="mcp:call"')
    assert await bridge.sign_in.renew(granted_challenge, token, (), interactive=True) is None
    unnamed = AuthChallenge(403, 'Bearer error="insufficient_scope"')
    assert await bridge.sign_in.renew(unnamed, token, (CredentialStep.STEPPED_UP,), interactive=True) is None
    assert len(browser.opened_urls) == 1


async def test_declined_sign_in_fails_all_waiting_requests_with_one_window(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.signed_in_at(gateway, "deny")
    bridge = StdioBridge(gateway, tmp_path, browser)
    results = await asyncio.gather(*(bridge.call("lab_look") for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in results] == [CredentialRejected] * 3
    assert {each.status for each in results if isinstance(each, CredentialRejected)} == {401}
    assert "it was denied (access_denied)" in str(results[0])
    assert len(browser.opened_urls) == 1
    assert bridge.token_store.read() is None


async def test_sign_in_times_out(gateway: Running, tmp_path: Path) -> None:
    bridge = StdioBridge(gateway, tmp_path, lambda address: None, patience=0.2)
    with pytest.raises(CredentialRejected, match=r"timed out after 0\.2 s"):
        await bridge.call("lab_look")


async def test_unusable_token_folder_is_reported(gateway: Running, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    bridge = StdioBridge(gateway, tmp_path / "file" / "below", await Browser.signed_in_at(gateway))
    with pytest.raises(CredentialRejected, match=r"cannot use .*below: Not a directory"):
        await bridge.call("lab_look")


async def test_only_requests_open_the_browser(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.signed_in_at(gateway)
    bridge = StdioBridge(gateway, tmp_path, browser)
    for sent in (bridge.endpoint.listen(), bridge.endpoint.send({"jsonrpc": "2.0", "method": "notifications/x"})):
        with pytest.raises(CredentialRejected, match="requires you to sign in, or a key in GATEHOUSE_TOKEN"):
            await anext(sent)
    assert browser.opened_urls == []
