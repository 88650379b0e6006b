"""A person as the credential of a bridge: one real gateway, its own pages, and a browser that fills them in."""

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


async def test_many_requests_open_one_window_and_whoever_starts_later_none(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.signed_in_at(gateway)
    first, beside = (StdioBridge(gateway, tmp_path / "made" / "here", browser) for _ in range(2))
    answers = await asyncio.gather(*(each.call("lab_look") for each in (first, first, first, beside, beside)))
    assert [_text(answer) for answer in answers] == ["looked"] * 5
    assert _text(await StdioBridge(gateway, tmp_path / "made" / "here", browser).call("lab_look")) == "looked"
    assert len(browser.opened_urls) == 1
    # For nobody else's eyes.
    assert stat.S_IMODE(first.token_store.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.token_store.file.parent.stat().st_mode) == 0o700
    assert first.stored_tokens.access_token not in repr(first.stored_tokens)


async def test_a_token_that_is_refused_or_grows_old_is_refreshed_once_and_nobody_is_asked(
    gateway: Running, tmp_path: Path
) -> None:
    browser = await Browser.signed_in_at(gateway)
    bridged = StdioBridge(gateway, tmp_path, browser)
    await bridged.call("lab_look")
    before = bridged.stored_tokens
    # Refused, to two processes at once.
    bridged.token_store.write(replace(before, access_token="of-yesterday"))
    both = [StdioBridge(gateway, tmp_path, browser) for _ in range(2)]
    challenge = AuthChallenge(401, "Bearer")
    steps = await asyncio.gather(*(each.sign_in.renew(challenge, "of-yesterday", (), asking=True) for each in both))
    assert set(steps) == {CredentialStep.REFRESHED, CredentialStep.FOUND}
    after = bridged.stored_tokens
    assert before.refresh_token != after.refresh_token
    # Old: replaced before it is sent.
    bridged.token_store.write(replace(after, stale_at=1.0))
    late = StdioBridge(gateway, tmp_path, browser)
    assert await late.sign_in.token() not in (after.access_token, None)
    assert _text(await late.call("lab_look")) == "looked"
    assert len(browser.opened_urls) == 1


async def test_a_refresh_that_is_refused_asks_the_person_again(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.signed_in_at(gateway)
    bridged = StdioBridge(gateway, tmp_path, browser)
    await bridged.call("lab_look")
    registered = bridged.stored_tokens.client["client_id"]
    bridged.token_store.write(replace(bridged.stored_tokens, access_token="of-yesterday", refresh_token="spent"))
    again = StdioBridge(gateway, tmp_path, browser)
    assert _text(await again.call("lab_look")) == "looked"
    assert len(browser.opened_urls) == 2
    # It came back to the same address, as the client that it was.
    assert again.stored_tokens.client["client_id"] == registered


async def test_a_client_that_the_gateway_forgot_registers_again(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.signed_in_at(gateway)
    bridged = StdioBridge(gateway, tmp_path, browser)
    await bridged.call("lab_look")
    forgotten = replace(
        bridged.stored_tokens,
        access_token="of-yesterday",
        client={**bridged.stored_tokens.client, "client_id": "gthc_x"},
    )
    bridged.token_store.write(forgotten)
    again = StdioBridge(gateway, tmp_path, browser)
    assert _text(await again.call("lab_look")) == "looked"
    assert again.stored_tokens.client["client_id"] not in ("gthc_x", "")
    # Also one of whom nobody ever hears again.
    bridged.token_store.write(replace(forgotten, refresh_token=None))
    with pytest.raises(CredentialRejected, match="nobody did within"):
        await StdioBridge(gateway, tmp_path, lambda address: None, patience=0.2).call("lab_look")
    assert _text(await StdioBridge(gateway, tmp_path, browser).call("lab_look")) == "looked"


async def test_a_call_that_needs_more_asks_for_more_and_what_was_granted_stays(
    gateway: Running, tmp_path: Path
) -> None:
    browser = await Browser.signed_in_at(gateway)
    bridged = StdioBridge(gateway, tmp_path, browser)
    assert _text(await bridged.call("lab_look")) == "looked"
    assert set(bridged.stored_tokens.scope.split()) == {"mcp:list", "mcp:call"}
    # Begun anew in between: what was granted is known from the file.
    again = StdioBridge(gateway, tmp_path, browser)
    assert _text(await again.call("lab_save", text="it")) == "saved it"
    assert set(again.stored_tokens.scope.split()) == {"mcp:list", "mcp:call", "mcp:call:write"}
    assert len(browser.opened_urls) == 2


async def test_what_was_granted_and_is_asked_for_all_the_same_is_not_asked_for_again(
    gateway: Running, tmp_path: Path
) -> None:
    browser = await Browser.signed_in_at(gateway)
    bridged = StdioBridge(gateway, tmp_path, browser)
    await bridged.call("lab_look")
    token = await bridged.sign_in.token()
    futile = AuthChallenge(403, 'Bearer error="insufficient_scope", scope="mcp:call"')
    assert await bridged.sign_in.renew(futile, token, (), asking=True) is None
    unnamed = AuthChallenge(403, 'Bearer error="insufficient_scope"')
    assert await bridged.sign_in.renew(unnamed, token, (CredentialStep.STEPPED_UP,), asking=True) is None
    assert len(browser.opened_urls) == 1


async def test_who_declines_is_told_so_once_and_so_are_all_that_waited(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.signed_in_at(gateway, "deny")
    bridged = StdioBridge(gateway, tmp_path, browser)
    told = await asyncio.gather(*(bridged.call("lab_look") for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in told] == [CredentialRejected] * 3
    assert {each.status for each in told if isinstance(each, CredentialRejected)} == {401}
    assert "it was refused (access_denied)" in str(told[0])
    assert len(browser.opened_urls) == 1
    assert bridged.token_store.read() is None


async def test_who_does_not_come_is_not_waited_for_without_end(gateway: Running, tmp_path: Path) -> None:
    bridged = StdioBridge(gateway, tmp_path, lambda address: None, patience=0.2)
    with pytest.raises(CredentialRejected, match=r"nobody did within 0\.2 s"):
        await bridged.call("lab_look")


async def test_a_folder_that_cannot_be_used_is_said(gateway: Running, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    bridged = StdioBridge(gateway, tmp_path / "file" / "below", await Browser.signed_in_at(gateway))
    with pytest.raises(CredentialRejected, match="below cannot be used: Not a directory"):
        await bridged.call("lab_look")


async def test_nobody_is_bothered_for_what_is_no_request(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.signed_in_at(gateway)
    bridged = StdioBridge(gateway, tmp_path, browser)
    for sent in (bridged.endpoint.listen(), bridged.endpoint.send({"jsonrpc": "2.0", "method": "notifications/x"})):
        with pytest.raises(CredentialRejected, match="wants you to sign in, or a key in GATEHOUSE_TOKEN"):
            await anext(sent)
    assert browser.opened_urls == []
