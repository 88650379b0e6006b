"""The resources and resource templates of the backend; `resources.py` reads them."""

from typing import Final

from backends.knowledge import uris
from backends.knowledge.tool_results import JSON_TYPE
from gateway.contract import Json

VERSION: Final = 1
"""Version of the resource body format."""


def _resource(uri: str, name: str, title: str, description: str) -> Json:
    # SDK clients drop the unknown field `version`, so it is repeated in `_meta`.
    shown = {"uri": uri, "name": name, "title": title, "description": description, "mimeType": JSON_TYPE}
    return {**shown, "version": VERSION, "_meta": {"version": VERSION}}


RESOURCES: Final = (
    _resource(uris.ENTRIES, "entries", "Entries", "All entries of the memory, newest first."),
    _resource(uris.TRIPLES, "triples", "Triples", "All facts of the graph, newest first."),
    _resource(uris.ENTITIES, "entities", "Entities", "All entities with their aliases, newest first."),
    _resource(uris.TRANSACTIONS, "transactions", "Transactions", "All changes of the memory, newest first."),
    _resource(uris.STATS, "stats", "Statistics", "Numbers of entries, triples, entities and changes, and sizes."),
)


def _template(uri: str, name: str, description: str) -> Json:
    return {"uriTemplate": uri, "name": name, "description": description, "mimeType": JSON_TYPE}


TEMPLATES: Final = (
    _template(
        f"{uris.ENTRIES}{{?topic,content,tags*,as_of,limit,cursor}}", "entries-page", "Entries, searched, by page."
    ),
    _template(
        f"{uris.TRIPLES}{{?subject,predicate,object,as_of,limit,cursor}}",
        "triples-page",
        "Triples, searched, by page.",
    ),
    _template(f"{uris.ENTITIES}{{?limit,cursor}}", "entities-page", "Entities, by page."),
    _template(f"{uris.TRANSACTIONS}{{?limit,cursor}}", "transactions-page", "Transactions, by page."),
    _template(f"{uris.ENTRIES}/{{id}}", "entry", "One entry."),
    _template(f"{uris.TRIPLES}/{{id}}", "triple", "One triple."),
    _template(f"{uris.ENTITIES}/{{id}}", "entity", "One entity."),
    _template(f"{uris.TRANSACTIONS}/{{id}}", "transaction", "One transaction with its snapshots."),
    _template(f"{uris.CONFLICTS}/{{id}}", "conflict", "One conflict between contradicting triples."),
    _template(f"{uris.INGESTIONS}/{{id}}", "ingestion", "Status of one ingestion."),
)
