"""MCP resources and prompts of the backend."""

import json
from typing import Any

import pytest
from mcp import MCPError

from backends.godot.prompts import PROMPTS


async def read_text(client: Any, uri: str) -> str:
    return (await client.read_resource(uri)).contents[0].text


async def test_the_sdk_client_reads_a_project_as_resources_in_either_era(harness: Any, era: str) -> None:
    (harness.project / "player.gd").write_text("extends Node\n")
    async with harness.gateway.client(era) as client:
        uris = {str(each.uri) for each in (await client.list_resources()).resources}
        assert {"godot://project/info", "godot://scenes", "godot-template://state-machine"} <= uris
        templates = {each.uri_template for each in (await client.list_resource_templates()).resource_templates}
        assert "godot://scene/{+path}{?project}" in templates
        assert json.loads(await read_text(client, "godot://project/info"))["name"] == "Meadow"
        assert await read_text(client, "godot://script/player.gd") == "extends Node\n"
        assert (await read_text(client, "godot://scene/main.tscn")).startswith("[gd_scene")
        assert json.loads(await read_text(client, "godot://scene/main.tscn/tree"))["nodeCount"] == 3
        assert json.loads(await read_text(client, "godot://project/settings/application"))["settings"]
        assert "signal changed" in await read_text(client, "godot-template://state-machine")


async def test_several_projects_require_a_name_and_other_tenants_projects_are_not_found(open_harness: Any) -> None:
    async with open_harness(settings={"tenants": {"default": {}, "acme": {}}}) as ours:
        theirs = await ours.for_tenant("acme")
        theirs.make_project("secret")
        async with theirs.gateway.client() as client:
            assert json.loads(await read_text(client, "godot://project/info?project=secret"))["name"] == "Meadow"
        ours.make_project("second")
        async with ours.gateway.client() as client:
            with pytest.raises(MCPError, match="which project"):
                await read_text(client, "godot://scenes")
            assert len(json.loads(await read_text(client, "godot://scenes?project=second"))["scenes"]) == 1
            with pytest.raises(MCPError):
                await read_text(client, "godot://scenes?project=secret")
            for uri in ("godot://script/../x.gd?project=second", "godot://script/%2e%2e%2fx.gd?project=second"):
                with pytest.raises(MCPError):
                    await read_text(client, uri)
            with pytest.raises(MCPError):
                await read_text(client, "godot://no/such")


async def test_every_prompt_is_listed_and_validates_its_arguments(harness: Any, era: str) -> None:
    async with harness.gateway.client(era) as client:
        listed = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert len(listed) == len(PROMPTS) == 20
        result = await client.get_prompt("godot_create_enemy_ai", {"behavior": "patrols"})
        assert "patrols" in result.messages[0].content.text
        with pytest.raises(MCPError):
            await client.get_prompt("godot_create_enemy_ai", {})


async def test_debug_stream_returns_each_line_once(engine_harness: Any) -> None:
    script = 'extends Node2D\nfunc _ready() -> void:\n\tprint("once")\n\tget_tree().quit()\n'
    await engine_harness.call_ok("write_script", scriptPath="main.gd", content=script)
    await engine_harness.call_ok("attach_script", scenePath="main.tscn", nodePath=".", scriptPath="main.gd")
    async with engine_harness.gateway.client() as client:
        assert json.loads(await read_text(client, "godot://debug/stream"))["active"] is False
        await engine_harness.call_ok("start_debug_stream", projectPath=None)
        await engine_harness.call_ok("run_project", scene="main.tscn")
        lines: list[str] = []
        while "once" not in lines:
            lines += json.loads(await read_text(client, "godot://debug/stream"))["output"]
        assert "once" not in json.loads(await read_text(client, "godot://debug/stream"))["output"]
