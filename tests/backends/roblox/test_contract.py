"""The contract, sentence by sentence, asked by the SDK's own client in both eras of a Studio with the real plugin.

Faults that no Studio gives (denied, unimplemented) come from a backend that fails as it is told. That the tools which
need the bridge are absent without it is in test_tools.py.
"""

from typing import Any

import pytest

from tests.backends.roblox.contract import ROWS, Check
from tests.backends.roblox.harness import MODERN

# One Studio serves the whole file, so all of it runs on one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("client_era", [MODERN, "legacy"])
@pytest.mark.parametrize("check", [row[1] for row in ROWS], ids=[row[0] for row in ROWS])
async def test_the_contract_holds(studio: Any, client_era: str, check: Check) -> None:
    async with studio.gateway.client(client_era) as client:
        await check(client, client_era)
