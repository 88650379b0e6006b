"""Service clients with a secret or a key, registration limits, and client metadata documents."""

import asyncio
import json
import secrets
import time
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from gateway.auth.server.client_documents import ClientDocuments, parse_document
from gateway.auth.server.clients import RegisteredClients, public_keys
from gateway.auth.server.registration import InvalidRegistration
from gateway.errors import Fault, Kind
from gateway.state.secrets import load_secret
from tests.gateway.auth.server.conftest import FREE
from tests.gateway.auth.token_issuer import Clock
from tests.peers.oauth_flow import OAuthTestClient

Json = dict[str, Any]
KEY = ECKey.generate_key("P-256", private=True, parameters={"kid": "k1"})
TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def clients(gateway: Any) -> RegisteredClients:
    app = gateway.app
    return RegisteredClients(
        app.database, load_secret(app.settings.data_dir / "secrets", "pepper"), app.identity.revocations
    )


async def test_service_gets_a_token_limited_to_its_own_scopes(server: Any) -> None:
    client_id, secret = await clients(server).add_service("default", "nightly", ["mcp:list", "mcp:call"])
    program = OAuthTestClient(server.base, client_id)
    answer = await program.post(
        auth=(client_id, secret), grant_type="client_credentials", scope="mcp:list mcp:call mcp:admin"
    )
    token = answer.json()
    assert (answer.status_code, token["scope"], "refresh_token" in token) == (200, "mcp:call mcp:list", False)
    caller = await server.app.identity.authenticate({"authorization": f"Bearer {token['access_token']}"}, "")
    assert (caller.principal, caller.client) == ("default/service:nightly", client_id)
    assert (await server.as_(token["access_token"]).post("tools/list")).status_code == 200
    for wrong in ((client_id, "x"), (client_id, ""), ("gths_unknown", secret)):
        assert (await program.post(auth=wrong, grant_type="client_credentials")).status_code in (400, 401)
    await clients(server).remove(client_id)
    assert (await server.as_(token["access_token"]).post("tools/list")).status_code == 401
    assert (await program.post(auth=(client_id, secret), grant_type="client_credentials")).status_code in (400, 401)


async def test_registered_client_cannot_use_client_credentials(server: Any) -> None:
    program = await OAuthTestClient.register(server.base, token_endpoint_auth_method="client_secret_basic")
    answer = await program.post(auth=(program.id, program.secret), grant_type="client_credentials")
    assert (answer.status_code, answer.json()["error"]) == (400, "unauthorized_client")
    public = await OAuthTestClient.register(server.base)
    assert (await public.post(grant_type="client_credentials")).json()["error"] == "invalid_client"


@pytest.mark.parametrize("identity_database", ["sqlite", "postgres"], indirect=True)
async def test_threat_35_oldest_unused_client_is_evicted_at_the_registration_limit(server: Any) -> None:
    app, clock = server.app, Clock()
    pepper = load_secret(app.settings.data_dir / "secrets", "pepper")
    few = RegisteredClients(app.database, pepper, app.identity.revocations, max_clients=3, clock=clock)

    async def register() -> str:
        clock.now += 60
        return (await few.register("x", ["http://127.0.0.1/cb"], "none", ["authorization_code"]))["client_id"]

    used, oldest, newer = [await register() for _ in range(3)]
    await few.record_use(used)
    with pytest.raises(Fault) as refused:
        await register()
    assert refused.value.kind is Kind.RATE_LIMITED, "a sign-in may be in progress with each of them"
    clock.now += 600
    newest = await register()
    assert [await few.find(each) is not None for each in (used, oldest, newer, newest)] == [True, False, True, True]
    for each in (newer, newest):
        await few.record_use(each)
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


