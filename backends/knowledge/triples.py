"""Triples: facts of the form subject, predicate, object. Detects duplicates and contradictions."""

from typing import Final

from sqlalchemy import String, and_, bindparam, or_, select

from backends.knowledge import ledger, provenance
from backends.knowledge.entity_names import equivalent_names
from backends.knowledge.row_mapping import triple_from_row
from backends.knowledge.tables import triples
from backends.knowledge.text_keys import fold
from backends.knowledge.unit_of_work import Change, UnitOfWork
from gateway.contract import Json
from gateway.errors import Fault, Kind

_PARTS: Final = ("subject", "predicate", "object")
_MAX_CONFLICTING: Final = 20


async def new_triple(unit: UnitOfWork, arguments: Json) -> Json:
    """Begin writing and return a new triple without recording it."""
    provenance.check_not_blank({part: arguments[part] for part in _PARTS})
    await unit.begin_writing()
    arguments = await _with_source(unit, arguments)
    triple: Json = {"id": unit.new_id(), **{part: arguments[part] for part in _PARTS}}
    triple |= {"multi": bool(arguments.get("multi")), "entry_id": arguments.get("entry_id")}
    return triple | {"inferred": bool(arguments.get("inferred"))} | provenance.create(unit, arguments)


async def _with_source(unit: UnitOfWork, arguments: Json) -> Json:
    """Take the source of a fact from the entry that states it, unless the call supplies one."""
    if (entry_id := arguments.get("entry_id")) is None:
        return arguments
    entry = await ledger.get(unit, "entry", entry_id)
    return {"source": entry["source"] or f"knowledge://entries/{entry_id}", **arguments}


async def create(
    unit: UnitOfWork, triple: Json, replaced: list[Json] | None = None, *, actor: str | None = None
) -> Json:
    """Record the triple and delete those that it replaces, in one transaction."""
    changes = [Change("triple", triple["id"], None, triple)]
    changes += [Change("triple", old["id"], old, None) for old in replaced or []]
    await ledger.record(unit, "CREATE", changes, actor=actor or triple["actor"])
    return triple


async def upsert(unit: UnitOfWork, arguments: Json) -> tuple[Json, bool]:
    """Set the only value of subject and predicate. Returns the triple and whether it was created."""
    triple = await new_triple(unit, arguments)
    known = await find_duplicate(unit, triple)
    conflicting = [] if known or triple["multi"] else await find_conflicting(unit, triple)
    if len(conflicting) > 1:
        raise Fault(
            Kind.ILLEGAL_STATE,
            f"{len(conflicting)} triples have this subject and predicate; the one to change is ambiguous.",
            details={"ids": [other["id"] for other in conflicting]},
            suggested_fix="Change one of them by its id with update_triple.",
        )
    old = known or (conflicting[0] if conflicting else None)
    if old is None:
        return await create(unit, triple), True
    changes = {name: value for name, value in arguments.items() if name not in ("subject", "predicate")}
    if known is not None and all(known.get(name) == value for name, value in changes.items() if name != "object"):
        return known, False
    return await _apply_update(unit, old, {**changes, "object": triple["object"]}), False


async def update(unit: UnitOfWork, arguments: Json) -> Json:
    provenance.check_not_blank({part: arguments.get(part) for part in _PARTS})
    await unit.begin_writing()
    before = await ledger.get(unit, "triple", arguments["id"], arguments.get("expected_version"))
    return await _apply_update(unit, before, arguments)


async def _apply_update(unit: UnitOfWork, before: Json, arguments: Json) -> Json:
    after = provenance.apply_update(unit, before, arguments, ("predicate", "object"))
    conflicting = (
        [] if after["multi"] else [each for each in await find_conflicting(unit, after) if each["id"] != before["id"]]
    )
    if conflicting:
        raise Fault(
            Kind.ILLEGAL_STATE,
            "Another triple contradicts this change.",
            details={"ids": [other["id"] for other in conflicting]},
            suggested_fix="Delete or correct the other triple first.",
        )
    await ledger.record(unit, "UPDATE", [Change("triple", before["id"], before, after)], actor=arguments.get("actor"))
    return after


# ---- duplicates and contradictions --------------------------------------------------------------------------------


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
_DUPLICATES: Final = _OF_SAME_SUBJECT.where(triples.c.object_key.in_(_objects))
_begins, _ends = bindparam("begins", type_=String), bindparam("ends", type_=String)
# A validity interval includes its start and excludes its end.
OVERLAPS: Final = and_(
    or_(_ends.is_(None), triples.c.valid_from.is_(None), triples.c.valid_from < _ends),
    or_(_begins.is_(None), triples.c.valid_to.is_(None), triples.c.valid_to > _begins),
)
"""Matches triples that are valid at some time between `begins` and `ends`; None is open-ended."""
_CONFLICTING: Final = _OF_SAME_SUBJECT.where(
    triples.c.object_key.not_in(_objects), triples.c.multi == 0, OVERLAPS
).limit(_MAX_CONFLICTING)


async def find_conflicting(unit: UnitOfWork, triple: Json) -> list[Json]:
    """Return active triples with the same subject and predicate, another object, and an overlapping validity."""
    values = {**await _match_values(unit, triple), **validity_values(triple)}
    return [triple_from_row(row) for row in await unit.connection.execute(_CONFLICTING, values)]


async def find_duplicate(unit: UnitOfWork, triple: Json) -> Json | None:
    """Return the active triple with the same subject, predicate, object and validity, or None."""
    for row in await unit.connection.execute(_DUPLICATES, await _match_values(unit, triple)):
        if (row.valid_from, row.valid_to) == (triple["valid_from"], triple["valid_to"]):
            return triple_from_row(row)
    return None


async def _match_values(unit: UnitOfWork, triple: Json) -> Json:
    return {
        "subjects": list(await equivalent_names(unit, triple["subject"])),
        "predicate": fold(triple["predicate"]),
        "objects": list(await equivalent_names(unit, triple["object"])),
    }


def validity_values(triple: Json) -> Json:
    """Return the parameters of `OVERLAPS`."""
    return {"begins": triple["valid_from"], "ends": triple["valid_to"]}
