"""`gatehouse backends pin`: accept changed tool definitions of remote servers in the database."""

import json
from pathlib import Path

from gateway.cli.failure import CommandError
from gateway.cli.identity_db import IdentityDatabase, with_books
from gateway.state.catalogue_rows import CatalogueRows


def pin(namespace: str, tool: str | None, config: Path | None, *, as_json: bool) -> None:
    async def accept(books: IdentityDatabase) -> list[str]:
        if namespace not in (known := books.settings.backends):
            raise CommandError(f"no backend is named {namespace} (known: {', '.join(known)})", code=2)
        return await CatalogueRows(books.database).accept(namespace, tool)

    accepted = with_books(config, accept)
    if as_json:
        print(json.dumps({"namespace": namespace, "accepted": accepted}))
    elif accepted:
        print("\n".join(f"{namespace}.{name} is accepted as it is now" for name in accepted))
    elif tool is not None:
        raise CommandError(f"{namespace}.{tool} does not wait to be accepted")
    else:
        print(f"no tool of {namespace} waits to be accepted")
