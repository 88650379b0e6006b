"""The roblox tools against a Studio that answers as a test says: what is sent, what refusals mean, which Studio."""

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
AFTERWARDS = 1000 if os.environ.get("GATEHOUSE_LONG") == "1" else 50


async def test_without_the_bridge_there_are_no_tools(start: Any) -> None:
    backends = {"core": {"module": "backends.core"}, "roblox": {"module": "backends.roblox"}}
    async with start(backends=backends) as gateway, gateway.client() as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["core_ping"]
        answer = await gateway.call("roblox_bridge_ping", {})
        assert answer["error"]["code"] == -32602


async def test_the_tools_say_what_they_are_in_either_era(desk: Any, era: str) -> None:
    async with desk.gateway.client(era, path="/mcp/roblox") as client:
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


async def test_what_breaks_a_tools_rules_never_reaches_the_studio(desk: Any) -> None:
    studio = await desk.peer()
    for tool, arguments in REFUSED:
        refusal = await desk.refusal(tool, arguments)
        assert (refusal["code"], refusal["number"]) == ("VALIDATION_ERROR", -32602), (tool, arguments)
    assert studio.asked == []


async def test_the_studio_is_sent_the_operation_with_its_payload(desk: Any) -> None:
    studio = await desk.peer()
    await desk.output("script_create", {"parentId": "inst-1", "name": "S", "scriptType": "Script", "source": "x"})
    find = {"rootPath": "W", "className": "Part", "maxResults": 3, "studioId": studio.session}
    await desk.output("instance_find", find, correlationId="c-9")
    create, found = studio.asked
    assert create["operation"] == "script.create"
    payload = {"parentId": "inst-1", "name": "S", "scriptType": "Script", "source": "x", "dryRun": False}
    assert create["payload"] == payload
    assert (found["operation"], found["correlationId"]) == ("instance.find", "c-9")
    assert found["payload"] == {"rootPath": "W", "className": "Part", "limit": 3}


async def test_a_repetition_reaches_the_studio_under_the_same_key(desk: Any) -> None:
    async def refuse(request: Json) -> Json | None:
        return {"success": False, "error": {"code": "TRANSIENT_ERROR", "message": "busy"}}

    studio = await desk.peer(refuse)
    for _ in range(2):
        await desk.refusal("instance_delete", {"instanceId": "inst-1"}, idempotencyKey="k")
    await desk.refusal("instance_delete", {"instanceId": "inst-1"})
    first, second, third = [request["idempotencyKey"] for request in studio.asked]
    assert first == second != third


@pytest.mark.parametrize(
    ("code", "kind", "word", "retryable"),
    [
        ("VALIDATION_ERROR", "invalid_input", "VALIDATION_ERROR", False),
        ("NOT_FOUND", "not_found", "NOT_FOUND", False),
        ("ACCESS_DENIED", "denied", "ACCESS_DENIED", False),
        ("CONFLICT", "illegal_state", "ACCESS_DENIED", False),
        ("TRANSIENT_ERROR", "internal", "INTERNAL_ERROR", True),
        ("SOMETHING_ELSE", "internal", "INTERNAL_ERROR", False),
    ],
)
async def test_a_studios_refusal_is_told_in_the_contracts_words(
    desk: Any, code: str, kind: str, word: str, retryable: bool
) -> None:
    async def refuse(request: Json) -> Json | None:
        return {"success": False, "error": {"code": code, "message": "no", "details": {"why": "because"}}}

    await desk.peer(refuse)
    refusal = await desk.refusal("instance_get", {"instancePath": "W"})
    told = (refusal["kind"], refusal["code"], refusal["retryable"], refusal["category"], refusal["message"])
    assert told == (kind, word, retryable, "runtime", "no")
    assert refusal["details"] == {"why": "because"}


async def test_an_answer_that_is_no_object_is_an_internal_error(desk: Any) -> None:
    async def odd(request: Json) -> Json | None:
        return {"success": True, "payload": [1]}

    await desk.peer(odd)
    refusal = await desk.refusal("bridge_ping")
    assert (refusal["code"], refusal["category"], refusal["retryable"]) == ("INTERNAL_ERROR", "platform", False)


async def test_with_no_studio_the_call_is_unavailable(desk: Any) -> None:
    refusal = await desk.refusal("bridge_ping")
    assert (refusal["kind"], refusal["code"], refusal["retryable"]) == ("unavailable", "INTERNAL_ERROR", False)
    assert refusal["category"] == "platform"


