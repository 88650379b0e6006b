"""A five-step workflow on the real plugin, cancelled while the Studio executes a step."""

import asyncio
import json
from typing import Any

import pytest

from tests.backends.gox import sandbox

# One Studio serves the whole file, so all of it runs on one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

MODULE = """
local M = {}
function M.slow()
	Instance.new("Folder", workspace).Name = "Begun"
	while not workspace:FindFirstChild("Go") do task.wait(0.02) end
	Instance.new("Folder", workspace).Name = "Ended"
	return "late"
end
function M.names()
	local names = {}
	for _, child in workspace:GetChildren() do table.insert(names, child.Name) end
	return names
end
return M
"""
MADE = {"parentPath": "Workspace", "className": "Part", "name": "Made"}
AFTER = {"parentPath": "Workspace", "className": "Part", "name": "After"}


def _steps() -> list[dict[str, Any]]:
    slow = {"scriptPath": "ServerScriptService.M", "functionName": "slow"}
    return [
        {"id": "ping", "actionId": "core.ping"},
        {"id": "made", "actionId": "roblox.instance_create", "input": MADE},
        {"id": "again", "actionId": "sandbox.write", "input": {"fails": 1}, "retry": {"maxAttempts": 2}},
        {"id": "slow", "actionId": "roblox.script_execute", "input": slow, "retry": {"maxAttempts": 3}},
        {
            "id": "after",
            "actionId": "roblox.instance_create",
            "input": AFTER,
            "when": {"stepId": "ping", "path": "ok", "equals": True},
        },
    ]


async def _call_workflow(studio: Any, tool: str, **arguments: Any) -> Any:
    answer = await studio.call(f"workflow.{tool}", arguments)
    assert "result" in answer, answer
    return answer["result"]["structuredContent"]


async def _until_begun(studio: Any) -> None:
    async with asyncio.timeout(30):
        while "Begun" not in (await studio.run("names") or []):
            await asyncio.sleep(0.02)


async def test_cancel_stops_the_running_step_and_keeps_completed_changes(studio: Any) -> None:
    sandbox.reset()
    await studio.create_script(MODULE)
    started = await _call_workflow(studio, "run", definition={"id": "w", "steps": _steps()})
    assert (started["status"], started["totalSteps"]) == ("running", 5)
    await _until_begun(studio)
    canceled = await _call_workflow(studio, "cancel", runId=started["runId"])
    assert (canceled["acknowledged"], canceled["cancelRequested"]) == (True, True)
    done = await _call_workflow(studio, "status", runId=started["runId"], waitMs=20_000)
    # The running step is neither completed nor retried, the next step never starts, and earlier changes remain.
    assert (done["status"], done["completedSteps"], done["totalSteps"]) == ("canceled", 3, 5)
    lines = (await _call_workflow(studio, "logs", runId=started["runId"]))["logs"]
    assert [(line["level"], line["message"], line.get("stepId")) for line in lines] == [
        ("info", "workflow started", None),
        ("info", "step started (attempt 1/1)", "ping"),
        ("info", "step completed", "ping"),
        ("info", "step started (attempt 1/1)", "made"),
        ("info", "step completed", "made"),
        ("info", "step started (attempt 1/2)", "again"),
        ("warn", "step attempt failed, retrying", "again"),
        ("info", "retry attempt 2/2", "again"),
        ("info", "step completed", "again"),
        ("info", "step started (attempt 1/3)", "slow"),
        ("info", "workflow cancel requested", None),
        ("info", "workflow canceled", None),
    ]
    assert sorted(await studio.run("names")) == ["Begun", "Made"]
    await _answer_late(studio)
    assert sorted(await studio.run("names")) == ["Begun", "Ended", "Go", "Made"]
    assert await _call_workflow(studio, "cancel", runId=started["runId"]) == {**done, "acknowledged": False}
    # A Studio cannot abort an operation: the late result is recorded as succeeded, and the run stays cancelled.
    async with asyncio.timeout(30):
        while "running" in (records := await _records(studio, started["correlationId"])).values():
            await asyncio.sleep(0.02)
    assert records == {
        "core.ping": "succeeded",
        "roblox.instance_create": "succeeded",
        "sandbox.write": "succeeded",
        "roblox.script_execute": "succeeded",
        "w": "canceled",
    }


async def _records(studio: Any, correlation_id: str) -> dict[str, str]:
    """Return the status of the run and of the last call of each tool."""
    records = json.loads(await studio.read("gox://runs"))["runs"]
    own = [each for each in records if each["correlationId"] == correlation_id]
    return {each["name"]: each["status"] for each in sorted(own, key=lambda each: each["startedAt"])}


async def _answer_late(studio: Any) -> None:
    """Let the Studio finish the cancelled step."""
    await studio.output("instance_create", {"parentPath": "Workspace", "className": "Folder", "name": "Go"})
    async with asyncio.timeout(30):
        while "Ended" not in await studio.run("names"):
            await asyncio.sleep(0.02)
