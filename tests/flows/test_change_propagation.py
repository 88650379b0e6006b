"""A write of one process reaches three others within a second: on one SQLite file, and on PostgreSQL with Valkey."""

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from sqlalchemy import text

from gateway.auth.api_keys import ApiKeys
from gateway.auth.browser_sessions import BrowserSessions
from gateway.auth.revocations import Revocations
from gateway.auth.server.clients import RegisteredClients
from gateway.auth.signing_keys import SigningKeys
from gateway.auth.users import Users
from gateway.contract.caller import DEFAULT_SCOPES
from gateway.state.catalogue_rows import CatalogueRows
from gateway.state.database import Database
from gateway.state.secrets import load_secret
from gateway.state.tenants import Tenants
from tests.flows.process import Served, is_ready, modern, modern_headers, starting, until, write_settings
from tests.peers.oauth_flow import BrowserUser, OAuthTestClient
from tests.peers.raw_server import raw_server
from tests.servers import Valkey

PROPAGATION = 1.0
"""Seconds within which a change must reach the other processes."""
TOLERANCE = 1.0
"""Additional seconds for a busy machine."""
HANDSHAKE = "2025-11-25"
Json = dict[str, Any]


@dataclass(frozen=True)
class Trio:
    """Three processes that issue and accept tokens of the first one's URL, as behind a load balancer."""

    served: tuple[Served, ...]
    data_dir: Path
    database_url: str | None


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


async def _create_database(server: str) -> str:
    name = f"t{secrets.token_hex(6)}"
    connection = await asyncpg.connect(server)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def trio(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """Three gateway processes with one data folder."""
    folder = tmp_path_factory.mktemp("trio")
    shared: Json = {}
    bases = [f"http://127.0.0.1:{port}" for port in free_ports(3)]
    if request.param == "postgres":
        valkey: Valkey = request.getfixturevalue("_shared_valkey")
        database_url = asyncio.run(_create_database(request.getfixturevalue("postgres")))
        shared = {"database": {"url": database_url}, "bus": {"url": valkey.url, "prefix": folder.name}}
    write_settings(
        folder,
        server={"public_url": bases[0]},
        backends={"plain": {"module": "tests.flows.fixtures.plain"}},
        limits={"calls": "1000000/minute"},
        auth={"registration_rate": "1000/minute", "authorize_rate": "10000/minute"},
        tenants={"default": {}, "acme": {}},
        **shared,
    )
    with ExitStack() as stack:
        started = [
            stack.enter_context(starting(folder, "--port", base.rpartition(":")[2], name=f"serve-{number}"))
            for number, base in enumerate(bases)
        ]
        # Each process prints the public URL, not the address that it listens on.
        served = tuple(replace(ready(), base=base) for ready, base in zip(started, bases, strict=True))
        for base in bases:
            until(lambda base=base: is_ready(base), "readiness")
        yield Trio(served, folder / ".gatehouse", shared.get("database", {}).get("url"))


@pytest.fixture
async def database(trio: Trio) -> AsyncGenerator[Database]:
    """The database of the three processes, opened by a fourth."""
    database = await Database.open(trio.data_dir, trio.database_url)
    yield database
    await database.close()


@pytest.fixture
async def http() -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=30, verify=False, trust_env=False) as client:
        yield client


@pytest.fixture
def keys(trio: Trio, database: Database) -> ApiKeys:
    return ApiKeys(database, load_secret(trio.data_dir / "secrets", "pepper"))


@pytest.fixture
async def users(database: Database) -> Users:
    return Users(database, await Revocations.open(database))


Serves = Callable[[str], Awaitable[list[bool]]]


@pytest.fixture
def serves(trio: Trio, http: httpx.AsyncClient) -> Serves:
    """Return for each process whether it accepts the credential."""

    async def ask(served: Served, credential: str) -> bool:
        headers = {"authorization": f"Bearer {credential}", "accept": "application/json, text/event-stream"}
        headers |= modern_headers("tools/list")
        answer = await http.post(served.url, json=modern("tools/list"), headers=headers)
        return answer.status_code == 200 and "result" in answer.json()

    async def ask_all(credential: str) -> list[bool]:
        return list(await asyncio.gather(*(ask(served, credential) for served in trio.served)))

    return ask_all


