"""Clients that are services: a secret or a key of their own, tokens for themselves, and nothing by registration."""

import asyncio
import json
import secrets
import time
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from gateway.auth.server.client_documents import ClientDocuments, described
from gateway.auth.server.clients import RegisteredClients, public_keys
from gateway.auth.server.registration import InvalidRegistration
from gateway.errors import Fault, Kind
from gateway.state.secrets import load_secret
from tests.gateway.auth.house import Clock
from tests.gateway.auth.server.conftest import FREE
from tests.peers.oauth_flow import OAuthTestClient

Json = dict[str, Any]
KEY = ECKey.generate_key("P-256", private=True, parameters={"kid": "k1"})
TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def clients(gateway: Any) -> RegisteredClients:
    house = gateway.house
    return RegisteredClients(
        house.database, load_secret(house.settings.data_dir / "secrets", "pepper"), house.identity.revocations
    )


async def test_a_service_gets_a_token_for_itself_and_no_more_than_it_may(server: Any) -> None:
    client_id, secret = await clients(server).add_service("default", "nightly", ["mcp:list", "mcp:call"])
    program = OAuthTestClient(server.base, client_id)
    answer = await program.post(
        auth=(client_id, secret), grant_type="client_credentials", scope="mcp:list mcp:call mcp:admin"
    )
    token = answer.json()
    assert (answer.status_code, token["scope"], "refresh_token" in token) == (200, "mcp:call mcp:list", False)
    caller = await server.house.identity.authenticate({"authorization": f"Bearer {token['access_token']}"}, "")
    assert (caller.principal, caller.client) == ("default/service:nightly", client_id)
    assert (await server.as_(token["access_token"]).post("tools/list")).status_code == 200
    for wrong in ((client_id, "x"), (client_id, ""), ("gths_nobody", secret)):
        assert (await program.post(auth=wrong, grant_type="client_credentials")).status_code in (400, 401)
    await clients(server).remove(client_id)
    assert (await server.as_(token["access_token"]).post("tools/list")).status_code == 401
    assert (await program.post(auth=(client_id, secret), grant_type="client_credentials")).status_code in (400, 401)


async def test_a_client_that_registered_itself_gets_no_token_without_a_person(server: Any) -> None:
    program = await OAuthTestClient.register(server.base, token_endpoint_auth_method="client_secret_basic")
    answer = await program.post(auth=(program.id, program.secret), grant_type="client_credentials")
    assert (answer.status_code, answer.json()["error"]) == (400, "unauthorized_client")
    public = await OAuthTestClient.register(server.base)
    assert (await public.post(grant_type="client_credentials")).json()["error"] == "invalid_client"


@pytest.mark.parametrize("identity_database", ["sqlite", "postgres"], indirect=True)
async def test_threat_35_when_too_many_have_registered_the_oldest_that_nobody_used_makes_room(server: Any) -> None:
    house, clock = server.house, Clock()
    pepper = load_secret(house.settings.data_dir / "secrets", "pepper")
    few = RegisteredClients(house.database, pepper, house.identity.revocations, most=3, clock=clock)

    async def register() -> str:
        clock.now += 60
        return (await few.register("x", ["http://127.0.0.1/cb"], "none", ["authorization_code"]))["client_id"]

    used, oldest, newer = [await register() for _ in range(3)]
    await few.used(used)
    with pytest.raises(Fault) as refused:
        await register()
    assert refused.value.kind is Kind.RATE_LIMITED, "somebody may be signing in with each of them"
    clock.now += 600
    newest = await register()
    assert [await few.find(each) is not None for each in (used, oldest, newer, newest)] == [True, False, True, True]
    for each in (newer, newest):
        await few.used(each)
    clock.now += 600
    with pytest.raises(Fault) as refused:
        await register()
    assert refused.value.kind is Kind.RATE_LIMITED, "all are in use"


def assertion(client_id: str, audience: str, key: Any = KEY, **changes: Any) -> str:
    now = int(time.time())
    claims: Json = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "exp": now + 60,
        "iat": now,
        "jti": secrets.token_hex(8),
        **changes,
    }
    return jwt.encode({"alg": "ES256", "kid": "k1"}, claims, key)


