"""Checks every requirement of the contract with the SDK's client, in both eras, against the real plugin.

Faults that a Studio never reports (denied, unimplemented) come from the sandbox backend. `test_tools.py` checks that
the bridge tools are absent without the bridge.
"""

from typing import Any

import pytest

from tests.backends.roblox.contract import ROWS, Check
from tests.backends.roblox.harness import MODERN

# One Studio serves the whole file, so all of it runs on one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("client_era", [MODERN, "legacy"])
@pytest.mark.parametrize("check", [row[1] for row in ROWS], ids=[row[0] for row in ROWS])
async def test_contract_requirement_is_met(studio: Any, client_era: str, check: Check) -> None:
    async with studio.gateway.client(client_era) as client:
        await check(client, client_era)
