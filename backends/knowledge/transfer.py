"""Export and import of a memory as JSON Lines: its whole history, or its current items.

With history, each line is one transaction with its snapshots, oldest first. An import replays them: ids, versions,
authors, times and undone changes stay as they were, and what is already there is skipped. Without history, each line is
one current item, and an import records all of them as one new transaction.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, cast

import jsonschema_rs
from sqlalchemy import Integer, bindparam, select

from backends.knowledge import ledger
from backends.knowledge import schemas as s
from backends.knowledge.ids import ULID
from backends.knowledge.paging import decode_cursor, encode_cursor, invalid_cursor
from backends.knowledge.row_mapping import MAPPERS
from backends.knowledge.tables import transactions
from backends.knowledge.unit_of_work import MAX_PAGE_BYTES, Change, UnitOfWork
from backends.knowledge.uris import EntityType
from gateway.contract import Json
from gateway.errors import Fault, Kind

FORMAT: Final = "gatehouse-knowledge"
VERSION: Final = 1
MAX_IMPORT_BYTES: Final = 900_000
_KINDS: Final[tuple[EntityType, ...]] = ("entity", "entry", "triple")
_READ_ROWS: Final = 500
_HISTORY: Final = (
    select(transactions)
    .where(transactions.c.id > bindparam("after"))
    .order_by(transactions.c.id)
    .limit(bindparam("most", type_=Integer))
)
_ITEMS: Final = {
    kind: select(MAPPERS[kind].table)
    .where(MAPPERS[kind].table.c.id > bindparam("after"), MAPPERS[kind].table.c.deleted_at.is_(None))
    .order_by(MAPPERS[kind].table.c.id)
    .limit(bindparam("most", type_=Integer))
    for kind in _KINDS
}
_KNOWN: Final = select(transactions.c.id).where(transactions.c.id.in_(bindparam("ids", expanding=True)))


# ---- export -------------------------------------------------------------------------------------------------------


async def export(unit: UnitOfWork, arguments: Json) -> Json:
    """Return the next page of lines, at most about 512 kB, and the cursor of the following page."""
    lists: tuple[str, ...] = ("history",) if arguments.get("history", True) else _KINDS
    place, after = _parse_cursor(arguments.get("cursor"), lists)
    lines = [_dump(await _header(unit, lists))] if arguments.get("cursor") is None else []
    size = 0
    for name in lists[lists.index(place) :]:
        while rows := await _rows(unit, name, after):
            for row in rows:
                line = _dump(_line(name, row))
                size += len(line.encode())
                if size > MAX_PAGE_BYTES and len(lines) > 1:
                    return _page(lines, encode_cursor(f"export.{name}:{after}"))
                lines.append(line)
                after = row.id
        after = ""
    return _page(lines, None)


def _parse_cursor(cursor: str | None, lists: tuple[str, ...]) -> tuple[str, str]:
    if cursor is None:
        return lists[0], ""
    name, _, after = decode_cursor(cursor).removeprefix("export.").partition(":")
    if name not in lists or not ULID.fullmatch(after):
        raise invalid_cursor("The cursor does not belong to this export.")
    return name, after


async def _header(unit: UnitOfWork, lists: tuple[str, ...]) -> Json:
    header: Json = {"type": "header", "format": FORMAT, "version": VERSION, "history": lists == ("history",)}
    return {**header, "exported_at": unit.now, "as_of_tx_id": await unit.last_transaction()}


async def _rows(unit: UnitOfWork, name: str, after: str) -> list[Any]:
    query = _HISTORY if name == "history" else _ITEMS[cast("EntityType", name)]
    return list(await unit.connection.execute(query, {"after": after, "most": _READ_ROWS}))


def _line(name: str, row: Any) -> Json:
    if name != "history":
        return {"type": name, "item": MAPPERS[cast("EntityType", name)].from_row(row)}
    fields = ("id", "op", "entity_type", "entity_id", "actor", "reverts", "reverted_by", "recorded_at")
    return {"type": "transaction", **{each: getattr(row, each) for each in fields}, "changes": json.loads(row.changes)}


def _page(lines: list[str], cursor: str | None) -> Json:
    return {"jsonl": "\n".join(lines) + "\n", "lines": len(lines), "next_cursor": cursor}


def _dump(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# ---- import -------------------------------------------------------------------------------------------------------


async def import_lines(unit: UnitOfWork, arguments: Json) -> Json:
    """Import lines of an export. Raises `Fault(INVALID_INPUT)` with the number of the first line that does not fit."""
    text = arguments["jsonl"]
    if (size := len(text.encode())) > MAX_IMPORT_BYTES:
        details = {"payload_bytes": size, "max_bytes": MAX_IMPORT_BYTES}
        raise Fault(
            Kind.TOO_LARGE, "The lines exceed the size limit of one import. Import page by page.", details=details
        )
    parsed = list(_parse(text))
    await unit.begin_writing()
    history = [line for line in parsed if line["type"] == "transaction"]
    items = [line for line in parsed if line["type"] in _KINDS]
    replayed = await _replay(unit, history)
    created, changes = await _new_items(unit, items)
    if changes:
        await ledger.record(unit, "CREATE", changes, actor=arguments.get("actor"))
    skipped = len(history) - replayed + len(items) - created
    return {"transactions": replayed, "items": created, "skipped": skipped}


def _parse(text: str) -> Iterator[Json]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            value: Json = json.loads(line)
            _LINES.validate(value)
        except (ValueError, jsonschema_rs.ValidationError) as exc:
            raise Fault(
                Kind.INVALID_INPUT,
                f"Line {number} is not a line of an export.",
                details={"line": number, "validation_path": "input.jsonl", "validation_rule": "jsonl"},
                suggested_fix="Supply lines of `export` unchanged. Nothing was imported.",
            ) from exc
        if value["type"] == "header" and (value["format"], value["version"]) != (FORMAT, VERSION):
            raise Fault(Kind.UNSUPPORTED, f"This is version {value['version']!r} of {value['format']!r}.")
        yield value


async def _replay(unit: UnitOfWork, history: list[Json]) -> int:
    known = set[str]()
    if history:
        known |= set((await unit.connection.execute(_KNOWN, {"ids": [each["id"] for each in history]})).scalars())
    fresh = sorted((each for each in history if each["id"] not in known), key=lambda each: each["id"])
    for transaction in fresh:
        changes = [Change(each["kind"], each["id"], each["before"], each["after"]) for each in transaction["changes"]]
        await ledger.replay(unit, transaction, changes)
    return len(fresh)


async def _new_items(unit: UnitOfWork, items: list[Json]) -> tuple[int, list[Change]]:
    changes: list[Change] = []
    for line in items:
        kind, item = line["type"], line["item"]
        if not await ledger.exists(unit, kind, item["id"]):
            unit.observe_id(item["id"])
            changes.append(Change(kind, item["id"], None, {**item, "version": 1}))
    return len(changes), changes


def _snapshot(fields: Json, required: tuple[str, ...]) -> Json:
    common = {
        **{name: {"type": ["string", "null"], "maxLength": 2_000} for name in ("source", "actor")},
        "confidence": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
        **{name: {"type": ["string", "null"], "maxLength": 64} for name in ("valid_from", "valid_to")},
        "version": {"type": "integer", "minimum": 1},
        **{name: {"type": "string", "maxLength": 64} for name in ("recorded_at", "updated_at")},
        "id": _ID,
    }
    always = ("id", "version", "recorded_at", "updated_at", *required)
    schema: Json = {"type": "object", "properties": {**common, **fields}, "required": list(always)}
    return {**schema, "additionalProperties": False}


_ID: Final[Json] = {"type": "string", "pattern": f"^{ULID.pattern}$"}
_NULLABLE_ID: Final[Json] = {"anyOf": [_ID, {"type": "null"}]}
_PART: Final[Json] = {"type": "string", "minLength": 1, "maxLength": s.MAX_PART}
_OFFSET: Final[Json] = {"type": ["integer", "null"], "minimum": 0}
_STRINGS: Final[Json] = {"type": "array", "items": {"type": "string", "maxLength": s.MAX_PART}}
_SNAPSHOTS: Final[dict[str, Json]] = {
    "entry": _snapshot(
        {
            "topic": {"type": "string", "minLength": 1, "maxLength": s.MAX_TOPIC},
            "content": {"type": "string", "minLength": 1, "maxLength": s.MAX_CONTENT},
            "tags": _STRINGS,
            "source_start": _OFFSET,
            "source_end": _OFFSET,
        },
        ("topic", "content", "tags", "source", "actor", "confidence", "valid_from", "valid_to"),
    ),
    "triple": _snapshot(
        {
            **dict.fromkeys(("subject", "predicate", "object"), _PART),
            "multi": {"type": "boolean"},
            "inferred": {"type": "boolean"},
            "entry_id": _NULLABLE_ID,
        },
        ("subject", "predicate", "object", "multi", "source", "actor", "confidence", "valid_from", "valid_to"),
    ),
    "entity": _snapshot({"name": _PART, "aliases": _STRINGS}, ("name", "aliases")),
}


def _change(kind: str) -> Json:
    snapshot: Json = {"anyOf": [_SNAPSHOTS[kind], {"type": "null"}]}
    properties: Json = {"kind": {"const": kind}, "id": _ID, "before": snapshot, "after": snapshot}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _line_schema(type_: str, **properties: Json) -> Json:
    return {
        "type": "object",
        "properties": {"type": {"const": type_}, **properties},
        "required": ["type", *properties],
    }


_LINES: Final = jsonschema_rs.validator_for(
    {
        "anyOf": [
            _line_schema("header", format={"type": "string"}, version={"type": "integer"}),
            *(_line_schema(kind, item=snapshot) for kind, snapshot in _SNAPSHOTS.items()),
            _line_schema(
                "transaction",
                id=_ID,
                op={"enum": ["CREATE", "UPDATE", "DELETE", "MERGE", "REVERT"]},
                entity_type={"enum": list(_KINDS)},
                entity_id=_ID,
                actor={"type": ["string", "null"], "maxLength": 200},
                recorded_at={"type": "string", "maxLength": 64},
                reverts=_NULLABLE_ID,
                reverted_by=_NULLABLE_ID,
                changes={"type": "array", "minItems": 1, "items": {"anyOf": [_change(kind) for kind in _KINDS]}},
            ),
        ]
    }
)
