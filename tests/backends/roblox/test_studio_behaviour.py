"""Undo, errors that say why, arguments with holes, and searches, in the real plugin."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.backends.roblox.conftest import _open_harness

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_studio(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """A Studio with the tools beyond the contract."""
    async with _open_harness(tmp_path_factory.mktemp("studio"), extended_tools=True) as harness:
        await harness.start_plugin()
        yield harness


async def _folder(studio: Any, name: str, parent: str = "Workspace") -> str:
    arguments = {"parentPath": parent, "className": "Folder", "name": name}
    return (await studio.output("instance_create", arguments))["instanceId"]


async def test_undo_restores_a_deleted_instance_with_its_children_and_id(studio: Any) -> None:
    identity = await _folder(studio, "F")
    await _folder(studio, "Inner", "Workspace.F")
    await studio.output("instance_delete", {"instanceId": identity})
    assert (await studio.error("instance_get", {"instanceId": identity}))["code"] == "NOT_FOUND"
    preview = await studio.output("undo", {}, dryRun=True)
    assert preview["changes"] == ["Gatehouse: delete Workspace.F"]
    undone = await studio.output("undo")
    assert undone["changes"] == ["Gatehouse: delete Workspace.F"]
    instance = (await studio.output("instance_get", {"instanceId": identity}))["instance"]
    assert (instance["path"], instance["childCount"]) == ("Workspace.F", 1)
    await studio.output("redo")
    assert (await studio.error("instance_get", {"instanceId": identity}))["code"] == "NOT_FOUND"


async def test_undo_takes_back_the_callers_own_change_only(studio: Any) -> None:
    await _folder(studio, "Hers")
    bob = studio.as_(await studio.gateway.new_key(subject="bob"))
    error = await bob.error("undo")
    assert (error["kind"], error["details"]["change"]) == ("illegal_state", "Gatehouse: create Folder Workspace.Hers")
    assert (await bob.error("undo", {"scope": "tenant"}))["kind"] == "denied"
    scopes = ("mcp:call", "mcp:call:write", "roblox:undo-tenant")
    allowed = studio.as_(await studio.gateway.new_key(subject="carol", scopes=scopes))
    answer = await allowed.call("undo", {"scope": "tenant"})
    assert "result" in answer, answer
    assert (await studio.error("instance_get", {"instancePath": "Workspace.Hers"}))["code"] == "NOT_FOUND"


async def test_run_code_returns_value_and_output_as_one_undo_step_and_is_rolled_back_on_failure(studio: Any) -> None:
    code = "print('hi') for i = 1, 3 do Instance.new('Folder').Parent = workspace end return {n = 3}"
    output = await studio.output("run_code", {"code": code})
    assert (output["returnValue"], output["logs"]) == ({"n": 3}, [{"level": "print", "message": "hi"}])
    children = {"parentPath": "Workspace"}
    assert (await studio.output("instance_list_children", children))["total"] == 3
    await studio.output("undo")
    assert (await studio.output("instance_list_children", children))["total"] == 0
    error = await studio.error("run_code", {"code": "Instance.new('Folder').Parent = workspace\nerror('late')"})
    assert error["details"]["line"] == 2
    assert (await studio.output("instance_list_children", children))["total"] == 0


async def test_console_returns_the_lines_after_a_cursor(studio: Any) -> None:
    start = (await studio.output("console_read", {"limit": 500}))["nextCursor"]
    await studio.output("run_code", {"code": "print('a') warn('b')"})
    page = await studio.output("console_read", {"cursor": start})
    assert [(line["level"], line["message"]) for line in page["lines"]] == [("print", "a"), ("warn", "b")]
    assert (await studio.output("console_read", {"cursor": page["nextCursor"]}))["lines"] == []


async def test_error_names_the_luau_message_line_and_traceback(studio: Any) -> None:
    source = "local M = {}\nfunction M.f()\n\tprint('before', 1)\n\twarn('care')\n\terror('bang')\nend\nreturn M"
    at = {"scriptId": await studio.create_script(source), "functionName": "f"}
    error = await studio.error("script_execute", at)
    assert "ServerScriptService.M:5: bang" in error["message"]
    assert error["details"]["line"] == 5
    assert "5" in error["details"]["traceback"]
    assert error["details"]["logs"] == [
        {"level": "print", "message": "before 1"},
        {"level": "warn", "message": "care"},
    ]


async def test_error_while_a_module_loads_names_its_line(studio: Any) -> None:
    error = await studio.error("script_execute", {"scriptId": await studio.create_script("\n\nerror('early')")})
    assert error["message"] == "the script failed: ServerScriptService.M:3: early"
    assert (error["details"]["line"], error["retryable"]) == (3, True)


@pytest.mark.parametrize("kind", ["ModuleScript", "Script"])
async def test_syntax_error_names_its_line_and_is_not_retryable(studio: Any, kind: str) -> None:
    identity = await studio.create_script("local a = 1\nlocal = 2", "Bad", kind)
    error = await studio.error("script_execute", {"scriptId": identity})
    assert (error["code"], error["retryable"], error["details"]["line"]) == ("INTERNAL_ERROR", False, 2)
    assert "syntax error" in error["message"]


async def test_output_of_a_successful_run_comes_back(studio: Any) -> None:
    identity = await studio.create_script("print('one') warn('two') return 3")
    output = await studio.output("script_execute", {"scriptId": identity})
    assert output["returnValue"] == 3
    assert output["logs"] == [{"level": "print", "message": "one"}, {"level": "warn", "message": "two"}]


async def test_script_that_returns_nothing_is_executed(studio: Any) -> None:
    identity = await studio.create_script("workspace.Name = workspace.Name", "Plain", "Script")
    output = await studio.output("script_execute", {"scriptId": identity})
    assert (output["executed"], output["returnValue"]) == (True, None)


async def test_execute_after_update_runs_the_new_code(studio: Any) -> None:
    at = {"scriptId": await studio.create_script("return 1")}
    values = [(await studio.output("script_execute", at))["returnValue"]]
    await studio.output("script_update", {**at, "source": "_G.count = (_G.count or 10) + 1 return _G.count"})
    values += [(await studio.output("script_execute", at))["returnValue"] for _ in range(2)]
    assert values == [1, 11, 11]


async def test_arguments_keep_their_holes_and_mixed_tables_keep_both_parts(studio: Any) -> None:
    source = """return {
        holes = function(...) return select("#", ...), ... end,
        count = function(...) return select("#", ...) end,
        third = function(_, _, c) return c end,
        mixed = function() return {1, 2, name = "x"} end,
        sparse = function() return {[1] = "a", [3] = "c"} end,
    }"""
    await studio.create_script(source)
    assert await studio.run("count", 1, None, 3) == 3
    assert await studio.run("count", None, None) == 2
    assert await studio.run("third", 1, None, 3) == 3
    assert await studio.run("mixed") == {"_type": "Table", "array": [1, 2], "fields": {"name": "x"}}


async def test_find_matches_base_classes_and_ignores_case_when_asked(studio: Any) -> None:
    await studio.output("instance_create", {"parentPath": "Workspace", "className": "Part", "name": "Lamp"})
    root = {"rootPath": "Workspace"}
    assert (await studio.output("instance_find", {**root, "className": "BasePart"}))["count"] == 1
    assert (await studio.output("instance_find", {**root, "nameContains": "LaMP"}))["count"] == 0
    assert (await studio.output("instance_find", {**root, "nameContains": "LaMP", "ignoreCase": True}))["count"] == 1


async def test_dry_run_refuses_what_the_call_would_refuse(studio: Any) -> None:
    await studio.output("instance_create", {"parentPath": "Workspace", "className": "Part", "name": "P"})
    at = {"instancePath": "Workspace.P"}
    for arguments in ({"propertyName": "Nonsense", "value": 1}, {"propertyName": "Size", "value": "big"}):
        error = await studio.error("instance_set_property", {**at, **arguments}, dryRun=True)
        assert (error["code"], error["message"]) == ("VALIDATION_ERROR", "failed to set property")
    error = await studio.error("instance_delete", {"instancePath": "Workspace"}, dryRun=True)
    assert error["message"] == "the instance cannot be deleted"


async def test_limit_with_max_results_is_refused_with_both_names(studio: Any) -> None:
    arguments = {"rootPath": "game", "className": "Part", "limit": 1, "maxResults": 1}
    error = await studio.error("instance_find", arguments)
    assert "limit" in error["message"]
    assert "maxResults" in error["message"]


async def test_large_script_is_stored_and_reading_it_is_refused_with_the_limit(studio: Any) -> None:
    small = await studio.create_script("return 1", "Small")
    readable = "--" + "x" * 400_000
    identity = await studio.create_script(readable, "Readable")
    assert (await studio.output("script_get_source", {"scriptId": identity}))["source"] == readable
    large = await studio.create_script("--" + "x" * 800_000, "Large")
    error = await studio.error("script_get_source", {"scriptId": large})
    assert error["max_bytes"] == 500_000
    assert (await studio.output("script_get_source", {"scriptId": small}))["source"] == "return 1"


async def test_run_record_shows_the_verified_principal_beside_the_claimed_actor(studio: Any) -> None:
    answer = await studio.call("bridge_ping", {}, actor="mallory")
    record = await studio.read(f"gox://runs/{answer['result']['structuredContent']['runId']}")
    assert '"actor": "mallory"' in record
    assert '"principal": "' in record
    assert '"principal": "mallory"' not in record
