"""`gatehouse policy`: which policies are there, whether they hold what they promise, and why something is so."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.failure import BAD_SETTINGS, CommandError
from gateway.cli.options import AsJson, Config

if TYPE_CHECKING:
    from gateway.contract import Caller, Json

policies = typer.Typer(help="Show, test and explain the policies.")

Tenant = Annotated[str, typer.Option("--tenant", help="Tenant of the person.")]
Group = Annotated[list[str] | None, typer.Option("--group", help="Group the person is in; may be repeated.")]
Scope = Annotated[list[str] | None, typer.Option("--scope", help="Scope of the credential; the usual three.")]
ApiUrl = Annotated[str | None, typer.Option("--url", help="Ask a running gateway at this address instead.")]
Token = Annotated[
    str | None, typer.Option("--token", envvar="GATEHOUSE_TOKEN", help="Its key or token, with the scope mcp:admin.")
]


@policies.callback(invoke_without_command=True)
def status(context: typer.Context, config: Config = None, as_json: AsJson = False) -> None:
    """Say which policies the settings name, and whether they can be used."""
    if context.invoked_subcommand is not None:
        return
    from gateway.policy.active_policies import load
    from gateway.policy.source import InvalidPolicies

    folder = _folder(config)
    try:
        loaded = load(folder)
    except InvalidPolicies as exc:
        if as_json:
            print(json.dumps({"folder": str(folder), "usable": False, "mistakes": exc.lines}, indent=2))
        raise CommandError(
            *exc.lines, "a running gateway keeps its last good policies until this is mended", code=BAD_SETTINGS
        ) from exc
    own = {tenant: sorted(rules.notes) for tenant, rules in loaded.tenants.items()}
    if as_json:
        shown = {
            "folder": str(folder),
            "usable": True,
            "version": loaded.version,
            "default": sorted(loaded.default.notes),
        }
        print(json.dumps({**shown, "tenants": own}, indent=2))
        return
    print(f"Policies: {folder}\nVersion:  {loaded.version}")
    print(f"{len(loaded.default.notes)} policies decide for tenants without a folder of their own")
    for tenant, ids in own.items():
        print(f"{len(ids)} policies decide for {tenant}")


@policies.command("test")
def run_tests(config: Config = None, as_json: AsJson = False) -> None:
    """Run the tables in the policies' folder; every policy must be hit by a row."""
    from gateway.policy.source import InvalidPolicies
    from gateway.policy.table_tests import run_tables

    try:
        report = run_tables(_folder(config))
    except InvalidPolicies as exc:
        raise CommandError(*exc.lines, code=BAD_SETTINGS) from exc
    if as_json:
        print(json.dumps({"rows": report.rows, "policies": report.policies, "mistakes": report.mistakes}, indent=2))
    else:
        print(f"{report.rows} rows, {report.policies} policies, {len(report.mistakes)} mistakes")
    if report.mistakes:
        raise CommandError(*report.mistakes)


@policies.command()
def why(
    tool: Annotated[str, typer.Option("--tool", help="Name of the tool.")],
    tenant: Tenant = "default",
    subject: Annotated[str | None, typer.Option("--subject", help="User who would call it.")] = None,
    service: Annotated[str | None, typer.Option("--service", help="Service account that would call it.")] = None,
    args: Annotated[str, typer.Option("--args", metavar="JSON", help="Arguments of the call.")] = "{}",
    group: Group = None,
    scope: Scope = None,
    approved: Annotated[bool, typer.Option("--approved", help="As if a person had approved it.")] = False,
    config: Config = None,
    url: ApiUrl = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Explain what would become of a call, and by which policies."""
    from gateway.cli.impersonate import ask_api, person, with_house
    from gateway.cli.load_settings import api_address

    who = person(tenant, subject, service, group, scope)
    arguments = _object(args)
    if url is not None:
        asked = {"tool": tool, "arguments": arguments, "approved": approved}
        found = ask_api(api_address(url, config), token, "policy/why", who, asked)
    else:
        found = with_house(config, lambda house: house.advice.why(who, tool, arguments, approved))
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _show(found)


def _show(found: "Json") -> None:
    print(found["sentence"])
    for note in found["policies"]:
        print(f"  {note['id']} ({note['effect']})" + (f": {note['reason']}" if note["reason"] else ""))
    if found["effect"] is not None:
        print(f"  {found['tool']} has effect {found['effect']}; policies {found['version']}")


def _folder(config: Path | None) -> Path:
    from gateway.cli.load_settings import read_without_backends
    from gateway.policy.source import SHIPPED

    return read_without_backends(config).policies.dir or SHIPPED


def _object(text: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(text)
    except ValueError as exc:
        raise CommandError(f"--args is not JSON: {exc}", code=2) from exc
    if not isinstance(found, dict):
        raise CommandError("--args must be a JSON object", code=2)
    return found  # type: ignore[return-value]  # a JSON object has strings for keys


def show_tools_as(
    tenant: str,
    subject: str,
    group: list[str] | None,
    config: Path | None,
    url: str | None,
    token: str | None,
) -> "list[Json]":
    """The catalogue as that person sees it: of a running gateway at `url`, else of the settings."""
    from gateway.cli.impersonate import ask_api, person, with_house
    from gateway.cli.load_settings import api_address

    who: Caller = person(tenant, subject, None, group, None)
    if url is not None:
        return ask_api(api_address(url, config), token, "policy/tools", who, {})["tools"]
    return with_house(config, lambda house: house.advice.seen_tools(who))
