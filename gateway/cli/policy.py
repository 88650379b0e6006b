"""`gatehouse policy`: shows and tests the policies, and explains decisions."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.failure import BAD_SETTINGS, CommandError
from gateway.cli.options import AsJson, Config

if TYPE_CHECKING:
    from gateway.contract import Caller, Json

policies = typer.Typer(help="Show, test and explain the policies.")

Tenant = Annotated[str, typer.Option("--tenant", help="Tenant of the caller.")]
Group = Annotated[list[str] | None, typer.Option("--group", help="Group of the caller; may be repeated.")]
Scope = Annotated[
    list[str] | None,
    typer.Option("--scope", help="Scope of the credential; may be repeated; default: the usual three."),
]
ApiUrl = Annotated[str | None, typer.Option("--url", help="Query the running gateway at this URL instead.")]
Token = Annotated[
    str | None, typer.Option("--token", envvar="GATEHOUSE_TOKEN", help="API key or token with the scope mcp:admin.")
]


@policies.callback(invoke_without_command=True)
def status(context: typer.Context, config: Config = None, as_json: AsJson = False) -> None:
    """Show the active policies and whether they are valid."""
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
            *exc.lines, "a running gateway keeps its last valid policies until this is corrected", code=BAD_SETTINGS
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
    print(f"{len(loaded.default.notes)} policies for tenants without their own folder")
    for tenant, ids in own.items():
        print(f"{len(ids)} policies for {tenant}")


@policies.command("test")
def run_tests(config: Config = None, as_json: AsJson = False) -> None:
    """Run the table tests in the policy folder. Every policy must decide at least one row."""
    from gateway.policy.source import InvalidPolicies
    from gateway.policy.table_tests import run_tables

    try:
        report = run_tables(_folder(config))
    except InvalidPolicies as exc:
        raise CommandError(*exc.lines, code=BAD_SETTINGS) from exc
    if as_json:
        print(json.dumps({"rows": report.rows, "policies": report.policies, "mistakes": report.problems}, indent=2))
    else:
        print(f"{report.rows} rows, {report.policies} policies, {len(report.problems)} mistakes")
    if report.problems:
        raise CommandError(*report.problems)


@policies.command()
def why(
    tool: Annotated[str, typer.Option("--tool", help="Name of the tool.")],
    tenant: Tenant = "default",
    subject: Annotated[str | None, typer.Option("--subject", help="User that calls the tool.")] = None,
    service: Annotated[str | None, typer.Option("--service", help="Service account that calls the tool.")] = None,
    args: Annotated[str, typer.Option("--args", metavar="JSON", help="Arguments of the call.")] = "{}",
    group: Group = None,
    scope: Scope = None,
    approved: Annotated[bool, typer.Option("--approved", help="Assume that the call is approved.")] = False,
    config: Config = None,
    url: ApiUrl = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Explain whether a call is allowed, and which policies decide."""
    from gateway.cli.impersonate import build_caller, post_api, with_gateway
    from gateway.cli.load_settings import api_url

    caller = build_caller(tenant, subject, service, group, scope)
    arguments = _object(args)
    if url is not None:
        body = {"tool": tool, "arguments": arguments, "approved": approved}
        found = post_api(api_url(url, config), token, "policy/why", caller, body)
    else:
        found = with_gateway(
            config, lambda gateway: gateway.policy_explainer.explain(caller, tool, arguments, approved)
        )
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _show(found)


def _show(found: "Json") -> None:
    print(found["sentence"])
    for note in found["policies"]:
        print(f"  {note['id']} ({note['effect']})" + (f": {note['reason']}" if note["reason"] else ""))
    if found["effect"] is not None:
        print(f"  {found['tool']} has effect {found['effect']}; policy version {found['version']}")


def _folder(config: Path | None) -> Path:
    from gateway.cli.load_settings import read_settings_leniently
    from gateway.policy.source import SHIPPED

    return read_settings_leniently(config).policies.dir or SHIPPED


def _object(text: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(text)
    except ValueError as exc:
        raise CommandError(f"--args is not valid JSON: {exc}", code=2) from exc
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
    """The tools that a user may call, from the running gateway at `url` or from the settings."""
    from gateway.cli.impersonate import build_caller, post_api, with_gateway
    from gateway.cli.load_settings import api_url

    caller: Caller = build_caller(tenant, subject, None, group, None)
    if url is not None:
        return post_api(api_url(url, config), token, "policy/tools", caller, {})["tools"]
    return with_gateway(config, lambda gateway: gateway.policy_explainer.visible_tools(caller))
