"""The client resolves a host once and connects to validated addresses only."""

import socket

import pytest

from gateway.errors import Fault, Kind
from gateway.outbound import create_client

from .peers import PUBLIC, FakeResolver, RecordingNetwork


@pytest.mark.parametrize("private", ["127.0.0.1", "10.0.0.7", "::1", "64:ff9b::7f00:1", "fec0::1", "not an address"])
async def test_threat_13_host_with_one_private_address_is_denied(private: str) -> None:
    resolver, network = FakeResolver([PUBLIC, private, "1.1.1.1"]), RecordingNetwork()
    async with create_client(resolver=resolver, network=network) as http:
        with pytest.raises(Fault) as caught:
            await http.get("https://mixed.example/")
    assert caught.value.kind is Kind.DENIED
    assert "mixed.example" in caught.value.message
    assert private not in caught.value.message
    assert network.connected == []


async def test_threat_13_dns_rebinding_connects_only_to_the_validated_address() -> None:
    resolver, network = FakeResolver([PUBLIC], ["127.0.0.1"]), RecordingNetwork()
    async with create_client(resolver=resolver, network=network) as http:
        first = await http.get("https://rebind.example/", headers={"Connection": "close"})
        assert first.text == "ok"
        assert resolver.lookups == [("rebind.example", 443)]
        assert network.connected == [(PUBLIC, 443)]
        with pytest.raises(Fault) as caught:
            await http.get("https://rebind.example/")
    assert caught.value.kind is Kind.DENIED
    assert network.connected == [(PUBLIC, 443)]


async def test_address_in_the_url_is_not_resolved() -> None:
    resolver, network = FakeResolver([]), RecordingNetwork()
    async with create_client(resolver=resolver, network=network) as http:
        await http.get(f"https://{PUBLIC}/")
    assert resolver.lookups == []
    assert network.connected == [(PUBLIC, 443)]


async def test_next_address_is_tried_and_each_gets_a_share_of_the_timeout() -> None:
    network = RecordingNetwork(unreachable=["1.1.1.1", "2606:4700::1111"])
    async with create_client(
        resolver=FakeResolver(["2606:4700::1111", "1.1.1.1", PUBLIC]), network=network, timeout=6
    ) as http:
        assert (await http.get("https://example.com/")).text == "ok"
    assert network.connected == [("2606:4700::1111", 443), ("1.1.1.1", 443), (PUBLIC, 443)]
    assert network.seconds == [2, 2, 2]


async def test_unknown_host_is_unavailable() -> None:
    async def fail(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    for resolver in (fail, FakeResolver([])):
        async with create_client(resolver=resolver) as http:
            with pytest.raises(Fault, match=r"gone\.example cannot be found") as caught:
                await http.get("https://gone.example/")
        assert caught.value.kind is Kind.UNAVAILABLE
