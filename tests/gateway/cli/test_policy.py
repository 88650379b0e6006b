"""`gatehouse policy`: show, test and explain policies of the settings or of a running gateway."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import respx
from typer.testing import Result

from tests.conftest import Start
from tests.gateway.policy.folders import policy_folder

Run = Callable[..., Result]


def test_shipped_policies_are_shown_and_their_tables_pass(run: Run) -> None:
    shown = json.loads(run("policy", "--json").stdout)
    assert shown["usable"]
    assert "guard.tenant" in shown["default"]
    tested = run("policy", "test")
    assert tested.exit_code == 0
    assert "0 mistakes" in tested.stdout


def test_invalid_policy_is_reported_with_its_position(run: Run, tmp_path: Path) -> None:
    folder = policy_folder(tmp_path, "permit (", tenant="acme")
    (tmp_path / "gatehouse.yaml").write_text(f"policies: {{dir: {folder}}}")
    for command in (("policy",), ("policy", "test")):
        refused = run(*command)
        assert refused.exit_code == 2
        assert refused.stderr.startswith("gatehouse: tenants/acme/10-grants.cedar:")
    assert "keeps its last valid policies" in run("policy").stderr


def test_failed_table_row_fails_the_command(run: Run, tmp_path: Path) -> None:
    folder = policy_folder(tmp_path)
    (folder / "tests" / "more.yaml").write_text("- {name: wrong, tool: {id: a.b}, expect: deny, by: [guard.tenant]}")
    (tmp_path / "gatehouse.yaml").write_text(f"policies: {{dir: {folder}}}")
    failed = run("policy", "test")
    assert (failed.exit_code, "1 mistakes" in failed.stdout) == (1, True)
    assert "expected deny by guard.tenant, got allow by grant.call" in failed.stderr


CORE = "backends: {core: {module: backends.core}}\ntenants: {default: {}, guests: {backends: [none]}}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tool", "core_ping", "--subject", "alice"), "Allowed by grant.call."),
        (("--tool", "core.ping", "--subject", "alice", "--tenant", "guests"), "(guard.tenant)"),
        (("--tool", "core_ping", "--service", "ci", "--scope", "mcp:list"), "lacks the scope mcp:call"),
        (("--tool", "core_pong", "--subject", "alice"), "Unknown tool: core_pong."),
    ],
)
def test_why_explains_a_decision_from_the_settings(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "gatehouse.yaml").write_text(CORE)
    found = run("policy", "why", *arguments)
    assert found.exit_code == 0, found.stderr
    assert message in found.stdout


def test_why_rejects_a_missing_caller_or_invalid_arguments(run: Run) -> None:
    assert run("policy", "why", "--tool", "core_ping").exit_code == 2
    assert run("policy", "why", "--tool", "core_ping", "--subject", "a", "--args", "[]").exit_code == 2


def test_tools_as_another_user_shows_their_catalogue(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text(CORE)
    assert "core_ping" in run("tools", "--as", "alice").stdout
    assert json.loads(run("tools", "--as", "alice", "--tenant", "guests", "--json").stdout) == []


async def test_running_gateway_is_queried_through_its_api(run: Run, start: Start) -> None:
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        admin = await gateway.new_key(subject="op", scopes=["mcp:admin"])
        found: list[Result] = []

        def run_commands() -> None:
            for token in (admin, gateway.key):
                found.append(
                    run(
                        "policy", "why", "--url", gateway.url, "--token", token, "--tool", "core_ping", "--subject", "a"
                    )
                )
            found.append(run("tools", "--as", "a", "--url", gateway.url, "--token", admin, "--json"))
            found.append(run("usage", "--url", gateway.url, "--token", admin))

        await asyncio.to_thread(run_commands)
    assert "Allowed by grant.call." in found[0].stdout
    assert found[1].exit_code == 3
    assert "mcp:admin" in found[1].stderr
    assert "gatehouse key create --subject NAME --scope mcp:admin" in found[1].stderr
    assert [line for line in found[3].stdout.splitlines()[1:] if line] == ["limits: none", "shares: none", "open: none"]
    assert [tool["name"] for tool in json.loads(found[2].stdout)] == ["core_ping"]


@pytest.mark.parametrize("where", ["option", "environment"])
def test_tools_as_uses_the_api_of_the_mcp_url(run: Run, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--url", "http://127.0.0.1:8080/mcp") if where == "option" else ()
    monkeypatch.setenv("GATEHOUSE_URL", "http://127.0.0.1:8080/mcp" if where == "environment" else "")
    with respx.mock:
        api = respx.post("http://127.0.0.1:8080/api/v1/policy/tools").respond(json={"tools": []})
        assert run("tools", "--as", "a", *options, "--json").stdout == "[]\n"
        assert api.called
