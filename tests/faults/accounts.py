"""Accounts on three replicas with PostgreSQL and Valkey: interleaved calls of four users, and replicas that are killed.

`python -m tests.faults.accounts` runs the long form; `tests/flows/test_account_replicas.py` the short one.
"""

import asyncio
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import asyncpg
import httpx

from gateway.auth.api_keys import ApiKeys
from gateway.auth.revocations import Revocations
from gateway.auth.users import Users
from gateway.contract.caller import DEFAULT_SCOPES
from gateway.state.database import Database
from gateway.state.secrets import load_secret
from tests.flows.process import environment, modern, modern_headers, write_settings
from tests.peers.account_server import AccountServer
from tests.peers.account_user import AccountUser
from tests.servers import Valkey, postgres_server

Json = dict[str, Any]
USERS = tuple(itertools.product(("default", "globex"), ("alice", "bob")))
Step = Literal["received", "rotated", "answered"]
STEPS: tuple[Step, ...] = ("received", "rotated", "answered")
"""Where the refreshing replica is killed: before the server rotates the token, before it answers, before the commit."""


@dataclass
class Replica:
    folder: Path
    settings: Path
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        log = (self.folder / f"{self.port}.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.flows.second_gateway", str(self.settings)],
            env=environment(),
            stdout=log,
            stderr=log,
        )
        log.close()
        async with httpx.AsyncClient(trust_env=False) as http, asyncio.timeout(120):
            while True:
                assert self.process.poll() is None, (self.folder / f"{self.port}.log").read_text()[-2000:]
                try:
                    if (await http.get(f"{self.base}/readyz")).status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)

    async def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        while self.process.poll() is None:
            await asyncio.sleep(0.01)


@dataclass
class AccountSite:
    """Three replicas, their database, the remote server, and an API key for each user."""

    folder: Path
    server: AccountServer
    replicas: list[Replica]
    database_url: str
    keys: dict[tuple[str, str], str] = field(default_factory=dict)

    async def call(self, http: httpx.AsyncClient, replica: Replica, user: tuple[str, str]) -> Json:
        params = {"name": "hub_whoami", "arguments": {}}
        body, headers = modern("tools/call", params), modern_headers("tools/call", params)
        headers |= {"authorization": f"Bearer {self.keys[user]}", "accept": "application/json, text/event-stream"}
        return (await http.post(f"{replica.base}/mcp", json=body, headers=headers)).json()

    async def connect(self, user: tuple[str, str]) -> None:
        """Connect the account `TENANT-NAME` of the remote server."""
        tenant, name = user
        self.server.login = f"{tenant}-{name}"
        page = await AccountUser(f"{tenant}/{name}", f"pw-{name}-0000").connect(
            f"{self.replicas[0].base}/accounts/connect/hub"
        )
        assert "hub is connected" in page.text, page.text

    async def states(self) -> dict[str, str]:
        connection = await asyncpg.connect(self.database_url)
        try:
            return {
                row["principal"]: row["state"] for row in await connection.fetch("SELECT * FROM gatehouse.accounts")
            }
        finally:
            await connection.close()

    async def dump(self) -> str:
        """All rows of all tables, and all logs."""
        connection = await asyncpg.connect(self.database_url)
        try:
            tables = await connection.fetch(
                "SELECT schemaname, tablename FROM pg_tables"
                " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
            )
            rows = [
                repr(await connection.fetch(f'SELECT * FROM "{each["schemaname"]}"."{each["tablename"]}"'))
                for each in tables
            ]
        finally:
            await connection.close()
        files = [path.read_bytes().decode("utf-8", "replace") for path in self.folder.rglob("*") if path.is_file()]
        return "".join((*rows, *files))


@asynccontextmanager
async def account_site(folder: Path, server: AccountServer, postgres: str, valkey: str) -> AsyncIterator[AccountSite]:
    """Start everything; every user is connected. `postgres` is the URL of a server, on which a database is created."""
    name = f"t{secrets.token_hex(6)}"
    admin = await asyncpg.connect(postgres)
    await admin.execute(f"CREATE DATABASE {name}")
    database_url = postgres.replace("/postgres?", f"/{name}?")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(admin.close)
        ports = [_free_port() for _ in range(3)]
        replicas = [Replica(folder, folder / f"{port}.yaml", port) for port in ports]
        for replica in replicas:
            file = write_settings(
                folder,
                data_dir=str(folder / "data"),
                server={"port": replica.port, "public_url": replicas[0].base},
                database={"url": database_url},
                bus={"url": valkey, "prefix": name},
                tenants={"default": {}, "globex": {}},
                backends={"hub": {"url": server.url, "allow_private": True, "account": {"oauth": {}}}},
                limits={"calls": "1000000/minute"},
                auth={"authorize_rate": "10000/minute", "token_rate": "10000/minute"},
                log={"level": "debug", "format": "json"},
            )
            file.rename(replica.settings)
        site = AccountSite(folder, server, replicas, database_url)
        await site.replicas[0].start()
        stack.push_async_callback(_stop, site)
        await asyncio.gather(*(replica.start() for replica in replicas[1:]))
        await _add_users(site)
        for user in USERS:
            await site.connect(user)
        yield site


async def _stop(site: AccountSite) -> None:
    for replica in site.replicas:
        if replica.process is not None and replica.process.poll() is None:
            await replica.kill(signal.SIGTERM)


async def _add_users(site: AccountSite) -> None:
    database = await Database.open(site.folder / "data", site.database_url)
    try:
        users = Users(database, await Revocations.open(database))
        keys = ApiKeys(database, load_secret(site.folder / "data" / "secrets", "pepper"))
        for tenant, name in USERS:
            await users.put(tenant, name, f"pw-{name}-0000", DEFAULT_SCOPES)
            site.keys[(tenant, name)] = (await keys.create(tenant, name))[0]
        await keys.close()
    finally:
        await database.close()