async def reaches_all(check: Callable[[], Awaitable[list[bool]]]) -> None:
    """Wait until `check` holds for every process. Fail unless it does within a second."""
    since = time.monotonic()
    async with asyncio.timeout(10):
        while not all(await check()):
            await asyncio.sleep(0.01)
    assert time.monotonic() - since < PROPAGATION + TOLERANCE


def refused(serves: Serves, credential: str) -> Callable[[], Awaitable[list[bool]]]:
    async def check() -> list[bool]:
        return [not accepted for accepted in await serves(credential)]

    return check


async def sign_in(trio: Trio, database: Database, subject: str) -> tuple[OAuthTestClient, Json]:
    """Create a user who signs in at the first process; return the client and its tokens."""
    users = Users(database, await Revocations.open(database))
    await users.put("default", subject, None, DEFAULT_SCOPES)
    code = await BrowserSessions(database).new_code(("default", subject))
    client = await OAuthTestClient.register(trio.served[0].base)
    return client, await client.sign_in(BrowserUser(code=code), resource=trio.served[0].url)


async def test_revoked_key_is_rejected_by_all(keys: ApiKeys, serves: Serves) -> None:
    key, info = await keys.create("default", "leaver")
    other, _ = await keys.create("default", "stayer")
    assert all(await serves(key))
    assert all(await serves(other))
    assert await keys.revoke(info.id)
    await reaches_all(refused(serves, key))
    assert all(await serves(other))


async def test_deleted_key_is_rejected_by_all(keys: ApiKeys, serves: Serves, database: Database) -> None:
    key, info = await keys.create("default", "leaver")
    assert all(await serves(key))
    async with database.transaction() as connection:
        await connection.execute(text("DELETE FROM api_keys WHERE id = :id"), {"id": info.id})
    await reaches_all(refused(serves, key))


async def test_suspended_and_resumed_tenant_is_refused_and_served_by_all(
    keys: ApiKeys, serves: Serves, database: Database
) -> None:
    key, _ = await keys.create("acme", "alice")
    assert all(await serves(key))
    tenants = await Tenants.open(database)
    await tenants.change("acme", {"suspended": True})
    await reaches_all(refused(serves, key))
    await tenants.change("acme", {"suspended": False})
    await reaches_all(lambda: serves(key))


async def test_new_tenant_is_served_by_all(keys: ApiKeys, serves: Serves, database: Database) -> None:
    key, _ = await keys.create("newcomer", "alice")
    assert not any(await serves(key))
    await (await Tenants.open(database)).add("newcomer", {})
    await reaches_all(lambda: serves(key))


async def test_token_of_a_removed_user_is_rejected_by_all(
    trio: Trio, database: Database, users: Users, serves: Serves
) -> None:
    _, tokens = await sign_in(trio, database, "leaver")
    assert all(await serves(tokens["access_token"]))
    assert await users.remove("default", "leaver")
    await reaches_all(refused(serves, tokens["access_token"]))


async def test_token_of_a_deleted_client_is_rejected_by_all(trio: Trio, database: Database, serves: Serves) -> None:
    client, tokens = await sign_in(trio, database, "stayer")
    assert all(await serves(tokens["access_token"]))
    pepper = load_secret(trio.data_dir / "secrets", "pepper")
    assert await RegisteredClients(database, pepper, await Revocations.open(database)).remove(client.id)
    await reaches_all(refused(serves, tokens["access_token"]))


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_token_revoked_at_one_process_is_rejected_by_all(
    trio: Trio, database: Database, serves: Serves, kind: str
) -> None:
    client, tokens = await sign_in(trio, database, "signs-out")
    assert all(await serves(tokens["access_token"]))
    assert (await client.post("revoke", token=tokens[kind])).status_code == 200
    await reaches_all(refused(serves, tokens["access_token"]))


