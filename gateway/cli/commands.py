"""Declarations of the main commands with their options and help texts; `main.py` registers them.

Each command imports its implementation when it runs, so that `gatehouse version` does not load the whole gateway.
"""

import gc
import json
import platform
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.model_builds import defer_model_builds
from gateway.cli.options import AsJson, Config
from gateway.contract import MODERN
from gateway.contract.distribution import installed_version

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="GATEHOUSE_URL", help="URL of the MCP endpoint; default: from the settings."),
]

Token = Annotated[str | None, typer.Option("--token", envvar="GATEHOUSE_TOKEN", help="API key or access token.")]
Host = Annotated[str | None, typer.Option("--host", help="Address to listen on; overrides server.host.")]
Port = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, help="Port to listen on; overrides server.port. 0: any free port."),
]


def version(as_json: AsJson = False) -> None:
    """Print the version."""
    gatehouse, python = installed_version(), platform.python_version()
    if as_json:
        print(json.dumps({"gatehouse": gatehouse, "python": python, "protocol": MODERN}))
    else:
        print(f"gatehouse {gatehouse} (MCP {MODERN}, Python {python})")


def serve(
    config: Config = None,
    host: Host = None,
    port: Port = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Number of worker processes; overrides server.workers.")
    ] = None,
    inherit: Annotated[str | None, typer.Option("--inherit", hidden=True)] = None,
) -> None:
    """Start the gateway and serve until stopped."""
    # Collections during the start cost a fifth of it and find next to nothing; the runner enables them again.
    gc.disable()
    with defer_model_builds():
        from gateway.cli.serve import serve

    serve(config, host, port, workers, inherit)


def welcome(config: Config = None, as_json: AsJson = False) -> None:
    """Print the addresses of the gateway again, with a new sign-in code for the console."""
    from gateway.cli.welcome import welcome

    welcome(config, as_json)


def check(config: Config = None, as_json: AsJson = False) -> None:
    """Check the settings and show what they serve."""
    from gateway.cli.check import check

    check(config, as_json)


def tools(
    as_: Annotated[
        str | None, typer.Option("--as", metavar="SUBJECT", help="List the tools that this user may call.")
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="With --as: tenant of the user.")] = "default",
    group: Annotated[
        list[str] | None, typer.Option("--group", help="With --as: group of the user; may be repeated.")
    ] = None,
    config: Config = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List the tools you may call; with --as, the tools another user may call, according to the settings or --url."""
    from gateway.cli.tools import list_tools, show

    if as_ is None:
        list_tools(resolve_endpoint(url, config), token, as_json)
    else:
        from gateway.cli.policy import show_tools_as

        show(show_tools_as(tenant, as_, group, config, url, token), as_json)


def call(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="Name of the tool.")],
    arguments: Annotated[str, typer.Argument(metavar="[ARGUMENTS_JSON]", help="Arguments as a JSON object.")] = "{}",
    approve: Annotated[
        bool, typer.Option("--approve", help="Approve the call yourself, where a policy lets the caller approve.")
    ] = False,
    config: Config = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Call a tool and print its result."""
    from gateway.cli.tools import call

    call(tool, arguments, resolve_endpoint(url, config), token, as_json, approve=approve)