async def test_client_assertion_is_accepted_once(server: Any) -> None:
    keys = public_keys(json.dumps({"keys": [KEY.as_dict(private=False)]}).encode())
    client_id, secret = await clients(server).add_service("default", "nightly", ["mcp:list"], keys)
    assert secret == ""

    async def request_token(text: str) -> int:
        form = {"client_assertion_type": TYPE, "client_assertion": text, "grant_type": "client_credentials"}
        return await _post(server, form)

    once = assertion(client_id, server.base)
    assert await request_token(once) == 200
    assert await request_token(once) in (400, 401), "used before"
    assert await request_token(assertion(client_id, f"{server.base}/oauth/token")) == 200
    other = ECKey.generate_key("P-256", private=True, parameters={"kid": "k1"})
    for wrong in (
        assertion(client_id, server.base, other),
        assertion(client_id, "https://other.example"),
        assertion(client_id, server.base, sub="another"),
        assertion(client_id, server.base, exp=int(time.time()) - 60),
        assertion(client_id, server.base, exp=int(time.time()) + 86400),
        assertion(client_id, server.base, jti=None),
    ):
        assert await request_token(wrong) in (400, 401)


async def _post(server: Any, form: Json) -> int:
    async with httpx.AsyncClient(verify=False) as http:
        return (await http.post(f"{server.base}/oauth/token", data=form)).status_code


# ---- documents

ID = "https://client.example/app.json"
VALID: Json = {"client_id": ID, "client_name": "App", "redirect_uris": ["http://127.0.0.1/cb"]}


class DocumentServer:
    """Returns the same response for every URL and counts the requests."""

    def __init__(self, status: int = 200, body: Any = VALID, **headers: str) -> None:
        self.requests = 0
        self.status, self.body, self.headers = status, body, headers

    def client(self) -> httpx.AsyncClient:
        def answer(request: httpx.Request) -> httpx.Response:
            self.requests += 1
            return httpx.Response(self.status, json=self.body, headers=self.headers)

        return httpx.AsyncClient(transport=httpx.MockTransport(answer))


async def test_document_is_fetched_once_and_cached() -> None:
    site = DocumentServer()
    documents = ClientDocuments(site.client(), ())
    for _ in range(5):
        client = await documents(ID)
        assert client is not None
    assert (client.name, client.document, client.auth_method) == ("App", "client.example", "none")
    assert site.requests == 1


@pytest.mark.parametrize(
    "body",
    [
        {**VALID, "client_id": f"{ID}?x"},
        {**VALID, "client_id": "https://evil.example/app.json"},
        {key: value for key, value in VALID.items() if key != "client_name"},
        {**VALID, "redirect_uris": ["javascript:alert(1)"]},
        {**VALID, "token_endpoint_auth_method": "client_secret_basic"},
        {**VALID, "client_secret": "x"},
        {**VALID, "token_endpoint_auth_method": "private_key_jwt"},
        [],
    ],
)
async def test_invalid_document_is_rejected_and_not_cached(body: Any) -> None:
    site = DocumentServer(body=body)
    documents = ClientDocuments(site.client(), ())
    assert await documents(ID) is None
    assert await documents(ID) is None
    assert site.requests == 2
    with pytest.raises(InvalidRegistration):
        parse_document(ID, "client.example", json.dumps(body).encode())


@pytest.mark.parametrize("status", [302, 404, 500, 201])
async def test_only_status_200_is_accepted(status: int) -> None:
    assert await ClientDocuments(DocumentServer(status, location="https://other.example/").client(), ())(ID) is None


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
async def test_threat_13_ambiguous_url_is_never_fetched(client_id: str) -> None:
    site = DocumentServer()
    assert await ClientDocuments(site.client(), ())(client_id) is None
    assert site.requests == 0


async def test_only_configured_domains_are_fetched() -> None:
    site = DocumentServer()
    documents = ClientDocuments(site.client(), ("client.example",))
    assert await documents("https://evilclient.example/app.json") is None
    assert site.requests == 0
    assert await documents(ID) is not None


async def test_threat_35_a_host_gets_at_most_five_requests_a_minute() -> None:
    site = DocumentServer(404)
    documents = ClientDocuments(site.client(), ())
    for number in range(20):
        await documents(f"https://client.example/{number}.json")
    assert site.requests == 5


