"""Where the client connects: to judged addresses, asked for once."""

import socket

import pytest

from gateway.errors import Fault, Kind
from gateway.outbound import client

from .peers import PUBLIC, Names, Network


@pytest.mark.parametrize("private", ["127.0.0.1", "10.0.0.7", "::1", "64:ff9b::7f00:1", "fec0::1", "not an address"])
async def test_threat_13_one_private_address_among_public_ones_refuses_the_name(private: str) -> None:
    names, network = Names([PUBLIC, private, "1.1.1.1"]), Network()
    async with client(resolver=names, network=network) as http:
        with pytest.raises(Fault) as caught:
            await http.get("https://mixed.example/")
    assert caught.value.kind is Kind.DENIED
    assert "mixed.example" in caught.value.message
    assert private not in caught.value.message
    assert network.connected == []


async def test_threat_13_a_rebinding_name_is_asked_once_and_the_connection_goes_where_it_was_judged() -> None:
    names, network = Names([PUBLIC], ["127.0.0.1"]), Network()
    async with client(resolver=names, network=network) as http:
        first = await http.get("https://rebind.example/", headers={"Connection": "close"})
        assert first.text == "ok"
        assert names.asked == [("rebind.example", 443)]
        assert network.connected == [(PUBLIC, 443)]
        with pytest.raises(Fault) as caught:
            await http.get("https://rebind.example/")
    assert caught.value.kind is Kind.DENIED
    assert network.connected == [(PUBLIC, 443)]


async def test_an_address_in_the_url_is_not_looked_up() -> None:
    names, network = Names([]), Network()
    async with client(resolver=names, network=network) as http:
        await http.get(f"https://{PUBLIC}/")
    assert names.asked == []
    assert network.connected == [(PUBLIC, 443)]


async def test_the_next_address_is_tried_when_one_does_not_answer_and_each_has_its_share_of_the_time() -> None:
    network = Network(dead=["1.1.1.1", "2606:4700::1111"])
    async with client(resolver=Names(["2606:4700::1111", "1.1.1.1", PUBLIC]), network=network, timeout=6) as http:
        assert (await http.get("https://example.com/")).text == "ok"
    assert network.connected == [("2606:4700::1111", 443), ("1.1.1.1", 443), (PUBLIC, 443)]
    assert network.seconds == [2, 2, 2]


async def test_a_name_that_cannot_be_found_is_unavailable() -> None:
    async def nobody(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    for resolver in (nobody, Names([])):
        async with client(resolver=resolver) as http:
            with pytest.raises(Fault, match=r"gone\.example cannot be found") as caught:
                await http.get("https://gone.example/")
        assert caught.value.kind is Kind.UNAVAILABLE
