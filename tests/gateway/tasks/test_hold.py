"""A stage can hold a call as a waiting task; its release runs the call through all stages again."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.contract import MODERN, Call, ClientProfile, Json, ListChange, Result
from gateway.errors import Fault, ForeignError, Kind
from gateway.protocol.sealed_tokens import TokenSeal
from gateway.stages.approve import STATE
from gateway.state.bus import MemoryBus
from gateway.state.database import Database
from gateway.state.task_rows import TaskQuota, TaskRows
from gateway.tasks.calls import TaskCalls
from gateway.tasks.content import TaskContent
from gateway.tasks.ids import TaskIds
from gateway.tasks.running import TaskLimits, TaskService
from gateway.tasks.supervisor import HeldTasks, TaskSupervisor
from gateway.tasks.upstream_tasks import UpstreamTasks
from tests.gateway.fakes import a_call, a_route, until

CLIENT = ClientProfile(MODERN, {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
QUOTA = TaskQuota(10, 10, 1_000_000)


class Site:
    """Tasks with a path of one stage, which holds each call until it is approved."""

    def __init__(self, database: Database) -> None:
        self.approved = False
        self.asks = False
        self.runs: list[Json] = []
        self.route = a_route()
        seal = TokenSeal([b"k" * 32])
        self.rows = TaskRows(database)
        limits = TaskLimits(10, 60, 600, QUOTA)
        self.service = TaskService(self.rows, TaskIds(seal), TaskContent(seal), limits, "w1", self._announce)
        upstream = UpstreamTasks(self.service, self._guard, MemoryBus("w1"), lambda call: self.route)
        self.calls = TaskCalls(self.service, upstream, self._path, self._refuse, lambda call: self.route)
        self.supervisor = TaskSupervisor(self.service, self.calls.resume, self._is_authorized, self._publish)
        self.held = HeldTasks(self.service, self.supervisor.wake)

    async def _path(self, call: Call) -> Result:
        if self.asks:
            if call.input_response is None:
                call.record.notes[STATE] = "asked once"
                request = {"method": "elicitation/create", "params": {"mode": "form", "message": "Approve?"}}
                return {"resultType": "input_required", "inputRequests": {"approval": request}}
            self.runs.append({call.input_response.state: call.input_response.responses})
            return {"content": []}
        if not self.approved:
            assert call.task is not None
            return await call.task.hold(key="k1", message="Waiting for approval by group:platform.", seconds=30)
        self.runs.append(call.arguments)
        return {"content": [], "ran": True}

    async def _announce(self, namespace: str, change: ListChange) -> None: ...

    async def _guard(self, call: Call, call_next: Any) -> Result:
        return await call_next(call)

    def _refuse(self, reason: ForeignError) -> Any: ...

    async def _is_authorized(self, caller: Any) -> bool:
        return True

    async def _publish(self, event: str, payload: Json) -> None: ...


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    database = await Database.open(tmp_path)
    made = Site(database)
    running = asyncio.create_task(made.supervisor.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await made.calls.close()
    await database.close()


def _call(site: Site) -> Call:
    call = a_call(route=site.route)
    return replace(call, client=CLIENT, params={"name": "x", "arguments": {"amount": 7}})


async def test_held_call_is_a_working_task_with_the_message_of_the_stage(site: Site) -> None:
    result = await site.calls(_call(site))
    assert isinstance(result, dict)
    assert (result["resultType"], result["status"]) == ("task", "working")
    assert result["statusMessage"] == "Waiting for approval by group:platform."
    assert site.runs == []


async def test_released_call_runs_once_with_the_same_arguments(site: Site) -> None:
    result: Any = await site.calls(_call(site))
    caller = _call(site).caller
    site.approved = True
    assert await site.held.release(caller.tenant, "k1")
    assert not await site.held.release(caller.tenant, "k1")
    await until(lambda: site.runs == [{"amount": 7}])
    rows = await site.rows.list(caller.tenant, caller.principal, 10, 0)
    assert [row.public_id for row in rows] == [result["taskId"]]


async def test_release_of_another_tenant_does_nothing(site: Site) -> None:
    await site.calls(_call(site))
    assert not await site.held.release("other", "k1")


async def test_rejected_call_fails_with_the_fault_and_never_runs(site: Site) -> None:
    await site.calls(_call(site))
    caller = _call(site).caller
    assert await site.held.reject(caller.tenant, "k1", Fault(Kind.DENIED, "Denied by bob: too expensive."))
    (row,) = await site.rows.list(caller.tenant, caller.principal, 10, 0)
    outcome = site.service.content.open(row.id, "outcome", row.outcome)
    assert (row.state, outcome["error"]["message"]) == ("failed", "Denied by bob: too expensive.")
    site.approved = True
    assert not await site.held.release(caller.tenant, "k1")


async def test_released_call_that_a_stage_asks_about_becomes_input_required(site: Site) -> None:
    await site.calls(_call(site))
    caller = _call(site).caller
    site.asks = True
    assert await site.held.release(caller.tenant, "k1")
    async with asyncio.timeout(10):
        while (row := (await site.rows.list(caller.tenant, caller.principal, 1, 0))[0]).state != "input_required":
            await asyncio.sleep(0)
    answers = site.service.content.seal(row.id, "answers", {"approval": {"action": "accept"}})
    assert await site.rows.add_answers(row.id, answers, "", "working", "")
    site.supervisor.wake()
    await until(lambda: site.runs == [{"asked once": {"approval": {"action": "accept"}}}])
