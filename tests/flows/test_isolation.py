"""Two tenants with identical names, at the real door with two keys: no value of one ever reaches the other."""

import asyncio
import itertools
import json
import sqlite3
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.conftest import Running, run_gateway
from tests.flows.process import HANDSHAKE, modern, modern_headers

Json = dict[str, Any]
TENANTS = ("alpha", "beta")
PATIENCE = 10.0
TOPICS = st.sampled_from(["rent", "menu", "wiring"])
BOTH = st.sampled_from(TENANTS)
_numbers = itertools.count(1)


class Loop:
    """An event loop on a thread of its own, in which the gateway lives while the test goes on in steps."""

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


class Member:
    """Alice of one tenant: what she was told, and what only she may ever be told."""

    def __init__(self, tenant: str, base: str, key: str) -> None:
        self.tenant = tenant
        self.mark = f"mark-of-{tenant}"
        self.url = f"{base}/mcp"
        self.headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
        # One client for all: making one takes longer than a request.
        self.http = httpx.Client(timeout=60, trust_env=False, verify=False)
        self.ids: dict[str, list[str]] = {"entry": [], "run": [], "session": []}
        self.told: list[str] = []
        self.heard: list[str] = []
        self._stream = threading.Thread(target=self._listen, daemon=True)
        self._stream.start()
        self.until(lambda: any("acknowledged" in line for line in self.heard))

    def _listen(self) -> None:
        params = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["knowledge://entries"]}}
        headers = self.headers | modern_headers("subscriptions/listen")
        body = modern("subscriptions/listen", params)
        with self.http.stream("POST", self.url, json=body, headers=headers) as answer:
            self.heard.extend(line for line in answer.iter_lines() if line.startswith("data:"))

    def post(self, message: Json, **headers: str) -> httpx.Response:
        return self.http.post(self.url, json=message, headers=self.headers | headers)

    def ask(self, method: str, params: Json | None = None, *, echoes: bool = False) -> Json:
        """One request; what comes back counts as told, unless it `echoes` what was asked."""
        correlation = f"{self.mark}-{next(_numbers)}"
        answer = self.post(
            modern(method, params), **modern_headers(method, params), **{"x-correlation-id": correlation}
        )
        if not echoes:
            self.told.append(answer.text)
        return json.loads(answer.text.replace(correlation, "CORRELATION"))

    def call(self, tool: str, arguments: Json, *, echoes: bool = False) -> Json:
        return self.ask("tools/call", {"name": tool, "arguments": arguments}, echoes=echoes)

    def updates(self) -> int:
        return sum("resources/updated" in line for line in self.heard)

    def until(self, fact: Any) -> None:
        ends = time.monotonic() + PATIENCE
        while not fact():
            assert time.monotonic() < ends
            time.sleep(0.005)


class House:
    def __init__(self, folder: Path) -> None:
        self.loop = Loop()
        self.folder = folder
        self.exit = AsyncExitStack()
        self.running: Running = self.loop.run(self._open())
        self.members = {
            tenant: Member(tenant, self.running.base, self.loop.run(self.running.new_key(tenant, "alice")))
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
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("isolation"))
    try:
        yield house
    finally:
        house.close()


def other(tenant: str) -> str:
    return TENANTS[1 - TENANTS.index(tenant)]


