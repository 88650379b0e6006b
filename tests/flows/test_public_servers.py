"""Public MCP servers that need no credentials, imported with the defaults and called without elicitation.

Three servers run with every test run; `make public-servers` runs all eight.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway.policy.source import SHIPPED
from tests.flows.process import Json, Served, modern, modern_headers, run, serving, until
from tests.peers import npm, pypi
from tests.peers.browser import CHROMIUM

ALL: Final = os.environ.get("GATEHOUSE_PUBLIC_SERVERS") == "all"
GUARDED: Final = {"filesystem": "write_file", "memory": "create_entities", "everything": "echo"}
"""One tool of each server of the short form, which a policy of the third test lets only a group approve."""


def _servers(folder: Path) -> Json:
    """Entries of a client's configuration file."""
    docs = folder / "docs"
    docs.mkdir()
    found: dict[str, list[str]] = {
        "filesystem": [*npm.command(npm.FILESYSTEM), str(docs)],
        "memory": npm.command(npm.MEMORY),
        "everything": [*npm.command(npm.EVERYTHING), "stdio"],
    }
    if ALL:
        subprocess.run(["git", "init", "--quiet", str(docs)], check=True)
        node, playwright = npm.command(npm.PLAYWRIGHT)
        browser = ["--headless", "--isolated", "--no-sandbox", "--executable-path", str(CHROMIUM)]
        found |= {
            "sequential-thinking": npm.command(npm.THINKING),
            "fetch": pypi.command(pypi.FETCH),
            "git": [*pypi.command(pypi.GIT), "--repository", str(docs)],
            "time": pypi.command(pypi.TIME),
            "playwright": [node, str(Path(playwright).parents[1] / "cli.js"), *browser],
        }
    entries: Json = {name: {"command": words[0], "args": words[1:]} for name, words in found.items()}
    entries["memory"]["env"] = {"MEMORY_FILE_PATH": str(folder / "memory.json")}
    return entries


@dataclass(frozen=True)
class Site:
    """A folder with imported servers."""

    folder: Path
    servers: tuple[str, ...]

    def change(self, **entry: Any) -> None:
        """Change the entry of every server, and serve on any port."""
        file = self.folder / "gatehouse.yaml"
        settings = yaml.safe_load(file.read_text())
        for each in settings["backends"].values():
            each |= entry
        settings |= {"log": {"format": "json"}, "limits": {"calls": "1000000/minute"}}
        file.write_text(yaml.safe_dump(settings))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    servers = _servers(tmp_path)
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    imported = run(tmp_path, "import", ".mcp.json")
    assert imported.returncode == 0, imported.stderr
    assert "trust: client: the gateway asks for no approval" in imported.stdout
    return Site(tmp_path, tuple(servers))


def _tools(served: Served, servers: tuple[str, ...]) -> list[Json]:
    """The tools of all servers, once each server has listed its own."""

    def listed() -> list[Json]:
        params: Json = {}
        answer = served.post(modern("tools/list", params), **modern_headers("tools/list", params)).json()
        tools: list[Json] = answer["result"]["tools"]
        while cursor := answer["result"].get("nextCursor"):
            params = {"cursor": cursor}
            answer = served.post(modern("tools/list", params), **modern_headers("tools/list", params)).json()
            tools += answer["result"]["tools"]
        present = {tool["_meta"]["gatehouse/id"].partition(".")[0] for tool in tools}
        return tools if present >= set(servers) else []

    return until(listed, "every server has listed its tools")


def _sample(schema: Json, name: str = "") -> Any:
    """A value that matches a schema of these servers."""
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return _sample(schema[key][0], name)
    match schema.get("type"):
        case "object" | None if "properties" in schema or schema.get("type") == "object":
            properties: Json = schema.get("properties", {})
            return {key: _sample(properties[key], key) for key in schema.get("required", ()) if key in properties}
        case "array":
            return [_sample(schema["items"])] * schema.get("minItems", 0) if "items" in schema else []
        case "integer" | "number":
            return max(schema.get("minimum", 1), 1)
        case "boolean":
            return False
        case _:
            # Never an address outside this machine, and no address that answers.
            return "http://127.0.0.1:1/" if "url" in name.lower() else "sample"