async def test_a_service_with_a_key_signs_for_itself_and_each_signature_is_good_once(server: Any) -> None:
    keys = public_keys(json.dumps({"keys": [KEY.as_dict(private=False)]}).encode())
    client_id, secret = await clients(server).add_service("default", "nightly", ["mcp:list"], keys)
    assert secret == ""

    async def ask(text: str) -> int:
        form = {"client_assertion_type": TYPE, "client_assertion": text, "grant_type": "client_credentials"}
        return await _post(server, form)

    once = assertion(client_id, server.base)
    assert await ask(once) == 200
    assert await ask(once) in (400, 401), "used before"
    assert await ask(assertion(client_id, f"{server.base}/oauth/token")) == 200
    other = ECKey.generate_key("P-256", private=True, parameters={"kid": "k1"})
    for wrong in (
        assertion(client_id, server.base, other),
        assertion(client_id, "https://other.example"),
        assertion(client_id, server.base, sub="somebody"),
        assertion(client_id, server.base, exp=int(time.time()) - 60),
        assertion(client_id, server.base, exp=int(time.time()) + 86400),
        assertion(client_id, server.base, jti=None),
    ):
        assert await ask(wrong) in (400, 401)


async def _post(server: Any, form: Json) -> int:
    async with httpx.AsyncClient(verify=False) as http:
        return (await http.post(f"{server.base}/oauth/token", data=form)).status_code


# ---- documents

ID = "https://client.example/app.json"
GOOD: Json = {"client_id": ID, "client_name": "App", "redirect_uris": ["http://127.0.0.1/cb"]}


class Site:
    """Answers each address as it is told, and counts."""

    def __init__(self, status: int = 200, body: Any = GOOD, **headers: str) -> None:
        self.asked = 0
        self.status, self.body, self.headers = status, body, headers

    def client(self) -> httpx.AsyncClient:
        def answer(request: httpx.Request) -> httpx.Response:
            self.asked += 1
            return httpx.Response(self.status, json=self.body, headers=self.headers)

        return httpx.AsyncClient(transport=httpx.MockTransport(answer))


async def test_a_document_is_read_once_and_kept_for_a_while() -> None:
    site = Site()
    documents = ClientDocuments(site.client(), ())
    for _ in range(5):
        client = await documents(ID)
        assert client is not None
    assert (client.name, client.document, client.auth_method) == ("App", "client.example", "none")
    assert site.asked == 1


@pytest.mark.parametrize(
    "body",
    [
        {**GOOD, "client_id": f"{ID}?x"},
        {**GOOD, "client_id": "https://evil.example/app.json"},
        {key: value for key, value in GOOD.items() if key != "client_name"},
        {**GOOD, "redirect_uris": ["javascript:alert(1)"]},
        {**GOOD, "token_endpoint_auth_method": "client_secret_basic"},
        {**GOOD, "client_secret": "x"},
        {**GOOD, "token_endpoint_auth_method": "private_key_jwt"},
        [],
    ],
)
async def test_a_document_that_is_not_about_itself_or_wants_a_secret_is_refused_and_not_kept(body: Any) -> None:
    site = Site(body=body)
    documents = ClientDocuments(site.client(), ())
    assert await documents(ID) is None
    assert await documents(ID) is None
    assert site.asked == 2
    with pytest.raises(InvalidRegistration):
        described(ID, "client.example", json.dumps(body).encode())


@pytest.mark.parametrize("status", [302, 404, 500, 201])
async def test_only_a_plain_answer_counts(status: int) -> None:
    assert await ClientDocuments(Site(status, location="https://other.example/").client(), ())(ID) is None


@pytest.mark.parametrize(
    "client_id",
    [
        "http://client.example/app.json",
        "https://client.example",
        "https://client.example/",
        "https://user@client.example/app.json",
        "https://client.example/../app.json",
        "https://client.example/a/%2e%2e/app.json",
        "https://client.example/app.json#x",
        "https://client.example/app.json?x=1",
        "https://client.example/\u00e4",
        "https://client.example/" + "a" * 600,
    ],
)
async def test_threat_13_an_address_that_could_be_read_in_two_ways_is_never_looked_at(client_id: str) -> None:
    site = Site()
    assert await ClientDocuments(site.client(), ())(client_id) is None
    assert site.asked == 0


async def test_only_hosts_that_the_operator_names_are_looked_at_where_any_is_named() -> None:
    site = Site()
    documents = ClientDocuments(site.client(), ("client.example",))
    assert await documents("https://evilclient.example/app.json") is None
    assert site.asked == 0
    assert await documents(ID) is not None


