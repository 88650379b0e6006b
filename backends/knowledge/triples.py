"""Triples: one fact each, as subject, predicate and object."""

from typing import Final

from sqlalchemy import String, and_, bindparam, or_, select

from backends.knowledge import ledger, provenance
from backends.knowledge.entity_names import same
from backends.knowledge.row_mapping import triple_from
from backends.knowledge.tables import triples
from backends.knowledge.text_keys import fold
from backends.knowledge.unit_of_work import Book, Change
from gateway.contract import Json
from gateway.errors import Fault, Kind

_PARTS: Final = ("subject", "predicate", "object")
_MAX_RIVALS: Final = 20


async def prepare(book: Book, arguments: Json) -> Json:
    """A triple that could be recorded. Begins writing."""
    provenance.check_filled({part: arguments[part] for part in _PARTS})
    await book.begin_writing()
    triple: Json = {"id": book.new_id(), **{part: arguments[part] for part in _PARTS}}
    return triple | {"multi": bool(arguments.get("multi"))} | provenance.of(book, arguments)


async def create(book: Book, triple: Json, replaced: list[Json] | None = None, *, actor: str | None = None) -> Json:
    """Record it, in place of those that it replaces."""
    changes = [Change("triple", triple["id"], None, triple)]
    changes += [Change("triple", old["id"], old, None) for old in replaced or []]
    await ledger.record(book, "CREATE", changes, actor=actor or triple["actor"])
    return triple


async def upsert(book: Book, arguments: Json) -> tuple[Json, bool]:
    """The one value of subject and predicate from now on, and whether there was none before."""
    triple = await prepare(book, arguments)
    known = await twin_of(book, triple)
    rivals = [] if known or triple["multi"] else await rivals_of(book, triple)
    if len(rivals) > 1:
        raise Fault(
            Kind.ILLEGAL_STATE,
            f"{len(rivals)} triples have this subject and predicate: which one is meant?",
            details={"ids": [rival["id"] for rival in rivals]},
            suggested_fix="Change the right one with update_triple, by its id.",
        )
    old = known or (rivals[0] if rivals else None)
    if old is None:
        return await create(book, triple), True
    given = {name: value for name, value in arguments.items() if name not in ("subject", "predicate")}
    if known is not None and all(known.get(name) == value for name, value in given.items() if name != "object"):
        return known, False
    return await _change(book, old, {**given, "object": triple["object"]}), False


async def update(book: Book, arguments: Json) -> Json:
    provenance.check_filled({part: arguments.get(part) for part in _PARTS})
    await book.begin_writing()
    before = await ledger.get(book, "triple", arguments["id"], arguments.get("expected_version"))
    return await _change(book, before, arguments)


async def _change(book: Book, before: Json, arguments: Json) -> Json:
    after = provenance.updated(book, before, arguments, ("predicate", "object"))
    rivals = [] if after["multi"] else [each for each in await rivals_of(book, after) if each["id"] != before["id"]]
    if rivals:
        raise Fault(
            Kind.ILLEGAL_STATE,
            "Another triple already says otherwise.",
            details={"ids": [rival["id"] for rival in rivals]},
            suggested_fix="Delete or correct the other triple first.",
        )
    await ledger.record(book, "UPDATE", [Change("triple", before["id"], before, after)], actor=arguments.get("actor"))
    return after


# ---- what says the same, and what says otherwise ------------------------------------------------------------------


_OF_SAME_SUBJECT: Final = (
    select(triples)
    .where(
        triples.c.subject_key.in_(bindparam("subjects", expanding=True)),
        triples.c.predicate_key == bindparam("predicate"),
        triples.c.deleted_at.is_(None),
    )
    .order_by(triples.c.number)
)
_objects = bindparam("objects", type_=String, expanding=True)
_TWINS: Final = _OF_SAME_SUBJECT.where(triples.c.object_key.in_(_objects))
_begins, _ends = bindparam("begins", type_=String), bindparam("ends", type_=String)
# Validity includes its beginning and not its end.
OVERLAPS: Final = and_(
    or_(_ends.is_(None), triples.c.valid_from.is_(None), triples.c.valid_from < _ends),
    or_(_begins.is_(None), triples.c.valid_to.is_(None), triples.c.valid_to > _begins),
)
"""Triples that hold at some time between `begins` and `ends`; None is open."""
_RIVALS: Final = _OF_SAME_SUBJECT.where(triples.c.object_key.not_in(_objects), triples.c.multi == 0, OVERLAPS).limit(
    _MAX_RIVALS
)


async def rivals_of(book: Book, triple: Json) -> list[Json]:
    """Living triples that give the subject's predicate another value at a time when this one holds."""
    asked = {**await _asked(book, triple), **validity(triple)}
    return [triple_from(row) for row in await book.connection.execute(_RIVALS, asked)]


async def twin_of(book: Book, triple: Json) -> Json | None:
    """The living triple that already says this, for the same time."""
    for row in await book.connection.execute(_TWINS, await _asked(book, triple)):
        if (row.valid_from, row.valid_to) == (triple["valid_from"], triple["valid_to"]):
            return triple_from(row)
    return None


async def _asked(book: Book, triple: Json) -> Json:
    return {
        "subjects": list(await same(book, triple["subject"])),
        "predicate": fold(triple["predicate"]),
        "objects": list(await same(book, triple["object"])),
    }


def validity(triple: Json) -> Json:
    """The values of `OVERLAPS`."""
    return {"begins": triple["valid_from"], "ends": triple["valid_to"]}
