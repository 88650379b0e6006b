"""A memory as simple as can be, and a driver that does the same to it and to the real one."""

import copy
import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

Op = tuple[Any, ...]
NAMES = st.sampled_from("abcd")
PICK = st.integers(0, 30)
OPS: st.SearchStrategy[Op] = st.one_of(
    st.tuples(st.just("store"), st.lists(st.sampled_from("xyz"), unique=True, max_size=2)),
    st.tuples(st.just("update"), PICK, st.integers(0, 9)),
    st.tuples(st.just("delete"), PICK),
    st.tuples(st.just("relate"), NAMES, st.sampled_from("pq"), NAMES),
    st.tuples(st.just("forget"), PICK),
    st.tuples(st.just("name"), NAMES, NAMES),
    st.tuples(st.just("merge"), PICK, PICK),
    st.tuples(st.just("undo"), st.integers(1, 3)),
    st.tuples(st.just("undo"), st.just(1)),
)


def random_op(chance: random.Random) -> Op:
    """One op as `OPS` has them, mostly one that adds or changes something."""
    kind = chance.choices(["store", "update", "delete", "relate", "name", "merge", "undo"], [6, 6, 2, 4, 2, 1, 2])[0]
    match kind:
        case "store":
            return kind, chance.sample("xyz", chance.randrange(3))
        case "update":
            return kind, chance.randrange(30), chance.randrange(10)
        case "relate":
            return kind, chance.choice("abcd"), chance.choice("pq"), chance.choice("abcd")
        case "name":
            return kind, chance.choice("abcd"), chance.choice("abcd")
        case "merge":
            return kind, chance.randrange(30), chance.randrange(30)
        case _:
            return kind, chance.randrange(1, 4)