class HangingServer:
    """Accepts requests and does not respond until `released` is set."""

    def __init__(self) -> None:
        self.requests = 0
        self.released = asyncio.Event()

    def client(self) -> httpx.AsyncClient:
        async def answer(request: httpx.Request) -> httpx.Response:
            self.requests += 1
            await self.released.wait()
            return httpx.Response(404)

        return httpx.AsyncClient(transport=httpx.MockTransport(answer))


async def test_threat_35_fetches_are_limited_by_client_address_across_hosts() -> None:
    site = DocumentServer(404)
    documents = ClientDocuments(site.client(), ())
    for number in range(10):
        assert await documents(f"https://n{number}.evil.example/app.json", "192.0.2.1") is None
    with pytest.raises(Fault) as refused:
        await documents("https://n10.evil.example/app.json", "192.0.2.1")
    assert (refused.value.kind, site.requests) == (Kind.RATE_LIMITED, 10)
    await documents("https://n10.evil.example/app.json", "192.0.2.2")
    assert site.requests == 11, "another address has its own limit"


async def test_threat_35_concurrent_fetches_are_limited_and_cached_documents_need_none() -> None:
    cached = ClientDocuments(DocumentServer().client(), ())
    assert cached.cached(ID) is None
    await cached(ID)
    assert cached.cached(ID) is not None
    hanging = HangingServer()
    documents = ClientDocuments(hanging.client(), ())
    ids = [f"https://n{number}.evil.example/app.json" for number in range(16)]
    pending = [asyncio.ensure_future(documents(each, each)) for each in ids]
    while hanging.requests < 16:
        await asyncio.sleep(0)
    with pytest.raises(Fault) as refused:
        await documents(ID)
    assert (refused.value.kind, hanging.requests) == (Kind.RATE_LIMITED, 16)
    hanging.released.set()
    assert await asyncio.gather(*pending) == [None] * 16


async def test_threat_35_hanging_document_server_does_not_block_other_requests(start: Any) -> None:
    """Requests that wait for a client's web server do not occupy the threads that other requests need."""
    connected: list[Any] = []
    never = asyncio.Event()

    async def accept(reader: Any, writer: Any) -> None:
        connected.append(writer)
        await never.wait()
        writer.close()

    hosts = [f"127.0.1.{n}" for n in range(1, 13)]
    first = await asyncio.start_server(accept, hosts[0], 0)
    port = first.sockets[0].getsockname()[1]
    others = await asyncio.start_server(accept, hosts[1:], port)
    auth = {**FREE, "client_documents": True, "client_document_private_hosts": hosts}
    async with start(auth=auth) as gateway, httpx.AsyncClient(verify=False, timeout=60) as http:

        async def request_token(host: str) -> httpx.Response:
            form = {"grant_type": "authorization_code", "client_id": f"https://{host}:{port}/c", "code": "x"}
            return await http.post(f"{gateway.base}/oauth/token", data=form)

        pending = [asyncio.ensure_future(request_token(host)) for host in hosts]
        try:
            while len(connected) < 6:  # the size of the default thread pool on two cores
                await asyncio.sleep(0.01)
            assert await asyncio.to_thread(lambda: "free") == "free"
            program = await OAuthTestClient.register(gateway.base)
            assert (await program.redeem("nothing", "x" * 43)).json()["error"] == "invalid_grant"
            assert sum(each.done() for each in pending) <= 2, "the hanging requests are still pending"
        finally:
            never.set()
            answers = await asyncio.gather(*pending)
        assert sorted(answer.status_code for answer in answers) in ([400] * 10 + [429] * 2, [401] * 10 + [429] * 2)
    for server in (first, others):
        server.close()


async def test_threat_13_document_in_a_private_network_is_not_fetched(start: Any) -> None:
    async with start(auth={**FREE, "client_documents": True}) as gateway, httpx.AsyncClient(verify=False) as http:
        for host in ("127.0.0.1", "169.254.169.254", "10.0.0.1", "localhost"):
            program = OAuthTestClient(gateway.base, f"https://{host}/app.json")
            answer = await http.get(program.authorization_url("a" * 43))
            assert (answer.status_code, "location" in answer.headers) == (400, False)