async def interleave(site: AccountSite, calls: int, concurrency: int) -> tuple[int, list[str]]:
    """Call as all users in turn, over all replicas. Return the number of calls, and those with a wrong answer."""
    work = itertools.islice(itertools.cycle(itertools.product(USERS, site.replicas)), calls * len(USERS))
    wrong: list[str] = []
    done = itertools.count()
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with httpx.AsyncClient(timeout=60, trust_env=False, limits=limits) as http:

        async def worker() -> None:
            for user, replica in work:
                answer = await site.call(http, replica, user)
                try:
                    seen = answer["result"]["content"][0]["text"]
                except KeyError:
                    seen = json.dumps(answer)
                if seen != "-".join(user):
                    wrong.append(f"{user}: {seen}")
                next(done)

        await asyncio.gather(*(worker() for _ in range(concurrency)))
    return next(done), wrong


def refresh_gaps(server: AccountServer) -> dict[str, list[float]]:
    """Seconds between consecutive tokens of each account."""
    times: dict[str, list[float]] = {}
    for issued in server.access.values():
        times.setdefault(issued.subject, []).append(issued.expires - server.lifetime)
    return {
        subject: [later - earlier for earlier, later in itertools.pairwise(sorted(each))]
        for subject, each in times.items()
    }


async def kill_round(site: AccountSite, step: Step, victim: Replica, survivor: Replica) -> bool:
    """Kill the replica that refreshes the first user's token at this step. Return whether the account survived."""
    user, subject = USERS[0], "-".join(USERS[0])
    reached, gone = asyncio.Event(), asyncio.Event()
    locked = await asyncpg.connect(site.database_url)
    transaction = locked.transaction()

    async def on_refresh(at: str, who: str) -> None:
        if who != subject or gone.is_set() or reached.is_set():
            return
        if step == "answered" and at == "rotated":
            # The commit of the answer waits for this lock.
            await transaction.start()
            await locked.execute(
                "SELECT 1 FROM gatehouse.accounts WHERE principal = $1 FOR UPDATE", "/user:".join(user)
            )
            reached.set()
        elif at == step:
            reached.set()
            await gone.wait()
            if step == "received":
                raise ConnectionError("the server did not process the request")

    site.server.on_refresh = on_refresh
    for token in site.server.access.values():
        if token.subject == subject:
            token.revoked = True  # the next call refreshes
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        doomed = asyncio.create_task(site.call(http, victim, user))
        async with asyncio.timeout(60):
            await reached.wait()
            if step == "answered":
                await _until_commit_waits(site)
        await victim.kill()
        gone.set()
        await asyncio.gather(doomed, return_exceptions=True)
        if step == "answered":
            await transaction.rollback()
        await locked.close()
        site.server.on_refresh = None
        answer = await site.call(http, survivor, user)
    return answer["result"]["content"][0]["text"] == subject


async def _until_commit_waits(site: AccountSite) -> None:
    connection = await asyncpg.connect(site.database_url)
    try:
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE accounts%'"
        while not await connection.fetchval(query):
            await asyncio.sleep(0.01)
    finally:
        await connection.close()


async def kill_rounds(site: AccountSite, rounds: int, report: Callable[[str], None]) -> dict[Step, int]:
    """Kill at each step in turn. Return how often the account was lost, by step; it is connected again after that."""
    lost: dict[Step, int] = dict.fromkeys(STEPS, 0)
    for number in range(rounds):
        step = STEPS[number % len(STEPS)]
        victim, survivor = site.replicas[1 + number % 2], site.replicas[2 - number % 2]
        survived = await kill_round(site, step, victim, survivor)
        states = await site.states()
        expected = {"default/user:alice": "connected" if survived else "reconnect"}
        assert states == {"/user:".join(user): "connected" for user in USERS} | expected, states
        if not survived:
            lost[step] += 1
            await site.connect(USERS[0])
        report(f"round {number + 1}: killed at {step}: {'kept' if survived else 'reconnect needed'}")
        await victim.start()
    return lost


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


async def main() -> None:
    calls, rounds = int(os.environ.get("CALLS", "500")), int(os.environ.get("ROUNDS", "20"))
    valkey = Valkey()
    with postgres_server() as postgres:
        for grace in (60.0, 0.0):
            server = AccountServer(lifetime=5.0, grace=0.0)
            with tempfile.TemporaryDirectory(prefix="gatehouse-accounts-") as folder:
                async with server.running(), account_site(Path(folder), server, postgres, valkey.url) as site:
                    if grace:
                        made, wrong = await interleave(site, calls, 64)
                        gaps = refresh_gaps(server)
                        shortest = min((gap for each in gaps.values() for gap in each), default=0.0)
                        print(f"{made} calls, {len(wrong)} with a wrong account, {len(server.rejected)} refused tokens")
                        print(f"refreshes {dict(server.refreshes)}, shortest time between two {shortest:.2f} s")
                        assert not wrong, wrong[:5]
                        assert not server.rejected
                        assert not server.refused_grants
                        assert shortest >= 4.4
                    server.lifetime, server.grace = 3600.0, grace
                    for user in USERS:
                        await site.connect(user)
                    lost = await kill_rounds(site, rounds, print)
                    print(f"grace {grace:g} s: {rounds} rounds, lost {lost}")
                    assert lost == dict.fromkeys(STEPS, 0) if grace else lost["received"] == 0
                    leaks = "canary-" in await site.dump()
                    print(f"tokens in the database or the logs: {'some' if leaks else 'none'}")
                    assert not leaks
    valkey.stop()


if __name__ == "__main__":
    asyncio.run(main())
