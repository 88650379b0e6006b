"""Tests can replace the network with respx; URL validation and limits still apply."""

import httpx
import pytest
import respx

from gateway.errors import Fault, Kind
from gateway.outbound import create_client

from .peers import FakeResolver


@respx.mock
async def test_respx_replaces_the_network_behind_url_validation() -> None:
    resolver = FakeResolver([])
    route = respx.get("https://issuer.example/jwks", params={"v": "1"}).respond(json={"keys": []})
    async with create_client(resolver=resolver) as http:
        assert (await http.get("https://issuer.example/jwks?v=1")).json() == {"keys": []}
        with pytest.raises(Fault):
            await http.get("http://issuer.example/jwks")
    assert route.call_count == 1
    assert resolver.lookups == []


@respx.mock
async def test_responses_of_respx_are_limited_and_translated() -> None:
    respx.get("https://issuer.example/big").respond(content=b"x" * 11)
    respx.get("https://issuer.example/zip").respond(content=b"x", headers={"Content-Encoding": "gzip"})
    respx.get("https://issuer.example/late").mock(side_effect=httpx.ReadTimeout)
    respx.get("https://issuer.example/down").mock(side_effect=httpx.ConnectError)
    expected = {"big": Kind.TOO_LARGE, "zip": Kind.DENIED, "late": Kind.TIMEOUT, "down": Kind.UNAVAILABLE}
    async with create_client(max_bytes=10) as http:
        for path, kind in expected.items():
            with pytest.raises(Fault) as caught:
                await http.get(f"https://issuer.example/{path}")
            assert caught.value.kind is kind
            assert "issuer.example" in caught.value.message
