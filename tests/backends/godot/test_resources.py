"""Resources and prompts: a caller's own projects, and nobody's memory."""

import json
from typing import Any

import pytest
from mcp import MCPError

from backends.godot.prompts import PROMPTS


async def text(client: Any, uri: str) -> str:
    return (await client.read_resource(uri)).contents[0].text


async def test_the_sdk_client_reads_a_project_as_resources_in_either_era(studio: Any, era: str) -> None:
    (studio.project / "player.gd").write_text("extends Node\n")
    async with studio.gateway.client(era) as client:
        uris = {str(each.uri) for each in (await client.list_resources()).resources}
        assert {"godot://project/info", "godot://scenes", "godot-template://state-machine"} <= uris
        templates = {each.uri_template for each in (await client.list_resource_templates()).resource_templates}
        assert "godot://scene/{+path}{?project}" in templates
        assert json.loads(await text(client, "godot://project/info"))["name"] == "Meadow"
        assert await text(client, "godot://script/player.gd") == "extends Node\n"
        assert (await text(client, "godot://scene/main.tscn")).startswith("[gd_scene")
        assert json.loads(await text(client, "godot://scene/main.tscn/tree"))["nodeCount"] == 3
        assert json.loads(await text(client, "godot://project/settings/application"))["settings"]
        assert "signal changed" in await text(client, "godot-template://state-machine")


async def test_with_several_projects_one_must_be_named_and_others_are_not_there(studio_with: Any) -> None:
    async with studio_with(settings={"tenants": {"default": {}, "acme": {}}}) as ours:
        theirs = await ours.of("acme")
        theirs.make_project("secret")
        async with theirs.gateway.client() as client:
            assert json.loads(await text(client, "godot://project/info?project=secret"))["name"] == "Meadow"
        ours.make_project("second")
        async with ours.gateway.client() as client:
            with pytest.raises(MCPError, match="which project"):
                await text(client, "godot://scenes")
            assert len(json.loads(await text(client, "godot://scenes?project=second"))["scenes"]) == 1
            with pytest.raises(MCPError):
                await text(client, "godot://scenes?project=secret")
            for uri in ("godot://script/../x.gd?project=second", "godot://script/%2e%2e%2fx.gd?project=second"):
                with pytest.raises(MCPError):
                    await text(client, uri)
            with pytest.raises(MCPError):
                await text(client, "godot://no/such")


async def test_every_prompt_is_listed_and_says_its_arguments(studio: Any, era: str) -> None:
    async with studio.gateway.client(era) as client:
        listed = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert len(listed) == len(PROMPTS) == 20
        result = await client.get_prompt("godot_create_enemy_ai", {"behavior": "patrols"})
        assert "patrols" in result.messages[0].content.text
        with pytest.raises(MCPError):
            await client.get_prompt("godot_create_enemy_ai", {})


async def test_the_debug_stream_gives_each_line_once(real: Any) -> None:
    script = 'extends Node2D\nfunc _ready() -> void:\n\tprint("once")\n\tget_tree().quit()\n'
    await real.good("write_script", scriptPath="main.gd", content=script)
    await real.good("attach_script", scenePath="main.tscn", nodePath=".", scriptPath="main.gd")
    async with real.gateway.client() as client:
        assert json.loads(await text(client, "godot://debug/stream"))["active"] is False
        await real.good("start_debug_stream", projectPath=None)
        await real.good("run_project", scene="main.tscn")
        heard: list[str] = []
        while "once" not in heard:
            heard += json.loads(await text(client, "godot://debug/stream"))["output"]
        assert "once" not in json.loads(await text(client, "godot://debug/stream"))["output"]
