"""`gatehouse backends pin`: accept changed tool definitions of remote servers in the database."""

import json
from pathlib import Path

from gateway.cli.failure import CommandError
from gateway.cli.identity_db import IdentityDatabase, with_identity_database
from gateway.state.catalogue_rows import CatalogueRows


def pin(namespace: str, tool: str | None, config: Path | None, *, as_json: bool) -> None:
    async def accept(identity: IdentityDatabase) -> list[str]:
        if namespace not in (known := identity.settings.backends):
            raise CommandError(f"unknown backend {namespace} (known: {', '.join(known)})", code=2)
        return await CatalogueRows(identity.database).accept(namespace, tool)

    accepted = with_identity_database(config, accept)
    if as_json:
        print(json.dumps({"namespace": namespace, "accepted": accepted}))
    elif accepted:
        print("\n".join(f"accepted {namespace}.{name}" for name in accepted))
    elif tool is not None:
        raise CommandError(f"{namespace}.{tool} has no changed definition to accept")
    else:
        print(f"no tool of {namespace} has a changed definition to accept")
