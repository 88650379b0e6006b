"""A person as the credential of a bridge: one real gateway, its own pages, and a browser that fills them in."""

import asyncio
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.cli.signin.credential import Challenge, Refused, Step
from tests.conftest import Running, run_gateway
from tests.peers.stdio_bridge import Bridged, Browser

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
    browser = await Browser.at(gateway)
    first, beside = (Bridged(gateway, tmp_path / "made" / "here", browser) for _ in range(2))
    answers = await asyncio.gather(*(each.call("lab_look") for each in (first, first, first, beside, beside)))
    assert [_text(answer) for answer in answers] == ["looked"] * 5
    assert _text(await Bridged(gateway, tmp_path / "made" / "here", browser).call("lab_look")) == "looked"
    assert len(browser.shown) == 1
    # For nobody else's eyes.
    assert stat.S_IMODE(first.shelf.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.shelf.file.parent.stat().st_mode) == 0o700
    assert first.kept.access_token not in repr(first.kept)


async def test_a_token_that_is_refused_or_grows_old_is_refreshed_once_and_nobody_is_asked(
    gateway: Running, tmp_path: Path
) -> None:
    browser = await Browser.at(gateway)
    bridged = Bridged(gateway, tmp_path, browser)
    await bridged.call("lab_look")
    before = bridged.kept
    # Refused, to two processes at once.
    bridged.shelf.write(replace(before, access_token="of-yesterday"))
    both = [Bridged(gateway, tmp_path, browser) for _ in range(2)]
    challenge = Challenge(401, "Bearer")
    steps = await asyncio.gather(*(each.person.renew(challenge, "of-yesterday", (), asking=True) for each in both))
    assert set(steps) == {Step.REFRESHED, Step.FOUND}
    after = bridged.kept
    assert before.refresh_token != after.refresh_token
    # Old: replaced before it is sent.
    bridged.shelf.write(replace(after, stale_at=1.0))
    late = Bridged(gateway, tmp_path, browser)
    assert await late.person.token() not in (after.access_token, None)
    assert _text(await late.call("lab_look")) == "looked"
    assert len(browser.shown) == 1


async def test_a_refresh_that_is_refused_asks_the_person_again(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.at(gateway)
    bridged = Bridged(gateway, tmp_path, browser)
    await bridged.call("lab_look")
    registered = bridged.kept.client["client_id"]
    bridged.shelf.write(replace(bridged.kept, access_token="of-yesterday", refresh_token="spent"))
    again = Bridged(gateway, tmp_path, browser)
    assert _text(await again.call("lab_look")) == "looked"
    assert len(browser.shown) == 2
    # It came back to the same address, as the client that it was.
    assert again.kept.client["client_id"] == registered


async def test_a_client_that_the_gateway_forgot_registers_again(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.at(gateway)
    bridged = Bridged(gateway, tmp_path, browser)
    await bridged.call("lab_look")
    forgotten = replace(
        bridged.kept, access_token="of-yesterday", client={**bridged.kept.client, "client_id": "gthc_x"}
    )
    bridged.shelf.write(forgotten)
    again = Bridged(gateway, tmp_path, browser)
    assert _text(await again.call("lab_look")) == "looked"
    assert again.kept.client["client_id"] not in ("gthc_x", "")
    # Also one of whom nobody ever hears again.
    bridged.shelf.write(replace(forgotten, refresh_token=None))
    with pytest.raises(Refused, match="nobody did within"):
        await Bridged(gateway, tmp_path, lambda address: None, patience=0.2).call("lab_look")
    assert _text(await Bridged(gateway, tmp_path, browser).call("lab_look")) == "looked"


async def test_a_call_that_needs_more_asks_for_more_and_what_was_granted_stays(
    gateway: Running, tmp_path: Path
) -> None:
    browser = await Browser.at(gateway)
    bridged = Bridged(gateway, tmp_path, browser)
    assert _text(await bridged.call("lab_look")) == "looked"
    assert set(bridged.kept.scope.split()) == {"mcp:list", "mcp:call"}
    # Begun anew in between: what was granted is known from the file.
    again = Bridged(gateway, tmp_path, browser)
    assert _text(await again.call("lab_save", text="it")) == "saved it"
    assert set(again.kept.scope.split()) == {"mcp:list", "mcp:call", "mcp:call:write"}
    assert len(browser.shown) == 2


async def test_what_was_granted_and_is_asked_for_all_the_same_is_not_asked_for_again(
    gateway: Running, tmp_path: Path
) -> None:
    browser = await Browser.at(gateway)
    bridged = Bridged(gateway, tmp_path, browser)
    await bridged.call("lab_look")
    token = await bridged.person.token()
    futile = Challenge(403, 'Bearer error="insufficient_scope", scope="mcp:call"')
    assert await bridged.person.renew(futile, token, (), asking=True) is None
    unnamed = Challenge(403, 'Bearer error="insufficient_scope"')
    assert await bridged.person.renew(unnamed, token, (Step.STEPPED_UP,), asking=True) is None
    assert len(browser.shown) == 1


async def test_who_declines_is_told_so_once_and_so_are_all_that_waited(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.at(gateway, "deny")
    bridged = Bridged(gateway, tmp_path, browser)
    told = await asyncio.gather(*(bridged.call("lab_look") for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in told] == [Refused] * 3
    assert {each.status for each in told if isinstance(each, Refused)} == {401}
    assert "it was refused (access_denied)" in str(told[0])
    assert len(browser.shown) == 1
    assert bridged.shelf.read() is None


async def test_who_does_not_come_is_not_waited_for_without_end(gateway: Running, tmp_path: Path) -> None:
    bridged = Bridged(gateway, tmp_path, lambda address: None, patience=0.2)
    with pytest.raises(Refused, match=r"nobody did within 0\.2 s"):
        await bridged.call("lab_look")


async def test_a_folder_that_cannot_be_used_is_said(gateway: Running, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    bridged = Bridged(gateway, tmp_path / "file" / "below", await Browser.at(gateway))
    with pytest.raises(Refused, match="below cannot be used: Not a directory"):
        await bridged.call("lab_look")


async def test_nobody_is_bothered_for_what_is_no_request(gateway: Running, tmp_path: Path) -> None:
    browser = await Browser.at(gateway)
    bridged = Bridged(gateway, tmp_path, browser)
    for sent in (bridged.endpoint.listen(), bridged.endpoint.send({"jsonrpc": "2.0", "method": "notifications/x"})):
        with pytest.raises(Refused, match="wants you to sign in, or a key in GATEHOUSE_TOKEN"):
            await anext(sent)
    assert browser.shown == []
