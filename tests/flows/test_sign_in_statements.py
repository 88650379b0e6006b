"""Database work of a whole sign-in: registration, sign-in page, consent, token, MCP session, refresh."""

import asyncio
from typing import Any

import httpx
from sqlalchemy import text

from gateway.state.database import Database
from tests.conftest import Running
from tests.flows.statement_counter import count_statements
from tests.peers.oauth_flow import BrowserUser, OAuthTestClient

BACKENDS = {"plain": {"module": "tests.flows.fixtures.plain"}}
RATES = {"registration_rate": "1000/minute", "authorize_rate": "10000/minute"}
HANDSHAKE = "2025-11-25"
MAX_TRANSACTIONS = 25
REQUESTS = 11


async def post(http: httpx.AsyncClient, gateway: Running, token: str, body: dict[str, Any], session: str = "") -> Any:
    headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
    if session:
        headers |= {"mcp-session-id": session, "mcp-protocol-version": HANDSHAKE}
    answer = await http.post(gateway.url, json={"jsonrpc": "2.0", **body}, headers=headers)
    assert answer.status_code in (200, 202), answer.text
    return answer


async def sign_in_and_use(gateway: Running, user: BrowserUser) -> int:
    """Register, sign in, list tools in a session, refresh and list again. Returns the number of requests."""
    client = await OAuthTestClient.register(gateway.base)
    tokens = await client.sign_in(user)
    async with httpx.AsyncClient(timeout=30, verify=False) as http:
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        access = tokens["access_token"]
        opened = await post(http, gateway, access, {"id": 1, "method": "initialize", "params": params})
        session = opened.headers["mcp-session-id"]
        await post(http, gateway, access, {"method": "notifications/initialized"}, session)
        listed = await post(http, gateway, access, {"id": 2, "method": "tools/list"}, session)
        refreshed = await client.refresh(tokens["refresh_token"])
        assert refreshed.status_code == 200, refreshed.text
        again = await post(http, gateway, refreshed.json()["access_token"], {"id": 3, "method": "tools/list"}, session)
        assert "plain_echo" in listed.text
        assert "plain_echo" in again.text
    # Registration, the pages, the callback's redirect, the token request and the five requests above.
    return 1 + len(user.pages) + 1 + 5


async def deliver_changes(gateway: Running, elsewhere: Database, name: str) -> None:
    """Wait until the gateway has reacted to all commits so far: a change of another process arrives after them."""
    arrived = asyncio.Event()
    gateway.app.tenants.on_change(lambda: gateway.app.tenants.get(name) and arrived.set())
    async with elsewhere.transaction() as connection:
        await connection.execute(text("INSERT INTO tenants (name) VALUES (:name)"), {"name": name})
    await asyncio.wait_for(arrived.wait(), 5)


async def test_sign_in_of_11_requests_runs_at_most_25_transactions(start: Any, database_url: str | None) -> None:
    database = {} if database_url is None else {"database": {"url": database_url}}
    async with start(backends=BACKENDS, auth=RATES, **database) as gateway:
        user = BrowserUser(code=await gateway.app.identity.create_sign_in_code())
        elsewhere = await Database.open(gateway.app.settings.data_dir, database_url)
        await deliver_changes(gateway, elsewhere, "before")
        with count_statements(gateway.app.storage.database) as count:
            requests = await sign_in_and_use(gateway, user)
            await deliver_changes(gateway, elsewhere, "after")
        await elsewhere.close()
    report = (
        f"{requests} requests: {count.transactions} transactions, {count.statements} statements, {count.polls} polls"
    )
    print(report, *(f"{times} {sql}" for sql, times in count.texts.most_common()), sep="\n")
    assert requests == REQUESTS
    assert count.transactions <= MAX_TRANSACTIONS, report
