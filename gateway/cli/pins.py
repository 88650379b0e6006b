"""`gatehouse backends pin`: show and accept changed tool definitions of remote servers."""

import getpass
import json
from difflib import unified_diff
from pathlib import Path

from gateway.cli.failure import CommandError
from gateway.cli.identity_db import IdentityDatabase, with_identity_database
from gateway.state.catalogue_rows import CatalogueRows, PinDifference


def pin(namespace: str, tool: str | None, config: Path | None, *, as_json: bool) -> None:
    async def accept(identity: IdentityDatabase) -> list[str]:
        _check_backend(identity, namespace)
        return await CatalogueRows(identity.database).accept(namespace, tool, by=f"command:{_user()}")

    accepted = with_identity_database(config, accept)
    if as_json:
        print(json.dumps({"namespace": namespace, "accepted": accepted}))
    elif accepted:
        print("\n".join(f"accepted {namespace}.{name}" for name in accepted))
    elif tool is not None:
        raise CommandError(f"{namespace}.{tool} has no changed definition to accept")
    else:
        print(f"no tool of {namespace} has a changed definition to accept")


def show_differences(namespace: str, tool: str | None, config: Path | None, *, as_json: bool) -> None:
    """Print what changed in each tool since its definition was accepted, without accepting it."""

    async def read(identity: IdentityDatabase) -> list[PinDifference]:
        _check_backend(identity, namespace)
        return await CatalogueRows(identity.database).list_differences(namespace)

    found = [each for each in with_identity_database(config, read) if tool in (None, each.tool)]
    if as_json:
        print(json.dumps([each._asdict() for each in found], indent=2))
        return
    for each in found:
        before, after = each.accepted or "(accepted by an earlier version, which kept no text)", each.current
        names = f"{namespace}.{each.tool} (accepted)", f"{namespace}.{each.tool} ({each.isolation_key})"
        print("\n".join(unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="")))
    if not found:
        print(f"no tool of {namespace} has a changed definition to accept")


def _check_backend(identity: IdentityDatabase, namespace: str) -> None:
    if namespace not in (known := identity.settings.backends):
        raise CommandError(f"unknown backend {namespace} (known: {', '.join(known)})", code=2)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for its user
        return "unknown"
