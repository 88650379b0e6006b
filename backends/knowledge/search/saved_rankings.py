"""The order of a search, kept while somebody may turn its pages: no entry is shown twice or lost between two."""

import json
import re
import secrets
from typing import Final

from sqlalchemy import delete, insert, select

from backends.knowledge import timestamps
from backends.knowledge.paging import bad_cursor, cursor_of, read_cursor
from backends.knowledge.search.ranking import Ranked
from backends.knowledge.tables import rankings
from backends.knowledge.text_keys import digest
from backends.knowledge.unit_of_work import Book
from gateway.contract import Json
from gateway.errors import Fault, Kind

_KEPT_SECONDS: Final = 900
_WORD: Final = re.compile(r"([0-9a-f]{16})\.([0-9]{1,6})")
_ASKED: Final = ("topic", "content", "tags", "as_of")


async def keep(book: Book, arguments: Json, ranked: list[Ranked]) -> str:
    """The name that `open_at` knows it by."""
    name = secrets.token_hex(8)
    if name.startswith("0"):
        # One search in sixteen clears away what nobody can ask for any more.
        await book.connection.execute(delete(rankings).where(rankings.c.expires_at < book.now))
    row = {
        "id": name,
        "digest": _digest(arguments),
        "ranked": json.dumps(ranked),
        "expires_at": timestamps.later(_KEPT_SECONDS),
    }
    await book.connection.execute(insert(rankings), row)
    return name


def cursor_at(name: str, offset: int) -> str:
    return cursor_of(f"{name}.{offset}")


async def open_at(book: Book, arguments: Json, cursor: str) -> tuple[str, list[Ranked], int]:
    """The kept order, and where in it the next page begins."""
    match = _WORD.fullmatch(read_cursor(cursor))
    if match is None:
        raise bad_cursor()
    row = (await book.connection.execute(select(rankings).where(rankings.c.id == match[1]))).first()
    if row is None or row.expires_at < book.now:
        raise Fault(
            Kind.INVALID_INPUT,
            "That cursor has expired.",
            details={"validation_path": "input.cursor", "validation_rule": "cursor"},
            suggested_fix="Search again without a cursor.",
        )
    if row.digest != _digest(arguments):
        raise bad_cursor()
    return row.id, [Ranked(*each) for each in json.loads(row.ranked)], int(match[2])


def _digest(arguments: Json) -> str:
    return digest(json.dumps([arguments.get(name) for name in _ASKED]))