def ping(
    tool: Annotated[
        str | None, typer.Option("--tool", help="Tool to call without arguments; default: core_ping if listed.")
    ] = None,
    config: Config = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Connect, list the tools and call one, once in each protocol era."""
    from gateway.cli.ping import ping

    ping(resolve_endpoint(url, config), token, tool, as_json)


def resolve_endpoint(url: str | None, config: Path | None) -> str:
    """The supplied URL, else the endpoint of the settings."""
    if url is not None:
        return url
    # Imported late: with --url the settings are not needed.
    from gateway.cli.load_settings import endpoint_url

    return endpoint_url(config)


def create_key(
    tenant: Annotated[str, typer.Option("--tenant", help="Tenant the key belongs to.")] = "default",
    subject: Annotated[str | None, typer.Option("--subject", help="User that the key authenticates.")] = None,
    service: Annotated[
        str | None, typer.Option("--service", help="Service account that the key authenticates.")
    ] = None,
    scope: Annotated[list[str] | None, typer.Option("--scope", help="Scope to grant; may be repeated.")] = None,
    group: Annotated[list[str] | None, typer.Option("--group", help="Group of the key; may be repeated.")] = None,
    expires: Annotated[str | None, typer.Option("--expires", help="Lifetime, such as 12h or 30d.")] = None,
    label: Annotated[str, typer.Option("--label", help="Note to recognise the key by.")] = "",
    endpoint: Annotated[
        str, typer.Option("--endpoint", help="The only MCP endpoint the key is valid for, such as /mcp/support.")
    ] = "/mcp",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Create an API key and print it. It is shown only once."""
    from gateway.cli.key import create

    create(tenant, subject, service, scope, expires, label, endpoint, config, as_json, group)


def list_keys(
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only keys of this tenant.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the API keys, without their secrets."""
    from gateway.cli.key import list_keys

    list_keys(tenant, config, as_json)


def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="KEYID", help="ID of the key, as shown by `key list`.")],
    config: Config = None,
) -> None:
    """Revoke an API key, effective immediately."""
    from gateway.cli.key import revoke

    revoke(key_id, config)


def upgrade_database(config: Config = None, as_json: AsJson = False) -> None:
    """Apply pending database migrations. The gateway also does this when it starts."""
    from gateway.cli.db import upgrade

    upgrade(config, as_json)


Namespace = Annotated[str, typer.Argument(metavar="NAME", help="Namespace of the backend.")]
Replace = Annotated[bool, typer.Option("--replace", help="Overwrite entries of the same name.")]


def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Configuration file of a client, such as .mcp.json.")],
    config: Config = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be imported; write nothing.")] = False,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Import the servers of Claude Desktop, Claude Code, Cursor or VS Code into the settings."""
    from gateway.cli.import_ import import_file

    import_file(file, config, dry_run=dry_run, replace=replace, as_json=as_json)


def add(
    namespace: Namespace,
    command: Annotated[list[str] | None, typer.Argument(metavar="[-- COMMAND ARGS…]", help="Command to run.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="URL of a remote server.")] = None,
    module: Annotated[str | None, typer.Option("--module", help="Python module to load into the gateway.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", help="NAME=VALUE of a request header; may be repeated.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", help="NAME=VALUE of an environment variable; may be repeated.")
    ] = None,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="Allow a private address, plain HTTP and any port.")
    ] = False,
    replace: Replace = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Add a backend to the settings."""
    from gateway.cli.backends import add, parse_pairs

    program, *args = command or [""]
    entry = {
        "command": program,
        "url": url,
        "module": module,
        "args": args,
        "env": parse_pairs(env, "--env"),
        "headers": parse_pairs(header, "--header"),
        "allow_private": allow_private,
    }
    add(namespace, entry, config, replace=replace, as_json=as_json)


def remove(namespace: Namespace, config: Config = None) -> None:
    """Remove a backend from the settings."""
    from gateway.cli.backends import remove

    remove(namespace, config)


def pin(
    namespace: Namespace,
    tool: Annotated[str | None, typer.Argument(metavar="[TOOL]", help="Only this tool, by its upstream name.")] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show what changed; accept nothing.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Accept the current tool definitions of a remote server (`catalogue.pins: deny`)."""
    from gateway.cli.pins import pin, show_differences

    (show_differences if diff else pin)(namespace, tool, config, as_json=as_json)


def list_backends(
    config: Config = None,
    url: Annotated[str | None, typer.Option("--url", envvar="GATEHOUSE_URL", help="URL of a running gateway.")] = None,
    token: Annotated[
        str | None, typer.Option("--token", envvar="GATEHOUSE_TOKEN", help="API key or token with mcp:admin.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the backends of the settings; with --url, those of a running gateway and their state."""
    from gateway.cli.backends import list_backends

    list_backends(config, url, token, as_json)


def check_backends(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME…]", help="Only these backends.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Connect to each backend and report problems with a suggested fix."""
    from gateway.cli.backend_check import check_backends

    check_backends(names or (), config, as_json)