async def test_a_studio_that_stays_silent_is_a_timeout_and_does_not_disturb_those_after_it(opening: Any) -> None:
    late = asyncio.Event()

    async def answer(request: Json) -> Json | None:
        asked = request["payload"]["instancePath"]
        if asked == "silent":
            await late.wait()
        return {"success": True, "payload": {"asked": asked}}

    async with opening(request_timeout=2) as desk:
        await desk.peer(answer)
        assert (await desk.refusal("instance_get", {"instancePath": "silent"}))["kind"] == "timeout"
        for start in range(0, AFTERWARDS, 5):
            if start == AFTERWARDS // 2:
                late.set()  # its answer comes now, when nobody waits for it
            names = [f"W.{number}" for number in range(start, start + 5)]
            outputs = await asyncio.gather(*(desk.output("instance_get", {"instancePath": name}) for name in names))
            assert [output["asked"] for output in outputs] == names
        status = json.loads(await desk.read("gox://status"))
        (studio,) = status["bridge"]["studios"]
        assert status["bridge"]["connected"] is True
        assert studio["lastFailureMessage"] == "The Studio gave no answer within 2 s."
        assert studio["consecutiveFailures"] == 0
        assert studio["lastSuccessAt"] > studio["lastFailureAt"]


async def test_of_many_studios_the_callers_own_is_meant_unless_one_is_named(desk: Any) -> None:
    bobs = await desk.peer(name="bobs", subject="bob")
    hers = await desk.peer(name="hers", subject="alice")
    assert [each["yours"] for each in await desk.studios()] == [False, True]
    await desk.output("bridge_ping")
    await desk.output("bridge_ping", {"studioId": bobs.session})
    assert (len(hers.asked), len(bobs.asked)) == (1, 1)
    carol = desk.as_(await desk.gateway.new_key(subject="carol"))
    refusal = await carol.refusal("bridge_ping")
    assert (refusal["code"], len(refusal["details"]["studios"])) == ("VALIDATION_ERROR", 2)
    assert (await desk.refusal("bridge_ping", {"studioId": "none"}))["code"] == "NOT_FOUND"


async def test_the_only_studio_serves_its_whole_tenant_and_no_other(desk: Any) -> None:
    await desk.peer(subject="bob")
    assert await desk.output("bridge_ping") == {"operation": "bridge.ping"}
    other = desk.as_(await desk.gateway.new_key("other"))
    assert (await other.refusal("bridge_ping"))["kind"] == "unavailable"
    assert await other.studios() == []


async def test_a_read_only_tenant_may_look_and_not_write(start: Any) -> None:
    roblox = {"module": "backends.roblox", "options": {"bridge_enabled": True}}
    async with start(backends={"roblox": roblox}, tenants={"default": {"read_only": True}}) as gateway:
        answer = await gateway.call("roblox.instance_delete", {"instanceId": "x"})
        assert answer["error"]["data"]["code"] == "ACCESS_DENIED"
        answer = await gateway.call("roblox.instance_get", {"instanceId": "x"})
        assert answer["error"]["data"]["kind"] == "unavailable"


async def test_a_workflow_works_on_the_studio_and_uses_what_it_gave(desk: Any) -> None:
    async def answer(request: Json) -> Json | None:
        return {"success": True, "payload": {"instanceId": "inst-7", "dryRun": request["payload"].get("dryRun")}}

    studio = await desk.peer(answer)
    steps = [
        {
            "id": "make",
            "actionId": "roblox.instance_create",
            "input": {"parentPath": "W", "className": "Part", "name": "P"},
        },
        {"actionId": "roblox.instance_delete", "input": {"instanceId": "${steps.make.output.instanceId}"}},
    ]
    given = {"definition": {"id": "w", "steps": steps}, "dryRun": True, "correlationId": "wf-c", "waitMs": 20_000}
    done = (await desk.call("workflow.run", given))["result"]["structuredContent"]
    assert done["status"] == "succeeded"
    assert [request["payload"]["dryRun"] for request in studio.asked] == [True, True]
    assert studio.asked[1]["payload"]["instanceId"] == "inst-7"
    assert {request["correlationId"] for request in studio.asked} == {"wf-c"}
    lacking = {"definition": {"id": "w", "steps": [{"actionId": "roblox.script.execute"}]}}
    assert (await desk.refusal("workflow.run", lacking))["code"] == "NOT_FOUND"
