"""`gatehouse approvals`: list, show, approve and deny held calls of a running gateway, and manage grants."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.options import AsJson, Config

if TYPE_CHECKING:
    from gateway.contract import Json

approvals = typer.Typer(help="List, show, approve and deny calls that wait for approval.")

Url = Annotated[
    str | None, typer.Option("--url", envvar="GATEHOUSE_URL", help="URL of the gateway; default: from the settings.")
]
Token = Annotated[
    str | None, typer.Option("--token", envvar="GATEHOUSE_TOKEN", help="API key of a user with the scope mcp:approve.")
]
ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="ID of the approval.")]


@approvals.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction] - typer calls it
    if context.invoked_subcommand is None:
        print(context.get_help())


@approvals.command("list")
def list_approvals(
    status: Annotated[
        str, typer.Option("--status", help="waiting, approved, denied, used, expired or all.")
    ] = "waiting",
    config: Config = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List the calls that you may see; by default those that wait."""
    found = _get(config, url, token, "approvals", {"status": status})["approvals"]
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    rows = [
        (each["id"], each["status"], each["tool"], _name(each["caller"]), _groups(each), _time(each["expires_at"]))
        for each in found
    ]
    _table(("id", "status", "tool", "caller", "approvers", "expires"), rows, "no call waits for approval")


@approvals.command()
def show(id: ApprovalId, config: Config = None, url: Url = None, token: Token = None, as_json: AsJson = False) -> None:
    """Show a call with all its arguments."""
    found = _get(config, url, token, f"approvals/{_segment(id)}", {})
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _show(found)


@approvals.command()
def approve(
    id: ApprovalId,
    reason: Annotated[str, typer.Option("--reason", help="Reason, for the record.")] = "",
    for_: Annotated[
        str,
        typer.Option("--for", help="once; hour or session: later calls of this tool by this caller need no approval."),
    ] = "once",
    config: Config = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Approve a call. Read its arguments with `gatehouse approvals show` before."""
    _decide(id, {"decision": "approve", "reason": reason, "duration": for_}, config, url, token, as_json)


@approvals.command()
def deny(
    id: ApprovalId,
    reason: Annotated[str, typer.Option("--reason", help="Reason, which the caller receives.")],
    config: Config = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Deny a call, with a reason."""
    _decide(id, {"decision": "deny", "reason": reason}, config, url, token, as_json)


@approvals.command()
def grants(config: Config = None, url: Url = None, token: Token = None, as_json: AsJson = False) -> None:
    """List the active grants: tools that a caller may call for a time without another approval."""
    found = _get(config, url, token, "approvals/grants", {})["grants"]
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    rows = [
        (each["id"], each["tool"], _name(each["caller"]), each["for"], _name(each["approver"]), _time(each["ends_at"]))
        for each in found
    ]
    _table(("id", "tool", "caller", "for", "approver", "ends"), rows, "there are no active grants")


@approvals.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="GRANT", help="ID of the grant.")],
    config: Config = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Revoke a grant, effective immediately."""
    _send("DELETE", config, url, token, f"approvals/grants/{_segment(id)}")
    print(f"revoked {id}")


@approvals.command()
def undelivered(
    retry: Annotated[str | None, typer.Option("--retry", metavar="ID", help="Send this notification again.")] = None,
    config: Config = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List the notifications that could not be delivered (scope mcp:admin)."""
    if retry is not None:
        _send("POST", config, url, token, f"approvals/undelivered/{_segment(retry)}")
        print(f"sending {retry} again")
        return
    found = _get(config, url, token, "approvals/undelivered", {})["undelivered"]
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    rows = [
        (each["id"], each["channel"], each["approval_id"], str(each["attempts"]), each["last_error"]) for each in found
    ]
    _table(("id", "channel", "approval", "attempts", "last error"), rows, "every notification was delivered")


def _decide(id: str, body: "Json", config: Path | None, url: str | None, token: str | None, as_json: bool) -> None:
    found = _send("POST", config, url, token, f"approvals/{_segment(id)}", body)
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    elif found["status"] == "waiting":
        print(f"approved {found['tool']} for {_name(found['caller'])}; more approvers are needed: {_groups(found)}")
    else:
        print(f"{found['status']} {found['tool']} for {_name(found['caller'])}")


def _show(found: "Json") -> None:
    print(f"{found['tool']} for {_name(found['caller'])}: {found['status']}")
    for label, value in (
        ("Why", found["reason"]),
        ("Effect", found["effect"]),
        ("Policies", ", ".join(found["policies"])),
        ("Approvers", _groups(found)),
        ("Expires", _time(found["expires_at"])),
        ("Correlation ID", found["correlation_id"]),
    ):
        print(f"  {label + ':':<16}{value}")
    for each in found["decisions"]:
        print(f"  {_name(each['approver'])}: {each['decision']} {each['reason']}".rstrip())
    print("Arguments:" if found["arguments_complete"] else "Arguments, some of them hidden from you:")
    print(found["arguments"])
    if found["obstacle"]:
        print(found["obstacle"])


def _get(config: Path | None, url: str | None, token: str | None, route: str, query: "Json") -> "Json":
    from gateway.cli.impersonate import get_api
    from gateway.cli.load_settings import api_url

    return get_api(api_url(url, config), token, route, query)


def _send(
    method: str, config: Path | None, url: str | None, token: str | None, route: str, body: "Json | None" = None
) -> "Json":
    from gateway.cli.impersonate import send_api
    from gateway.cli.load_settings import api_url

    return send_api(method, api_url(url, config), token, route, body)


def _segment(id: str) -> str:
    from urllib.parse import quote

    return quote(id, safe="")


def _table(columns: tuple[str, ...], rows: list[tuple[Any, ...]], empty: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    from gateway.cli.output import open_output

    if not rows:
        print(empty)
        return
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    open_output().print(table)


def _name(principal: str) -> str:
    return principal.partition("/")[2].removeprefix("user:") or principal


def _groups(found: "Json") -> str:
    return ", ".join(f"{each['count']} of {each['group']}" for each in found["approvers"])


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
