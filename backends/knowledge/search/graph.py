"""One hop through the graph: entries about what a triple connects with what was found."""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import select

from backends.knowledge.book import Book
from backends.knowledge.names import spread
from backends.knowledge.search.filters import of_entries, valid
from backends.knowledge.search.index import Hit
from backends.knowledge.tables import entries, triples
from gateway.contract import Json

_SEEDS: Final = 10
_TRIPLES: Final = 100
_NEIGHBOURS: Final = 50


async def neighbours(book: Book, hits: Iterable[Hit], arguments: Json) -> set[int]:
    """Numbers of entries whose topic is the other end of a triple that touches the topic of one of the best hits."""
    topics = list(dict.fromkeys(hit.topic_key for hit in hits))[:_SEEDS]
    if not topics:
        return set()
    ends = await _other_ends(book, await spread(book, topics), arguments)
    if not ends:
        return set()
    known = await spread(book, ends)
    statement = select(entries.c.number).where(entries.c.topic_key.in_(known), of_entries(book, arguments))
    newest = statement.order_by(entries.c.number.desc()).limit(_NEIGHBOURS)
    return set((await book.connection.execute(newest)).scalars())


async def _other_ends(book: Book, keys: set[str], arguments: Json) -> set[str]:
    alive = [triples.c.deleted_at.is_(None), *valid(book, triples, arguments)]
    ends: set[str] = set()
    for here, there in (("subject_key", "object_key"), ("object_key", "subject_key")):
        statement = select(triples.c[there]).where(triples.c[here].in_(keys), *alive).limit(_TRIPLES)
        ends.update((await book.connection.execute(statement)).scalars())
    return ends