class Isolation(RuleBasedStateMachine):
    house: House

    @initialize()
    def each_has_one_of_every_kind(self) -> None:
        for who in TENANTS:
            self.store(who, "rent")
            self.run(who)
            self.session(who)

    @rule(who=BOTH, topic=TOPICS)
    def store(self, who: str, topic: str) -> None:
        me, stranger = self.house.members[who], self.house.members[other(who)]
        mine, theirs = me.updates(), stranger.updates()
        answer = me.call("knowledge_store", {"topic": topic, "content": f"{me.mark} {next(_numbers)}"})
        assert answer["result"]["isError"] is False, answer
        me.ids["entry"].append(answer["result"]["structuredContent"]["id"])
        me.until(lambda: me.updates() > mine)
        assert stranger.updates() == theirs

    @rule(who=BOTH, topic=TOPICS)
    def query(self, who: str, topic: str) -> None:
        me = self.house.members[who]
        answer = me.call("knowledge_query", {"topic": topic})
        assert self.house.members[other(who)].mark not in json.dumps(answer)

    @rule(who=BOTH, uri=st.sampled_from(["knowledge://entries", "knowledge://history/transactions", "gox://runs"]))
    def read(self, who: str, uri: str) -> None:
        self.house.members[who].ask("resources/read", {"uri": uri})

    @rule(who=BOTH)
    def lists(self, who: str) -> None:
        for method in ("tools/list", "resources/list", "server/discover"):
            self.house.members[who].ask(method)
        self.house.members[who].call("workflow_list", {})
        self.house.members[who].call("knowledge_history", {})

    @rule(who=BOTH)
    def run(self, who: str) -> None:
        me = self.house.members[who]
        steps = [{"id": "one", "actionId": "core.ping"}]
        answer = me.call("workflow_run", {"definition": {"id": me.mark, "steps": steps}})
        me.ids["run"].append(answer["result"]["structuredContent"]["runId"])
        me.call("workflow_status", {"runId": me.ids["run"][-1], "waitMs": 5000})

    @rule(who=BOTH)
    def session(self, who: str) -> None:
        me = self.house.members[who]
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "alice", "version": "1"}}
        answer = me.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        me.ids["session"].append(answer.headers["mcp-session-id"])

    @rule(who=BOTH)
    def a_foreign_id_answers_like_an_unknown_one(self, who: str) -> None:
        me, stranger = self.house.members[who], self.house.members[other(who)]
        for kind, probes in PROBES.items():
            for foreign in stranger.ids[kind][-1:]:
                unknown = foreign[:-4] + ("0000" if not foreign.endswith("0000") else "1111")
                for probe in probes:
                    assert probe(me, foreign) == probe(me, unknown).replace(unknown, foreign), kind

    @rule(who=BOTH)
    def one_tenants_backends_are_its_own_matter(self, who: str) -> None:
        tenants = self.house.running.house.tenants
        before = self.names(other(who))
        self.house.loop.run(tenants.change(who, {"backends": ["core", "knowledge", "workflow"]}))
        assert not any(name.startswith("project_") for name in self.names(who))
        assert self.names(other(who)) == before
        self.house.loop.run(tenants.change(who, {"backends": ["*"]}))
        assert "project_workspace_stats" in self.names(who)

    def names(self, who: str) -> list[str]:
        return [tool["name"] for tool in self.house.members[who].ask("tools/list")["result"]["tools"]]

    @invariant()
    def nothing_of_one_was_told_to_the_other(self) -> None:
        for who, me in self.house.members.items():
            stranger = self.house.members[other(who)]
            secrets = [stranger.mark, *stranger.ids["entry"], *stranger.ids["run"], *stranger.ids["session"]]
            for text in (*me.told, *me.heard):
                assert not [secret for secret in secrets if secret in text]
            me.told.clear()


def _tool(name: str, key: str) -> Any:
    def probe(me: Member, id: str) -> str:
        return json.dumps(me.call(name, {key: id}, echoes=True))

    return probe


def _resource(template: str) -> Any:
    def probe(me: Member, id: str) -> str:
        return json.dumps(me.ask("resources/read", {"uri": template + id}, echoes=True))

    return probe


def _ping(me: Member, session: str) -> str:
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


def test_threat_1_no_value_of_one_tenant_ever_reaches_the_other(house: House) -> None:
    machine = type("Bound", (Isolation,), {"house": house})
    bounded = settings(
        max_examples=8, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    run_state_machine_as_test(machine, settings=bounded)
    house.loop.run(house.running.house.audit.flush())
    with closing(sqlite3.connect(house.folder / "data" / "audit.db")) as kept:
        for tenant in TENANTS:
            rows = kept.execute("SELECT * FROM audit WHERE tenant = ?", (tenant,)).fetchall()
            assert rows
            assert house.members[tenant].mark in str(rows)
            assert house.members[other(tenant)].mark not in str(rows)