async def test_threat_35_a_host_is_asked_five_times_a_minute_at_most() -> None:
    site = Site(404)
    documents = ClientDocuments(site.client(), ())
    for number in range(20):
        await documents(f"https://client.example/{number}.json")
    assert site.asked == 5


class Hanging:
    """Sites that take a question and never answer it."""

    def __init__(self) -> None:
        self.asked = 0
        self.over = asyncio.Event()

    def client(self) -> httpx.AsyncClient:
        async def answer(request: httpx.Request) -> httpx.Response:
            self.asked += 1
            await self.over.wait()
            return httpx.Response(404)

        return httpx.AsyncClient(transport=httpx.MockTransport(answer))


async def test_threat_35_one_visitor_has_only_so_many_fetched_whatever_the_names_of_the_hosts() -> None:
    site = Site(404)
    documents = ClientDocuments(site.client(), ())
    for number in range(10):
        assert await documents(f"https://n{number}.evil.example/app.json", "192.0.2.1") is None
    with pytest.raises(Fault) as refused:
        await documents("https://n10.evil.example/app.json", "192.0.2.1")
    assert (refused.value.kind, site.asked) == (Kind.RATE_LIMITED, 10)
    await documents("https://n10.evil.example/app.json", "192.0.2.2")
    assert site.asked == 11, "another visitor is not held up"


async def test_threat_35_so_many_are_fetched_at_once_and_those_that_are_known_need_no_fetch() -> None:
    good = ClientDocuments(Site().client(), ())
    assert good.known(ID) is None
    await good(ID)
    assert good.known(ID) is not None
    hanging = Hanging()
    documents = ClientDocuments(hanging.client(), ())
    ids = [f"https://n{number}.evil.example/app.json" for number in range(16)]
    asking = [asyncio.ensure_future(documents(each, each)) for each in ids]
    while hanging.asked < 16:
        await asyncio.sleep(0)
    with pytest.raises(Fault) as refused:
        await documents(ID)
    assert (refused.value.kind, hanging.asked) == (Kind.RATE_LIMITED, 16)
    hanging.over.set()
    assert await asyncio.gather(*asking) == [None] * 16


async def test_threat_35_a_stranger_whose_document_never_comes_holds_up_nobody_else(start: Any) -> None:
    """Requests that wait for a stranger's server take none of the threads that revocations and others need."""
    connected: list[Any] = []
    never = asyncio.Event()

    async def take(reader: Any, writer: Any) -> None:
        connected.append(writer)
        await never.wait()
        writer.close()

    hosts = [f"127.0.1.{n}" for n in range(1, 13)]
    first = await asyncio.start_server(take, hosts[0], 0)
    port = first.sockets[0].getsockname()[1]
    others = await asyncio.start_server(take, hosts[1:], port)
    auth = {**FREE, "client_documents": True, "client_document_private_hosts": hosts}
    async with start(auth=auth) as gateway, httpx.AsyncClient(verify=False, timeout=60) as http:

        async def ask(host: str) -> httpx.Response:
            form = {"grant_type": "authorization_code", "client_id": f"https://{host}:{port}/c", "code": "x"}
            return await http.post(f"{gateway.base}/oauth/token", data=form)

        asking = [asyncio.ensure_future(ask(host)) for host in hosts]
        try:
            while len(connected) < 6:  # as many threads as this process shares on two cores
                await asyncio.sleep(0.01)
            assert await asyncio.to_thread(lambda: "free") == "free"
            program = await OAuthTestClient.register(gateway.base)
            assert (await program.redeem("nothing", "x" * 43)).json()["error"] == "invalid_grant"
            assert sum(each.done() for each in asking) <= 2, "the strangers are still waited for"
        finally:
            never.set()
            answers = await asyncio.gather(*asking)
        assert sorted(answer.status_code for answer in answers) in ([400] * 10 + [429] * 2, [401] * 10 + [429] * 2)
    for server in (first, others):
        server.close()


async def test_threat_13_a_document_in_a_private_network_is_not_fetched(start: Any) -> None:
    async with start(auth={**FREE, "client_documents": True}) as gateway, httpx.AsyncClient(verify=False) as http:
        for host in ("127.0.0.1", "169.254.169.254", "10.0.0.1", "localhost"):
            program = OAuthTestClient(gateway.base, f"https://{host}/app.json")
            answer = await http.get(program.authorization_url("a" * 43))
            assert (answer.status_code, "location" in answer.headers) == (400, False)
