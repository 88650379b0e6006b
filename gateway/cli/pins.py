"""`gatehouse backends pin`: accept what remote servers changed. A running gateway knows within a second."""

import json
from pathlib import Path

from gateway.cli.books import Books, with_books
from gateway.cli.failure import Failure
from gateway.state.catalogue import CatalogueRows


def pin(namespace: str, tool: str | None, config: Path | None, *, as_json: bool) -> None:
    async def accept(books: Books) -> list[str]:
        if namespace not in (known := books.settings.backends):
            raise Failure(f"no backend is named {namespace} (known: {', '.join(known)})", code=2)
        return await CatalogueRows(books.database).accept(namespace, tool)

    accepted = with_books(config, accept)
    if as_json:
        print(json.dumps({"namespace": namespace, "accepted": accepted}))
    elif accepted:
        print("\n".join(f"{namespace}.{name} is accepted as it is now" for name in accepted))
    elif tool is not None:
        raise Failure(f"{namespace}.{tool} does not wait to be accepted")
    else:
        print(f"no tool of {namespace} waits to be accepted")
