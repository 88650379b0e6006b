"""respx stands in for the far side, below the guard."""

import httpx
import pytest
import respx

from gateway.errors import Fault, Kind
from gateway.outbound import client

from .peers import Names


@respx.mock
async def test_respx_stands_in_below_the_guard_and_no_name_is_looked_up() -> None:
    names = Names([])
    route = respx.get("https://issuer.example/jwks", params={"v": "1"}).respond(json={"keys": []})
    async with client(resolver=names) as http:
        assert (await http.get("https://issuer.example/jwks?v=1")).json() == {"keys": []}
        with pytest.raises(Fault):
            await http.get("http://issuer.example/jwks")
    assert route.call_count == 1
    assert names.asked == []


@respx.mock
async def test_what_respx_answers_is_bounded_and_translated_like_the_real_thing() -> None:
    respx.get("https://issuer.example/big").respond(content=b"x" * 11)
    respx.get("https://issuer.example/zip").respond(content=b"x", headers={"Content-Encoding": "gzip"})
    respx.get("https://issuer.example/late").mock(side_effect=httpx.ReadTimeout)
    respx.get("https://issuer.example/down").mock(side_effect=httpx.ConnectError)
    expected = {"big": Kind.TOO_LARGE, "zip": Kind.DENIED, "late": Kind.TIMEOUT, "down": Kind.UNAVAILABLE}
    async with client(max_bytes=10) as http:
        for path, kind in expected.items():
            with pytest.raises(Fault) as caught:
                await http.get(f"https://issuer.example/{path}")
            assert caught.value.kind is kind
            assert "issuer.example" in caught.value.message
