"""`gatehouse ping` against a real gateway: a round trip in each era, or an error that names the failed era."""

import asyncio
import json

import pytest

from gateway.cli.failure import CALL_FAILED, UNAUTHENTICATED, UNREACHABLE, CommandError
from gateway.cli.ping import ping
from tests.conftest import Start

CORE = {"core": {"module": "backends.core"}}


async def test_ping_connects_lists_and_calls_in_both_eras(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    async with start(backends=CORE) as gateway:
        await asyncio.to_thread(ping, gateway.url, gateway.key, None, True)
        modern, handshake = json.loads(capsys.readouterr().out)
        assert (modern["version"], handshake["version"]) == ("2026-07-28", "2025-11-25")
        assert {(result["tools"], result["called"]) for result in (modern, handshake)} == {(1, "core_ping")}

        for token, tool, code, message in (
            (None, None, UNAUTHENTICATED, "requires a token"),
            (gateway.key[:-1] + "x", None, UNAUTHENTICATED, "rejected the token"),
            (gateway.key, "core_pong", CALL_FAILED, "core_pong"),
        ):
            with pytest.raises(CommandError, match=message) as caught:
                await asyncio.to_thread(ping, gateway.url, token, tool, False)
            assert caught.value.code == code


async def test_unreachable_gateway_is_reported(start: Start) -> None:
    async with start(backends=CORE) as gateway:
        url = gateway.url
    with pytest.raises(CommandError, match="unreachable in the modern era") as caught:
        await asyncio.to_thread(ping, url, "gth_x", None, False)
    assert caught.value.code == UNREACHABLE
