"""The roblox tools against a fake Studio: sent requests, error translation, and selection of the Studio."""

import asyncio
import json
import os
from typing import Any

import pytest

Json = dict[str, Any]

TWELVE = {
    "bridge_ping",
    *(f"script_{each}" for each in ("create", "update", "delete", "get_source", "execute")),
    *(f"instance_{each}" for each in ("create", "set_property", "delete", "get", "list_children", "find")),
}
LATER_CALLS = 1000 if os.environ.get("GATEHOUSE_LONG") == "1" else 50


async def test_backend_without_the_bridge_has_no_tools(start: Any) -> None:
    backends = {"core": {"module": "backends.core"}, "roblox": {"module": "backends.roblox"}}
    async with start(backends=backends) as gateway, gateway.client() as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["core_ping"]
        answer = await gateway.call("roblox_bridge_ping", {})
        assert answer["error"]["code"] == -32602


async def test_tools_are_listed_with_annotations_and_schemas_in_both_eras(harness: Any, era: str) -> None:
    async with harness.gateway.client(era, path="/mcp/roblox") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == TWELVE | {"list_studios"}
        assert list(tools) == sorted(tools)
        for name, tool in tools.items():
            reads = name in ("bridge_ping", "list_studios", "script_get_source") or name.startswith(
                ("instance_get", "instance_list", "instance_find")
            )
            assert tool.annotations.read_only_hint is reads, name
            level = "read" if reads else "write"
            own = {"gox:version": "v1", "gox:sideEffectLevel": level, "gox:supportsDryRun": True}
            assert {**own, "gox:requiresBridge": True}.items() <= tool.meta.items()
            assert tool.output_schema["required"] == ["runId", "output", "diff"]
            assert tool.input_schema["additionalProperties"] is False


REFUSED: list[tuple[str, Json]] = [
    ("script_create", {"name": "S", "scriptType": "Script", "source": ""}),
    ("script_create", {"parentPath": "W", "name": "S", "scriptType": "Other", "source": ""}),
    ("script_create", {"parentPath": "W", "scriptType": "Script", "source": ""}),
    ("script_update", {"source": ""}),
    ("script_update", {"scriptPath": "W"}),
    ("script_delete", {}),
    ("script_get_source", {}),
    ("script_execute", {"functionName": "f"}),
    ("script_execute", {"scriptPath": "S", "functionName": ""}),
    ("script_execute", {"scriptPath": "S", "args": {}}),
    ("instance_create", {"parentPath": "W", "name": "P"}),
    ("instance_create", {"className": "Part", "name": "P"}),
    ("instance_set_property", {"instancePath": "W", "propertyName": "P"}),
    ("instance_set_property", {"instancePath": "W", "propertyName": "P", "value": None}),
    ("instance_delete", {}),
    ("instance_get", {"instancePath": "W", "more": 1}),
    ("instance_list_children", {"parentPath": "W", "limit": 0}),
    ("instance_list_children", {"parentPath": "W", "offset": -1}),
    ("instance_find", {"nameContains": "x"}),
    ("instance_find", {"rootPath": "W"}),
    ("instance_find", {"rootPath": "W", "nameContains": ""}),
    ("instance_find", {"rootPath": "W", "className": "P", "limit": 1, "maxResults": 1}),
]


async def test_invalid_arguments_never_reach_the_studio(harness: Any) -> None:
    studio = await harness.start_fake()
    for tool, arguments in REFUSED:
        refusal = await harness.error(tool, arguments)
        assert (refusal["code"], refusal["number"]) == ("VALIDATION_ERROR", -32602), (tool, arguments)
    assert studio.requests == []


async def test_studio_receives_the_operation_with_its_payload(harness: Any) -> None:
    studio = await harness.start_fake()
    await harness.output("script_create", {"parentId": "inst-1", "name": "S", "scriptType": "Script", "source": "x"})
    find = {"rootPath": "W", "className": "Part", "maxResults": 3, "studioId": studio.session}
    await harness.output("instance_find", find, correlationId="c-9")
    create, found = studio.requests
    assert create["operation"] == "script.create"
    payload = {"parentId": "inst-1", "name": "S", "scriptType": "Script", "source": "x", "dryRun": False}
    assert create["payload"] == payload
    assert (found["operation"], found["correlationId"]) == ("instance.find", "c-9")
    assert found["payload"] == {"rootPath": "W", "className": "Part", "limit": 3}


async def test_repetition_reaches_the_studio_with_the_same_idempotency_key(harness: Any) -> None:
    async def refuse(request: Json) -> Json | None:
        return {"success": False, "error": {"code": "TRANSIENT_ERROR", "message": "busy"}}

    studio = await harness.start_fake(refuse)
    for _ in range(2):
        await harness.error("instance_delete", {"instanceId": "inst-1"}, idempotencyKey="k")
    await harness.error("instance_delete", {"instanceId": "inst-1"})
    first, second, third = [request["idempotencyKey"] for request in studio.requests]
    assert first == second != third


@pytest.mark.parametrize(
    ("studio_code", "kind", "code", "retryable"),
    [
        ("VALIDATION_ERROR", "invalid_input", "VALIDATION_ERROR", False),
        ("NOT_FOUND", "not_found", "NOT_FOUND", False),
        ("ACCESS_DENIED", "denied", "ACCESS_DENIED", False),
        ("CONFLICT", "illegal_state", "ACCESS_DENIED", False),
        ("TRANSIENT_ERROR", "internal", "INTERNAL_ERROR", True),
        ("SOMETHING_ELSE", "internal", "INTERNAL_ERROR", False),
    ],
)
async def test_studio_error_is_translated_to_the_contracts_error_code(
    harness: Any, studio_code: str, kind: str, code: str, retryable: bool
) -> None:
    async def refuse(request: Json) -> Json | None:
        return {"success": False, "error": {"code": studio_code, "message": "no", "details": {"why": "because"}}}

    await harness.start_fake(refuse)
    refusal = await harness.error("instance_get", {"instancePath": "W"})
    actual = (refusal["kind"], refusal["code"], refusal["retryable"], refusal["category"], refusal["message"])
    assert actual == (kind, code, retryable, "runtime", "no")
    assert refusal["details"] == {"why": "because"}


