"""`gatehouse check`: shows the configured backends and the errors in the settings."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from gateway.policy.source import SHIPPED

Run = Callable[..., Result]


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "check_fine.py").write_text("from mcp.server import Server\nserver = Server('fine')\n")
    (folder / "check_broken.py").write_text("raise RuntimeError('no luck')\n")
    return folder / "g.yaml"


def test_check_shows_each_backend_and_virtual_server(run: Run, settings: Path) -> None:
    settings.write_text(
        "backends:\n  a: {module: check_fine}\n  b: {url: 'http://127.0.0.1:1/mcp', enabled: false}\n"
        "  c: {command: npx, args: [secret]}\nservers: {s: {backends: [a, b]}}\ntenants: {t: {backends: [x]}}\n"
    )
    result = run("check", "--config", str(settings))
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["a", "module", "check_fine:server", "yes"] in rows
    assert ["b", "url", "http://127.0.0.1:1/mcp", "no", "annotations"] in rows
    assert ["c", "command", "npx", "yes", "annotations"] in rows
    assert "/mcp/s: a, b (underscore names)" in result.stdout
    assert result.stderr.splitlines() == [
        "gatehouse: warning: servers.s: b is not enabled",
        "gatehouse: warning: tenants.t: there is no backend x",
    ]


def test_module_import_error_is_reported_on_one_line_with_its_reason(run: Run, settings: Path) -> None:
    settings.write_text(
        "backends: {a: {module: check_broken}, b: {module: check_nowhere}, c: {module: 'check_fine:other'}}\n"
    )
    result = run("check", "--config", str(settings))
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"gatehouse: {settings}:1:12: backends.a: check_broken cannot be imported: RuntimeError: no luck",
        f"gatehouse: {settings}:1:39: backends.b: check_nowhere cannot be imported: "
        "ModuleNotFoundError: No module named 'check_nowhere'",
        f"gatehouse: {settings}:1:67: backends.c: check_fine has no `other`",
    ]


LOAD_ERRORS = {
    "backends:\n  far: {url: 'http://10.0.0.1/mcp'}\n": "{}:2:9: backends.far.url: 10.0.0.1 may only be",
    "backends:\n  a: {module: check_fine, options: {zz: 1}}\n": (
        "{}:2:27: backends.a.options: this module takes no options"
    ),
    "backends:\n  k: {module: backends.knowledge, options: {zz: 1}}\n": "{}:2:45: backends.k.options.zz: ",
    "policies:\n  dir: nope\n": "{}:2:3: policies.dir: nope: schema.cedarschema is missing; start from a copy of ",
    "bus: {url: 'redis://127.0.0.1:1/0'}\nbackends:\n  l: {module: backends.launch}\n": (
        "{}:3:3: backends.l: this module works on local files, which all processes must share:"
        " put files_dir on a shared volume"
    ),
}


@pytest.mark.parametrize("text", LOAD_ERRORS)
def test_check_reports_load_errors_with_position_and_marks_backends_not_served(
    run: Run, settings: Path, text: str
) -> None:
    settings.write_text(text)
    result = run("check", "--config", str(settings))
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("gatehouse: " + LOAD_ERRORS[text].format(settings))
    if "backends:" in text:
        assert "no" in result.stdout.splitlines()[-1].split()
    started = run("serve", "--config", str(settings), "--port", "0")
    assert started.exit_code == 2
    assert started.stderr.splitlines()[-1] == line


def test_json_output_is_one_object(run: Run, settings: Path) -> None:
    settings.write_text("backends: {a: {module: check_fine}}\nserver: {host: 0.0.0.0}\n")
    shown = json.loads(run("check", "--config", str(settings), "--json").stdout)
    entry = {"namespace": "a", "kind": "module", "target": "check_fine:server", "served": True, "trust": ""}
    assert shown["backends"] == [entry]
    assert shown["warnings"] == ["server.public_url: not set, and clients cannot reach http://0.0.0.0:8080"]
    assert shown["errors"] == []


def test_settings_errors_are_printed_one_per_line_with_exit_2(run: Run, settings: Path) -> None:
    settings.write_text("server: {prot: 1}\nlog: {levle: info}\n")
    result = run("check", "--config", str(settings))
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"gatehouse: {settings}:1:10: server.prot: unknown key; did you mean port?",
        f"gatehouse: {settings}:2:7: log.levle: unknown key; did you mean level?",
    ]


RULES = """
backends:
  tickets:
    module: tests.flows.fixtures.tickets
    tools: [{deny: "tickets.drop_*"}, {deny: "ticket.*"}]
  far: {url: "http://127.0.0.1:1/mcp", allow_private: true}
servers:
  support:
    backends: [tickets, far]
    tenants: [sales]
    tools:
      - {allow: "tickets.create_issue", set: {priority: high}}
      - {allow: "tickets.get_issue", name: tickets_delete_issue}
      - {allow: "tickets.*"}
      - {deny: "tickets.delete_*"}
      - {allow: "far.*"}
    prompts: [{allow: "tickets.unknown"}, {allow: "*"}]
    resources: [{deny: "tickets:tickets://unlisted"}, {deny: "other:*"}]