@dataclass
class State:
    entries: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Topic (each is used once) -> content and tags."""
    triples: set[tuple[str, str, str]] = field(default_factory=set)
    entities: dict[str, list[str]] = field(default_factory=dict)

    def same(self, name: str) -> set[str]:
        return next(({own, *also} for own, also in self.entities.items() if name in (own, *also)), {name})

    def owner(self, name: str) -> str | None:
        return next((own for own, also in self.entities.items() if name in (own, *also)), None)


@dataclass
class Model:
    now: State = field(default_factory=State)
    earlier: list[State] = field(default_factory=list)
    """The state before each transaction that is not undone."""
    ops: list[str] = field(default_factory=list)
    stored: int = 0

    def apply(self, op: Op) -> str:
        """What the call must answer: `ok`, or the code of its refusal; `none` when there is nothing to call it on."""
        before = copy.deepcopy(self.now)
        outcome, written = getattr(self, f"_{op[0]}")(*op[1:])
        if written:
            self.ops.append(written)
            self.earlier.append(before)
        return outcome

    def _store(self, tags: list[str]) -> tuple[str, str]:
        self.stored += 1
        self.now.entries[f"topic {self.stored}"] = ("first", tuple(tags))
        return "ok", "CREATE"

    def _update(self, pick: int, value: int) -> tuple[str, str]:
        if (topic := picked(self.now.entries, pick)) is None:
            return "none", ""
        self.now.entries[topic] = (f"value {value}", self.now.entries[topic][1])
        return "ok", "UPDATE"

    def _delete(self, pick: int) -> tuple[str, str]:
        if (topic := picked(self.now.entries, pick)) is None:
            return "none", ""
        del self.now.entries[topic]
        return "ok", "DELETE"

    def _relate(self, subject: str, predicate: str, object_: str) -> tuple[str, str]:
        subjects, objects = self.now.same(subject), self.now.same(object_)
        alike = {o for s, p, o in self.now.triples if s in subjects and p == predicate}
        if alike:
            return ("ok" if alike & objects else "conflicting"), ""
        self.now.triples.add((subject, predicate, object_))
        return "ok", "CREATE"

    def _forget(self, pick: int) -> tuple[str, str]:
        if (triple := picked(self.now.triples, pick)) is None:
            return "none", ""
        self.now.triples.discard(triple)
        return "ok", "DELETE"

    def _name(self, name: str, alias: str) -> tuple[str, str]:
        own, other = self.now.owner(name), self.now.owner(alias)
        if other is not None and other != own:
            return "conflict", ""
        if own is None:
            self.now.entities[name] = [alias] if alias != name else []
            return "ok", "CREATE"
        if other == own:
            return "ok", ""
        self.now.entities[own].append(alias)
        return "ok", "UPDATE"

    def _merge(self, keep: int, gone: int) -> tuple[str, str]:
        one, two = picked(self.now.entities, keep), picked(self.now.entities, gone)
        if one is None or two is None:
            return "none", ""
        if one == two:
            return "validation", ""
        self.now.entities[one] += [two, *self.now.entities.pop(two)]
        return "ok", "MERGE"

    def _undo(self, count: int) -> tuple[str, str]:
        for _ in range(min(count, len(self.earlier))):
            self.now = self.earlier.pop()
            self.ops.append("REVERT")
        return "ok", ""


def picked(things: Any, pick: int) -> Any:
    return sorted(things)[pick % len(things)] if things else None


class Driver:
    """Does to the real memory what is done to the model."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.ids: dict[Any, str] = {}

    async def call(self, model: Model, op: Op) -> tuple[str, dict[str, Any]] | None:
        """The tool and arguments that the op means, given what the model holds before it."""
        now = model.now
        match op:
            case ("store", tags):
                return "store", {"topic": f"topic {model.stored + 1}", "content": "first", "tags": tags}
            case ("update", pick, value) if now.entries:
                return "update", {"id": self.ids[picked(now.entries, pick)], "content": f"value {value}"}
            case ("delete", pick) if now.entries:
                return "delete", {"id": self.ids[picked(now.entries, pick)]}
            case ("relate", subject, predicate, object_):
                return "relate", {"subject": subject, "predicate": predicate, "object": object_}
            case ("forget", pick) if now.triples:
                return "delete", {"id": self.ids[picked(now.triples, pick)], "entity_type": "triple"}
            case ("name", name, alias):
                return "upsert_entity", {"name": name, "aliases": [alias]}
            case ("merge", keep, gone) if now.entities:
                keep_id, merge_id = (self.ids[("entity", picked(now.entities, pick))] for pick in (keep, gone))
                return "merge_entities", {"keep_id": keep_id, "merge_id": merge_id}
            case ("undo", count):
                return "undo", {"count": count}
            case _:
                return None

    async def step(self, model: Model, op: Op) -> None:
        """The op on both, which must agree on how it ends."""
        called = await self.call(model, op)
        expected = model.apply(op)
        if called is None:
            assert expected == "none"
            return
        structured = (await self.memory.result(called[0], called[1]))["structuredContent"]
        assert outcome_of(structured) == expected, (op, structured)
        if op[0] == "undo":
            await self.look()
        else:
            self._note(structured)

    def _note(self, item: dict[str, Any]) -> None:
        """The id of what was made, by what the model knows it as."""
        if "topic" in item:
            self.ids[item["topic"]] = item["id"]
        elif "predicate" in item:
            self.ids[(item["subject"], item["predicate"], item["object"])] = item["id"]
        elif "aliases" in item:
            self.ids[("entity", item["name"])] = item["id"]

    async def look(self) -> tuple[State, list[str]]:
        """The real memory as a state of the model, and the ops of its history, oldest first."""
        found = State()
        entries = [item for page in await self.memory.pages("query", limit=200) for item in page]
        triples = [item for page in await self.memory.pages("query_graph", limit=200) for item in page]
        entities = (await self.memory.read("knowledge://graph/entities?limit=200"))["items"]
        for item in entries:
            found.entries[item["topic"]] = (item["content"], tuple(item["tags"]))
        for item in triples:
            found.triples.add((item["subject"], item["predicate"], item["object"]))
        for item in entities:
            found.entities[item["name"]] = item["aliases"]
        for item in (*entries, *triples, *entities):
            self._note(item)
        history = [item["op"] for page in await self.memory.pages("history", limit=100) for item in page]
        return found, history[::-1]

    async def compare(self, model: Model) -> None:
        """Contents, history and resources say the same."""
        found, ops = await self.look()
        assert found == model.now
        assert ops == model.ops
        for uri, expected in (("entries", found.entries), ("graph/triples", found.triples)):
            body = await self.memory.read(f"knowledge://{uri}?limit=200")
            assert len(body["items"]) == len(expected)
        transactions = (await self.memory.read("knowledge://history/transactions?limit=200"))["items"]
        assert [item["op"] for item in transactions] == ops[::-1][:200]
        for tag in "xyz":
            tagged = await self.memory("query", tags=[tag], limit=200)
            assert len(tagged["items"]) == sum(tag in tags for _, tags in found.entries.values())
        for topic, (content, _) in found.entries.items():
            items = (await self.memory("query", topic=topic, content=content, limit=200))["items"]
            assert (topic, content) in {(item["topic"], item["content"]) for item in items}


def outcome_of(structured: dict[str, Any]) -> str:
    if "conflict_id" in structured:
        return "conflicting"
    return structured["error"]["code"] if structured.get("ok") is False else "ok"