async def test_answer_that_is_not_an_object_is_an_internal_error(harness: Any) -> None:
    async def odd(request: Json) -> Json | None:
        return {"success": True, "payload": [1]}

    await harness.start_fake(odd)
    refusal = await harness.error("bridge_ping")
    assert (refusal["code"], refusal["category"], refusal["retryable"]) == ("INTERNAL_ERROR", "platform", False)


async def test_call_without_a_connected_studio_is_unavailable(harness: Any) -> None:
    refusal = await harness.error("bridge_ping")
    assert (refusal["kind"], refusal["code"], refusal["retryable"]) == ("unavailable", "INTERNAL_ERROR", False)
    assert refusal["category"] == "platform"


async def test_call_to_a_silent_studio_times_out_and_later_calls_succeed(open_harness: Any) -> None:
    late = asyncio.Event()

    async def answer(request: Json) -> Json | None:
        path = request["payload"]["instancePath"]
        if path == "silent":
            await late.wait()
        return {"success": True, "payload": {"path": path}}

    async with open_harness(request_timeout=2) as harness:
        await harness.start_fake(answer)
        assert (await harness.error("instance_get", {"instancePath": "silent"}))["kind"] == "timeout"
        for start in range(0, LATER_CALLS, 5):
            if start == LATER_CALLS // 2:
                late.set()  # the late answer arrives now, after its call timed out
            names = [f"W.{number}" for number in range(start, start + 5)]
            outputs = await asyncio.gather(*(harness.output("instance_get", {"instancePath": name}) for name in names))
            assert [output["path"] for output in outputs] == names
        status = json.loads(await harness.read("gox://status"))
        (studio,) = status["bridge"]["studios"]
        assert status["bridge"]["connected"] is True
        assert studio["lastFailureMessage"] == "The Studio gave no answer within 2 s."
        assert studio["consecutiveFailures"] == 0
        assert studio["lastSuccessAt"] > studio["lastFailureAt"]


async def test_callers_own_studio_is_selected_unless_studio_id_is_set(harness: Any) -> None:
    bobs = await harness.start_fake(name="bobs", subject="bob")
    hers = await harness.start_fake(name="hers", subject="alice")
    assert [each["yours"] for each in await harness.studios()] == [False, True]
    await harness.output("bridge_ping")
    await harness.output("bridge_ping", {"studioId": bobs.session})
    assert (len(hers.requests), len(bobs.requests)) == (1, 1)
    carol = harness.as_(await harness.gateway.new_key(subject="carol"))
    refusal = await carol.error("bridge_ping")
    assert (refusal["code"], len(refusal["details"]["studios"])) == ("VALIDATION_ERROR", 2)
    assert (await harness.error("bridge_ping", {"studioId": "none"}))["code"] == "NOT_FOUND"


async def test_only_studio_serves_all_users_of_its_tenant_and_no_other_tenant(harness: Any) -> None:
    await harness.start_fake(subject="bob")
    assert await harness.output("bridge_ping") == {"operation": "bridge.ping"}
    other = harness.as_(await harness.gateway.new_key("other"))
    assert (await other.error("bridge_ping"))["kind"] == "unavailable"
    assert await other.studios() == []


async def test_read_only_tenant_can_read_but_not_write(start: Any) -> None:
    roblox = {"module": "backends.roblox", "options": {"bridge_enabled": True}}
    async with start(backends={"roblox": roblox}, tenants={"default": {"read_only": True}}) as gateway:
        answer = await gateway.call("roblox.instance_delete", {"instanceId": "x"})
        assert answer["error"]["data"]["code"] == "ACCESS_DENIED"
        answer = await gateway.call("roblox.instance_get", {"instanceId": "x"})
        assert answer["error"]["data"]["kind"] == "unavailable"


async def test_workflow_steps_call_the_studio_and_use_its_outputs(harness: Any) -> None:
    async def answer(request: Json) -> Json | None:
        return {"success": True, "payload": {"instanceId": "inst-7", "dryRun": request["payload"].get("dryRun")}}

    studio = await harness.start_fake(answer)
    steps = [
        {
            "id": "make",
            "actionId": "roblox.instance_create",
            "input": {"parentPath": "W", "className": "Part", "name": "P"},
        },
        {"actionId": "roblox.instance_delete", "input": {"instanceId": "${steps.make.output.instanceId}"}},
    ]
    arguments = {"definition": {"id": "w", "steps": steps}, "dryRun": True, "correlationId": "wf-c", "waitMs": 20_000}
    done = (await harness.call("workflow.run", arguments))["result"]["structuredContent"]
    assert done["status"] == "succeeded"
    assert [request["payload"]["dryRun"] for request in studio.requests] == [True, True]
    assert studio.requests[1]["payload"]["instanceId"] == "inst-7"
    assert {request["correlationId"] for request in studio.requests} == {"wf-c"}
    unknown = {"definition": {"id": "w", "steps": [{"actionId": "roblox.script.execute"}]}}
    assert (await harness.error("workflow.run", unknown))["code"] == "NOT_FOUND"
