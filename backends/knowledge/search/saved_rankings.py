"""Saved rankings: the order of a search is stored for 15 minutes, so that pages neither repeat nor skip entries."""

import json
import re
import secrets
from typing import Final

from sqlalchemy import delete, insert, select

from backends.knowledge import timestamps
from backends.knowledge.paging import decode_cursor, encode_cursor, invalid_cursor
from backends.knowledge.search.ranking import Ranked
from backends.knowledge.tables import rankings
from backends.knowledge.text_keys import digest
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract import Json
from gateway.errors import Fault, Kind

_TTL_SECONDS: Final = 900
_CURSOR: Final = re.compile(r"([0-9a-f]{16})\.([0-9]{1,6})")
_QUERY_FIELDS: Final = ("topic", "content", "tags", "as_of")


async def save(unit: UnitOfWork, arguments: Json, ranked: list[Ranked]) -> str:
    """Save a ranking and return its id for `load`."""
    name = secrets.token_hex(8)
    if name.startswith("0"):
        # One save in sixteen deletes the expired rankings.
        await unit.connection.execute(delete(rankings).where(rankings.c.expires_at < unit.now))
    row = {
        "id": name,
        "digest": _digest(arguments),
        "ranked": json.dumps(ranked),
        "expires_at": timestamps.from_now(_TTL_SECONDS),
    }
    await unit.connection.execute(insert(rankings), row)
    return name


def cursor_at(name: str, offset: int) -> str:
    return encode_cursor(f"{name}.{offset}")


async def load(unit: UnitOfWork, arguments: Json, cursor: str) -> tuple[str, list[Ranked], int]:
    """Return the ranking's id, its entries, and the offset of the next page."""
    match = _CURSOR.fullmatch(decode_cursor(cursor))
    if match is None:
        raise invalid_cursor()
    row = (await unit.connection.execute(select(rankings).where(rankings.c.id == match[1]))).first()
    if row is None or row.expires_at < unit.now:
        raise Fault(
            Kind.INVALID_INPUT,
            "The cursor has expired.",
            details={"validation_path": "input.cursor", "validation_rule": "cursor"},
            suggested_fix="Search again without a cursor.",
        )
    if row.digest != _digest(arguments):
        raise invalid_cursor()
    return row.id, [Ranked(*each) for each in json.loads(row.ranked)], int(match[2])


def _digest(arguments: Json) -> str:
    return digest(json.dumps([arguments.get(name) for name in _QUERY_FIELDS]))