"""


def test_rules_without_effect_and_rules_that_cannot_be_applied_are_reported(run: Run, settings: Path) -> None:
    settings.write_text(RULES)
    result = run("check", "--config", str(settings))
    assert result.exit_code == 0
    assert [line.removeprefix("gatehouse: warning: ") for line in result.stderr.splitlines()] == [
        "backends.tickets.tools.0: tickets.drop_* matches nothing",
        "backends.tickets.tools.1: ticket.* matches nothing",
        "servers.support.tenants: sales is not a tenant of the settings",
        "servers.support.tools.3: tickets.delete_* has no effect, because tickets.* comes before it",
        "servers.support.tools.4: far.* cannot be checked, because the lists of far cannot be read; "
        "see `gatehouse backends check`",
        "servers.support.prompts.0: tickets.unknown matches nothing",
        "servers.support.resources.1: other:* matches nothing",
        "servers.support.tools: tickets.create_issue: set: 'priority' has an invalid value: "
        "input.priority: must be integer, not string.",
        "servers.support.tools: tickets.get_issue: the name 'tickets_delete_issue' is the name of tickets.delete_issue",
    ]


def test_rules_are_checked_against_the_tools_of_a_program(run: Run, settings: Path) -> None:
    program = settings.parent / "served_rules.py"
    program.write_text(
        "from mcp.server import MCPServer\nserver = MCPServer('t')\n"
        "@server.tool()\ndef look() -> str: return ''\nserver.run()\n"
    )
    rules = "[{deny: s.look}, {deny: 's.drop_*'}]"
    settings.write_text(f"backends:\n  s: {{command: {sys.executable}, args: [{program}], tools: {rules}}}\n")
    result = run("check", "--config", str(settings))
    assert result.exit_code == 0, result.stderr
    assert result.stderr == "gatehouse: warning: backends.s.tools.1: s.drop_* matches nothing\n"


MISTAKES = {
    "tools: [{allow: a.x, deny: a.y}]": "servers.s.tools.0: give either allow or deny",
    "tools: [{deny: a.x, name: y}]": "servers.s.tools.0.name: has no effect on items that are denied",
    "tools: [{allow: 'a.*', title: y}]": "servers.s.tools.0.title: applies to one item; write its whole id in allow",
    "tools: [{allow: a.x, name: 'a b'}]": "servers.s.tools.0.name: expected letters, digits, _ and -",
    "tools: [{allow: a.x, name: call_tool}]": "servers.s.tools.0.name: call_tool is a tool of the gateway itself",
    "tools: [{allow: a.x, name: n}, {allow: a.y, name: n}]": "servers.s.tools.1.name: a.x has the name n as well",
    f"tools: [{{allow: a.x, name: {'n' * 49}}}]": "servers.s.tools.0.name: is over 48 characters (names.max_length)",
    "tools: {rules: [{allow: a.x, nam: n}]}": "servers.s.tools.rules.0.nam: unknown key; did you mean name?",
    "tools: every": "servers.s.tools.view: expected 'list', 'search' or 'auto'",
    'instructions: "a\\u200bb"': "servers.s.instructions: contains the hidden character",
}


@pytest.mark.parametrize("written", MISTAKES)
def test_mistake_in_a_rule_is_reported_with_its_position(run: Run, settings: Path, written: str) -> None:
    settings.write_text(f"backends: {{a: {{module: check_fine}}}}\nservers:\n  s:\n    backends: [a]\n    {written}\n")
    result = run("check", "--config", str(settings))
    assert result.exit_code == 2
    assert f"{settings}:5:" in result.stderr
    assert MISTAKES[written] in result.stderr


def test_check_shows_the_effect_of_each_tool_and_rejects_names_that_match_none(run: Run, settings: Path) -> None:
    tools = "server = MCPServer('t')\n@server.tool()\ndef drop_all() -> str: return ''\n"
    (settings.parent / "check_tools.py").write_text(f"from mcp.server import MCPServer\n{tools}")
    settings.write_text("backends:\n  a:\n    module: check_tools\n    effects: {'drop_*': 3}\n")
    result = run("check", "--config", str(settings))
    assert result.exit_code == 0, result.stderr
    assert ["drop_all", "3", "effects", "yes"] in [line.split() for line in result.stdout.splitlines()]

    settings.write_text("backends:\n  a:\n    module: check_tools\n    effects: {'drop_*': 3, drop_al: 3}\n")
    result = run("check", "--config", str(settings))
    assert result.exit_code == 2
    assert result.stderr == (
        f"gatehouse: {settings}:4:28: backends.a.effects.drop_al: no tool of this backend matches it; "
        "did you mean drop_all?\n"
    )


def test_check_reads_the_tools_of_a_command_and_warns_of_one_that_does_not_start(run: Run, settings: Path) -> None:
    program = settings.parent / "served.py"
    program.write_text(
        "from mcp.server import MCPServer\nfrom mcp.types import ToolAnnotations\nserver = MCPServer('t')\n"
        "@server.tool(annotations=ToolAnnotations(destructiveHint=True))\ndef wipe() -> str: return ''\n"
        "@server.tool()\ndef look() -> str: return ''\nserver.run()\n"
    )
    entry = f"{{command: {sys.executable}, args: [{program}], trust: client, effects: {{look: 0}}}}"
    settings.write_text(f"backends:\n  s: {entry}\n  n: {{command: /no/such/program, effects: {{x: 1}}}}\n")
    result = run("check", "--config", str(settings))
    assert result.exit_code == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["wipe", "3", "the", "backend", "no"] in rows
    assert ["look", "0", "effects", "no"] in rows
    assert "warning: backends.n.effects: not checked, its tools cannot be read" in result.stderr


def test_check_warns_if_the_policies_do_not_read_trust(run: Run, settings: Path) -> None:
    folder = settings.parent / "policies"
    shutil.copytree(SHIPPED, folder)
    grants = folder / "default" / "10-grants.cedar"
    grants.write_text(grants.read_text().replace("resource.needs_approval", "resource.effect >= 3"))
    settings.write_text(f"policies: {{dir: {folder}}}\nbackends: {{s: {{command: npx, trust: client}}}}\n")
    result = run("check", "--config", str(settings))
    assert result.exit_code == 0
    assert "warning: backends.s.trust: has no effect: the policies in" in result.stderr
