"""Reading the lists of a server, including malformed ones."""

from typing import Any

import pytest

from gateway.contract import Json
from gateway.upstream.lists import read_lists


class Server:
    def __init__(self, discovery: Json, page: Json) -> None:
        self._discovery = discovery
        self._page = page

    async def discover(self) -> Json:
        return self._discovery

    async def request(self, method: str, params: Json) -> Json:
        return self._page


@pytest.mark.parametrize("malformed", [7, "tools", True, None, 1.5])
async def test_malformed_lists_are_read_as_empty(malformed: Any) -> None:
    lists = await read_lists(Server({"capabilities": malformed, "serverInfo": malformed}, {"tools": [{"name": "a"}]}))
    assert (lists.tools, lists.capabilities, lists.info) == ((), {}, {})
    lists = await read_lists(Server({"capabilities": {"tools": {}}}, {"tools": malformed}))
    assert lists.tools == ()
