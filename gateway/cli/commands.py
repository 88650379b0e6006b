"""What can be typed: every command with its options and its help.

What a command does is imported when it is run: nobody who asks for the version waits for a whole gateway to load.

What can be typed to get servers in and out: `gatehouse import` and `gatehouse backends`.
"""

import json
import platform
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import AsJson, Config
from gateway.contract import MODERN

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="GATEHOUSE_URL", help="MCP endpoint; that of the settings unless given."),
]

Token = Annotated[str | None, typer.Option("--token", envvar="GATEHOUSE_TOKEN", help="API key or access token.")]

Host = Annotated[str | None, typer.Option("--host", help="Address to listen on, instead of server.host.")]

Port = Annotated[
    int | None, typer.Option("--port", min=0, max=65535, help="Port to listen on, instead of server.port; 0: any free.")
]


def version(as_json: AsJson = False) -> None:
    """Say which Gatehouse this is."""
    gatehouse, python = installed_version("gatehouse"), platform.python_version()
    if as_json:
        print(json.dumps({"gatehouse": gatehouse, "python": python, "protocol": MODERN}))
    else:
        print(f"gatehouse {gatehouse} (MCP {MODERN}, Python {python})")


def serve(
    config: Config = None,
    host: Host = None,
    port: Port = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes that serve, instead of server.workers.")
    ] = None,
    inherit: Annotated[str | None, typer.Option("--inherit", hidden=True)] = None,
) -> None:
    """Serve what the settings say, until stopped."""
    from gateway.cli.serve import serve

    serve(config, host, port, workers, inherit)


def check(config: Config = None, as_json: AsJson = False) -> None:
    """Check the settings and say what they would serve."""
    from gateway.cli.check import check

    check(config, as_json)


def tools(
    as_: Annotated[
        str | None, typer.Option("--as", metavar="SUBJECT", help="Show them as this user sees them.")
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="With --as: the user's tenant.")] = "default",
    group: Annotated[list[str] | None, typer.Option("--group", help="With --as: a group the user is in.")] = None,
    config: Config = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List the tools you may call; with --as, those that somebody else may, of the settings unless --url is given."""
    from gateway.cli.tools import list_tools, show

    if as_ is None:
        list_tools(endpoint_of(url, config), token, as_json)
    else:
        from gateway.cli.policy import show_tools_as

        show(show_tools_as(tenant, as_, group, config, url, token), as_json)


def call(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="Name of the tool.")],
    arguments: Annotated[str, typer.Argument(metavar="[ARGUMENTS_JSON]", help="Its arguments, a JSON object.")] = "{}",
    config: Config = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Call a tool and print what it answers."""
    from gateway.cli.tools import call

    call(tool, arguments, endpoint_of(url, config), token, as_json)


def ping(
    tool: Annotated[
        str | None, typer.Option("--tool", help="Tool to call, with no arguments; core_ping where it is listed.")
    ] = None,
    config: Config = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Connect, list and call once in each era of the protocol, as clients do."""
    from gateway.cli.ping import ping

    ping(endpoint_of(url, config), token, tool, as_json)


def endpoint_of(url: str | None, config: Path | None) -> str:
    """The one that was given, else that of the settings."""
    if url is not None:
        return url
    # Only now: whoever gives an address does not wait for settings to be read.
    from gateway.cli.load_settings import endpoint

    return endpoint(config)


def create_key(
    tenant: Annotated[str, typer.Option("--tenant", help="Tenant the key belongs to.")] = "default",
    subject: Annotated[str | None, typer.Option("--subject", help="User the key speaks for.")] = None,
    service: Annotated[str | None, typer.Option("--service", help="Service account the key speaks for.")] = None,
    scope: Annotated[list[str] | None, typer.Option("--scope", help="What it may do; may be repeated.")] = None,
    expires: Annotated[str | None, typer.Option("--expires", help="When it ends, such as 12h or 30d.")] = None,
    label: Annotated[str, typer.Option("--label", help="A note to recognise it by.")] = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it: the only time it is shown."""
    from gateway.cli.key import create

    create(tenant, subject, service, scope, expires, label, config, as_json)


def list_keys(
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the keys, never their secrets."""
    from gateway.cli.key import list_keys

    list_keys(tenant, config, as_json)


def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="KEYID", help="Id of the key, as `key list` shows it.")],
    config: Config = None,
) -> None:
    """Revoke a key: it is refused from now on."""
    from gateway.cli.key import revoke

    revoke(key_id, config)


def upgrade_database(config: Config = None, as_json: AsJson = False) -> None:
    """Bring the tables up to date; a gateway that starts does the same."""
    from gateway.cli.db import upgrade

    upgrade(config, as_json)


Namespace = Annotated[str, typer.Argument(metavar="NAME", help="Its namespace.")]

Replace = Annotated[bool, typer.Option("--replace", help="Write over entries of the same name.")]


def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A client's file, such as .mcp.json.")],
    config: Config = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Copy the servers of Claude Desktop, Claude Code, Cursor or VS Code into the settings."""
    from gateway.cli.import_ import import_file

    import_file(file, config, dry_run=dry_run, replace=replace, as_json=as_json)


def add(
    namespace: Namespace,
    command: Annotated[list[str] | None, typer.Argument(metavar="[-- COMMAND ARGS…]", help="Program to run.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="Address of a remote server.")] = None,
    module: Annotated[str | None, typer.Option("--module", help="Python module in the gateway's process.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", help="NAME=VALUE, sent to it; repeat.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE, its environment; repeat.")] = None,
    allow_private: Annotated[bool, typer.Option("--allow-private", help="It may lie in a private network.")] = False,
    replace: Replace = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Add a backend to the settings."""
    from gateway.cli.backends import add, pairs

    program, *args = command or [""]
    entry = {
        "command": program,
        "url": url,
        "module": module,
        "args": args,
        "env": pairs(env, "--env"),
        "headers": pairs(header, "--header"),
        "allow_private": allow_private,
    }
    add(namespace, entry, config, replace=replace, as_json=as_json)


def remove(namespace: Namespace, config: Config = None) -> None:
    """Take a backend out of the settings."""
    from gateway.cli.backends import remove

    remove(namespace, config)


def pin(
    namespace: Namespace,
    tool: Annotated[str | None, typer.Argument(metavar="[TOOL]", help="Only this one, by the server's name.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Accept the definitions that a remote server's tools have now (`catalogue.pins: deny`)."""
    from gateway.cli.pins import pin

    pin(namespace, tool, config, as_json=as_json)


def list_backends(
    config: Config = None,
    url: Annotated[str | None, typer.Option("--url", envvar="GATEHOUSE_URL", help="A running gateway.")] = None,
    token: Annotated[str | None, typer.Option("--token", envvar="GATEHOUSE_TOKEN", help="With mcp:admin.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the backends: of the settings, or with --url of a running gateway, and how they are."""
    from gateway.cli.backends import list_backends

    list_backends(config, url, token, as_json)


def check_backends(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME…]", help="Only these.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Connect to each backend and say what is wrong."""
    from gateway.cli.backend_check import check_backends

    check_backends(names or (), config, as_json)
