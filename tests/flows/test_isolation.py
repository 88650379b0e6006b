"""Two tenants with identical object names use one gateway: no value of one tenant reaches the other."""

import asyncio
import itertools
import json
import sqlite3
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.conftest import Running, run_gateway
from tests.flows.process import HANDSHAKE, modern, modern_headers

Json = dict[str, Any]
TENANTS = ("alpha", "beta")
TIMEOUT = 10.0
TOPICS = st.sampled_from(["rent", "menu", "wiring"])
BOTH = st.sampled_from(TENANTS)
_numbers = itertools.count(1)


class Loop:
    """An event loop in its own thread, which runs the gateway between the steps of the state machine."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class TenantClient:
    """A client of one tenant: what it received, and the values that only it may receive."""

    def __init__(self, tenant: str, base: str, key: str) -> None:
        self.tenant = tenant
        self.mark = f"mark-of-{tenant}"
        self.url = f"{base}/mcp"
        self.headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
        # One HTTP client for all requests: creating one takes longer than a request.
        self.http = httpx.Client(timeout=60, trust_env=False, verify=False)
        self.ids: dict[str, list[str]] = {"entry": [], "run": [], "session": []}
        self.responses: list[str] = []
        self.events: list[str] = []
        self._stream = threading.Thread(target=self._listen, daemon=True)
        self._stream.start()
        self.wait_until(lambda: any("acknowledged" in line for line in self.events))

    def _listen(self) -> None:
        params = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["knowledge://entries"]}}
        headers = self.headers | modern_headers("subscriptions/listen")
        body = modern("subscriptions/listen", params)
        with self.http.stream("POST", self.url, json=body, headers=headers) as answer:
            self.events.extend(line for line in answer.iter_lines() if line.startswith("data:"))

    def post(self, message: Json, **headers: str) -> httpx.Response:
        return self.http.post(self.url, json=message, headers=self.headers | headers)

    def request(self, method: str, params: Json | None = None, *, echoes: bool = False) -> Json:
        """Send one request. Record the response, unless it `echoes` the arguments."""
        correlation = f"{self.mark}-{next(_numbers)}"
        answer = self.post(
            modern(method, params), **modern_headers(method, params), **{"x-correlation-id": correlation}
        )
        if not echoes:
            self.responses.append(answer.text)
        return json.loads(answer.text.replace(correlation, "CORRELATION"))

    def call(self, tool: str, arguments: Json, *, echoes: bool = False) -> Json:
        return self.request("tools/call", {"name": tool, "arguments": arguments}, echoes=echoes)

    def updates(self) -> int:
        return sum("resources/updated" in line for line in self.events)

    def wait_until(self, condition: Any) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.005)


class TwoTenantGateway:
    def __init__(self, folder: Path) -> None:
        self.loop = Loop()
        self.folder = folder
        self.exit = AsyncExitStack()
        self.running: Running = self.loop.run(self._open())
        self.members = {
            tenant: TenantClient(tenant, self.running.base, self.loop.run(self.running.new_key(tenant, "alice")))
            for tenant in TENANTS
        }

    async def _open(self) -> Running:
        opened = run_gateway(
            self.folder, tenants={name: {} for name in ("default", *TENANTS)}, limits={"calls": "1000000/minute"}
        )
        return await self.exit.enter_async_context(opened)

    def close(self) -> None:
        self.loop.run(self.exit.aclose())
        self.loop.stop()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoTenantGateway]:
    gateway = TwoTenantGateway(tmp_path_factory.mktemp("isolation"))
    try:
        yield gateway
    finally:
        gateway.close()


def other_tenant(tenant: str) -> str:
    return TENANTS[1 - TENANTS.index(tenant)]


class Isolation(RuleBasedStateMachine):
    gateway: TwoTenantGateway

    @initialize()
    def create_one_object_of_every_kind(self) -> None:
        for who in TENANTS:
            self.store(who, "rent")
            self.run(who)
            self.session(who)

    @rule(who=BOTH, topic=TOPICS)
    def store(self, who: str, topic: str) -> None:
        me, peer = self.gateway.members[who], self.gateway.members[other_tenant(who)]
        mine, theirs = me.updates(), peer.updates()
        answer = me.call("knowledge_store", {"topic": topic, "content": f"{me.mark} {next(_numbers)}"})
        assert answer["result"]["isError"] is False, answer
        me.ids["entry"].append(answer["result"]["structuredContent"]["id"])
        me.wait_until(lambda: me.updates() > mine)
        assert peer.updates() == theirs

    @rule(who=BOTH, topic=TOPICS)
    def query(self, who: str, topic: str) -> None:
        me = self.gateway.members[who]
        answer = me.call("knowledge_query", {"topic": topic})
        assert self.gateway.members[other_tenant(who)].mark not in json.dumps(answer)

    @rule(who=BOTH, uri=st.sampled_from(["knowledge://entries", "knowledge://history/transactions", "gox://runs"]))
    def read(self, who: str, uri: str) -> None:
        self.gateway.members[who].request("resources/read", {"uri": uri})

    @rule(who=BOTH)
    def lists(self, who: str) -> None:
        for method in ("tools/list", "resources/list", "server/discover"):
            self.gateway.members[who].request(method)
        self.gateway.members[who].call("workflow_list", {})
        self.gateway.members[who].call("knowledge_history", {})

    @rule(who=BOTH)
    def run(self, who: str) -> None:
        me = self.gateway.members[who]
        steps = [{"id": "one", "actionId": "core.ping"}]
        answer = me.call("workflow_run", {"definition": {"id": me.mark, "steps": steps}})
        me.ids["run"].append(answer["result"]["structuredContent"]["runId"])
        me.call("workflow_status", {"runId": me.ids["run"][-1], "waitMs": 5000})

    @rule(who=BOTH)
    def session(self, who: str) -> None:
        me = self.gateway.members[who]
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "alice", "version": "1"}}
        answer = me.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        me.ids["session"].append(answer.headers["mcp-session-id"])

    @rule(who=BOTH)
    def foreign_id_answers_like_an_unknown_one(self, who: str) -> None:
        me, peer = self.gateway.members[who], self.gateway.members[other_tenant(who)]
        for kind, probes in PROBES.items():
            for foreign in peer.ids[kind][-1:]:
                unknown = foreign[:-4] + ("0000" if not foreign.endswith("0000") else "1111")
                for probe in probes:
                    assert probe(me, foreign) == probe(me, unknown).replace(unknown, foreign), kind

    @rule(who=BOTH)
    def backend_change_affects_one_tenant_only(self, who: str) -> None:
        tenants = self.gateway.running.app.tenants
        before = self.names(other_tenant(who))
        self.gateway.loop.run(tenants.change(who, {"backends": ["core", "knowledge", "workflow"]}))
        assert not any(name.startswith("project_") for name in self.names(who))
        assert self.names(other_tenant(who)) == before
        self.gateway.loop.run(tenants.change(who, {"backends": ["*"]}))
        assert "project_workspace_stats" in self.names(who)

    def names(self, who: str) -> list[str]:
        return [tool["name"] for tool in self.gateway.members[who].request("tools/list")["result"]["tools"]]

    @invariant()
    def no_value_of_one_tenant_reached_the_other(self) -> None:
        for who, me in self.gateway.members.items():
            peer = self.gateway.members[other_tenant(who)]
            secrets = [peer.mark, *peer.ids["entry"], *peer.ids["run"], *peer.ids["session"]]
            for text in (*me.responses, *me.events):
                assert not [secret for secret in secrets if secret in text]
            me.responses.clear()


def _tool(name: str, key: str) -> Any:
    def probe(me: TenantClient, id: str) -> str:
        return json.dumps(me.call(name, {key: id}, echoes=True))

    return probe


def _resource(template: str) -> Any:
    def probe(me: TenantClient, id: str) -> str:
        return json.dumps(me.request("resources/read", {"uri": template + id}, echoes=True))

    return probe


def _ping(me: TenantClient, session: str) -> str:
    headers = {"mcp-session-id": session, "mcp-protocol-version": HANDSHAKE, "x-correlation-id": "same"}
    answer = me.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, **headers)
    return f"{answer.status_code} {answer.text}"


PROBES: dict[str, list[Any]] = {
    "entry": [
        _tool("knowledge_delete", "id"),
        _tool("knowledge_update", "id"),
        _resource("knowledge://entries/"),
    ],
    "run": [
        _tool("workflow_status", "runId"),
        _tool("workflow_logs", "runId"),
        _tool("workflow_cancel", "runId"),
        _resource("gox://runs/"),
    ],
    "session": [_ping],
}


def test_threat_1_no_value_of_one_tenant_reaches_another_tenant(gateway: TwoTenantGateway) -> None:
    machine = type("Bound", (Isolation,), {"gateway": gateway})
    bounded = settings(
        max_examples=8,
        stateful_step_count=15,
        deadline=None,
        suppress_health_check=cast("list[HealthCheck]", list(HealthCheck)),
        database=None,
    )
    run_state_machine_as_test(machine, settings=bounded)
    gateway.loop.run(gateway.running.app.audit.flush())
    with closing(sqlite3.connect(gateway.folder / "data" / "audit.db")) as database:
        for tenant in TENANTS:
            rows = database.execute("SELECT * FROM audit WHERE tenant = ?", (tenant,)).fetchall()
            assert rows
            assert gateway.members[tenant].mark in str(rows)
            assert gateway.members[other_tenant(tenant)].mark not in str(rows)