def _call(served: Served, tool: Json, **meta: Any) -> Json:
    """Call the tool from a client without elicitation; return the gateway's error object, empty if it went through."""
    params: Json = {"name": tool["name"], "arguments": _sample(tool["inputSchema"])}
    if meta:
        params["_meta"] = meta
    answer = served.post(modern("tools/call", params), **modern_headers("tools/call", params)).json()
    assert "result" in answer, (tool["name"], answer)
    result = answer["result"]
    structured = result.get("structuredContent")
    error = (structured.get("error") if isinstance(structured, dict) else None) or {}
    return (result.get("_meta") or {}).get("gatehouse/error") or (error if "stage" in error else {})


def _is_destructive(tool: Json) -> bool:
    return (tool.get("annotations") or {}).get("destructiveHint") is True


def test_every_tool_of_imported_servers_can_be_called_without_elicitation(site: Site) -> None:
    site.change()
    with serving(site.folder) as served:
        tools = _tools(served, site.servers)
        refused = {tool["name"]: error for tool in tools if (error := _call(served, tool))}
    # The gateway refuses none; what a server itself answers to the sample arguments does not matter.
    assert {name: error["kind"] for name, error in refused.items() if error["origin"] == "gateway"} == {}
    assert any(map(_is_destructive, tools))
    print(f"{len(tools)} tools of {len(site.servers)} servers, {sum(map(_is_destructive, tools))} of them destructive")


def test_destructive_tools_need_approval_with_trust_annotations(site: Site) -> None:
    site.change(trust="annotations")
    with serving(site.folder) as served:
        tools = _tools(served, site.servers)
        destructive = [tool for tool in tools if _is_destructive(tool)]
        kinds = {tool["name"]: _call(served, tool).get("kind") for tool in destructive}
        harmless = next(tool for tool in tools if tool["name"] == "everything_echo")
        assert _call(served, harmless) == {}
    assert set(kinds.values()) == {"approval_required"}
    assert {tool["_meta"]["gatehouse/effect"] for tool in destructive} == {3}


def test_every_writing_tool_needs_approval_with_trust_strict(site: Site) -> None:
    site.change(trust="strict")
    with serving(site.folder) as served:
        tools = _tools(served, site.servers)
        kinds = {tool["name"]: _call(served, tool).get("kind") for tool in tools}
    assert set(kinds.values()) == {"approval_required"}


@pytest.fixture(params=["strict", "annotations", "client"])
def guarded(site: Site, request: pytest.FixtureRequest) -> Iterator[tuple[Served, Site]]:
    """The servers under each trust, with policies that require approval by a group."""
    policies = site.folder / "policies"
    shutil.copytree(SHIPPED, policies)
    ids = ", ".join(f'Gw::Tool::"{namespace}.{tool}"' for namespace, tool in GUARDED.items())
    (policies / "default" / "20-approval.cedar").write_text(
        '@id("approval.platform") @approval("group:platform") @reason("The platform team approves this.")\n'
        'forbid (principal, action == Gw::Action::"tools/call", resource)\n'
        f"when {{ [{ids}].contains(resource) && !context.approved }};\n"
    )
    site.change(trust=request.param)
    file = site.folder / "gatehouse.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "policies": {"dir": "policies"}}))
    with serving(site.folder) as served:
        yield served, site


def test_an_approval_that_a_policy_requires_holds_under_every_trust(guarded: tuple[Served, Site]) -> None:
    served, site = guarded
    tools = {tool["_meta"]["gatehouse/id"]: tool for tool in _tools(served, site.servers)}
    for namespace, name in GUARDED.items():
        for meta in ({}, {"approved": True}):
            error = _call(served, tools[f"{namespace}.{name}"], **meta)
            assert (error["kind"], error["message"].partition(".")[0]) == (
                "approval_required",
                "The platform team approves this",
            )
            assert error["details"]["approval_id"]
