"""What can be typed to get servers in and out: `gatehouse import` and `gatehouse backends`."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import AsJson, Config

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
    from gateway.cli.importing import import_file

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


def check(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME…]", help="Only these.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Connect to each backend and say what is wrong."""
    from gateway.cli.probe import check_backends

    check_backends(names or (), config, as_json)
