"""All that a server lists, whatever shape its answers have."""

from typing import Any

import pytest

from gateway.contract import Json
from gateway.upstream.lists import read_lists


class Server:
    def __init__(self, greeting: Json, page: Json) -> None:
        self._greeting = greeting
        self._page = page

    async def hello(self) -> Json:
        return self._greeting

    async def ask(self, method: str, params: Json) -> Json:
        return self._page


@pytest.mark.parametrize("odd", [7, "tools", True, None, 1.5])
async def test_what_has_the_wrong_shape_is_nothing(odd: Any) -> None:
    offer = await read_lists(Server({"capabilities": odd, "serverInfo": odd}, {"tools": [{"name": "a"}]}))
    assert (offer.tools, offer.capabilities, offer.info) == ((), {}, {})
    offer = await read_lists(Server({"capabilities": {"tools": {}}}, {"tools": odd}))
    assert offer.tools == ()