async def test_rotated_signing_key_is_published_by_all(trio: Trio, database: Database, http: httpx.AsyncClient) -> None:
    kid = await (await SigningKeys.open(database, load_secret(trio.data_dir / "secrets", "signing"))).rotate()

    async def published() -> list[bool]:
        answers = await asyncio.gather(*(http.get(f"{served.base}/oauth/jwks") for served in trio.served))
        return [kid in answer.text for answer in answers]

    await reaches_all(published)


async def test_session_ended_at_one_process_is_404_at_all(trio: Trio, keys: ApiKeys, http: httpx.AsyncClient) -> None:
    key, _ = await keys.create("default", "alice")
    headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    opened = await http.post(trio.served[0].url, json=message, headers=headers)
    headers |= {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": HANDSHAKE}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}

    async def statuses() -> list[int]:
        return [(await http.post(served.url, json=ping, headers=headers)).status_code for served in trio.served]

    assert await statuses() == [200] * 3
    assert (await http.delete(trio.served[1].url, headers=headers)).status_code == 204

    async def ended() -> list[bool]:
        return [status == 404 for status in await statuses()]

    await reaches_all(ended)


@pytest.mark.parametrize("trio", ["postgres"], indirect=True)
async def test_key_revoked_while_no_process_listens_is_rejected_by_all(
    trio: Trio, keys: ApiKeys, serves: Serves
) -> None:
    key, info = await keys.create("default", "leaver")
    assert all(await serves(key))
    admin = await asyncpg.connect(trio.database_url)
    # The last statement of a connection that listens is LISTEN or its heartbeat.
    listening = "FROM pg_stat_activity WHERE datname = current_database() AND query ~ '^(LISTEN .*|SELECT 1)$'"
    assert await admin.fetchval(f"SELECT count(*) {listening}") == 4, "three processes and this one"
    # One script: the revocation is committed before a process can connect again.
    await admin.execute(
        f"SELECT pg_terminate_backend(pid, 5000) {listening};"
        f" UPDATE gatehouse.api_keys SET revoked_at = 1 WHERE id = '{info.id}'"
    )
    await admin.close()
    await reaches_all(refused(serves, key))


# ---- pins: the remote server runs in the process of the test


@asynccontextmanager
async def three_gateways(run: Any, folder: Path, settings: Json) -> AsyncIterator[list[Any]]:
    async with run(folder, **settings) as one, run(folder, **settings) as two, run(folder, **settings) as three:
        yield [one, two.as_(one.key), three.as_(one.key)]


async def test_accepted_pin_is_listed_by_all(
    run: Any, tmp_path: Path, database_url: str | None, valkey_url: str, prefix: str
) -> None:
    tools = [{"name": "draw", "description": "Does it.", "inputSchema": {"type": "object"}}]
    async with raw_server(tools=tools) as raw:
        settings: Json = {"backends": {"raw": raw.entry()}, "catalogue": {"ttl": 0.1, "pins": "deny"}}
        settings["bus"] = {"url": valkey_url, "prefix": prefix}
        if database_url is not None:
            settings["database"] = {"url": database_url}
        async with three_gateways(run, tmp_path, settings) as gateways:

            async def listed() -> list[bool]:
                return ["raw_draw" in (await each.post("tools/list")).text for each in gateways]

            async def unlisted() -> list[bool]:
                return [not each for each in await listed()]

            async with asyncio.timeout(10):
                while not all(await listed()):
                    await asyncio.sleep(0.02)
            raw.tools[0] = {**tools[0], "description": "Does it differently."}
            async with asyncio.timeout(10):
                while not all(await unlisted()):
                    await asyncio.sleep(0.02)
            elsewhere = await Database.open(gateways[0].app.settings.data_dir, database_url)
            assert await CatalogueRows(elsewhere).accept("raw", None) == ["draw"]
            await reaches_all(listed)
            await elsewhere.close()
