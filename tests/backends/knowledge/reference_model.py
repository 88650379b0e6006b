"""An in-memory reference model of the backend, and a driver that applies the same operations to both."""

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


def random_op(rng: random.Random) -> Op:
    """Return a random operation of `OPS`; most of them add or change data."""
    kind = rng.choices(["store", "update", "delete", "relate", "name", "merge", "undo"], [6, 6, 2, 4, 2, 1, 2])[0]
    match kind:
        case "store":
            return kind, rng.sample("xyz", rng.randrange(3))
        case "update":
            return kind, rng.randrange(30), rng.randrange(10)
        case "relate":
            return kind, rng.choice("abcd"), rng.choice("pq"), rng.choice("abcd")
        case "name":
            return kind, rng.choice("abcd"), rng.choice("abcd")
        case "merge":
            return kind, rng.randrange(30), rng.randrange(30)
        case _:
            return kind, rng.randrange(1, 4)


@dataclass
class State:
    entries: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Content and tags by topic; each topic is used once."""
    triples: set[tuple[str, str, str]] = field(default_factory=set)
    entities: dict[str, list[str]] = field(default_factory=dict)

    def same(self, name: str) -> set[str]:
        return next(
            ({canonical, *aliases} for canonical, aliases in self.entities.items() if name in (canonical, *aliases)),
            {name},
        )

    def owner(self, name: str) -> str | None:
        return next((canonical for canonical, aliases in self.entities.items() if name in (canonical, *aliases)), None)


@dataclass
class Model:
    now: State = field(default_factory=State)
    undo_stack: list[State] = field(default_factory=list)
    """The state before each transaction that has not been undone."""
    ops: list[str] = field(default_factory=list)
    stored: int = 0

    def apply(self, op: Op) -> str:
        """Apply an operation and return the expected outcome.

        `ok`, an error code, or `none` if there is no item to apply it to.
        """
        before = copy.deepcopy(self.now)
        outcome, written = getattr(self, f"_{op[0]}")(*op[1:])
        if written:
            self.ops.append(written)
            self.undo_stack.append(before)
        return outcome

    def _store(self, tags: list[str]) -> tuple[str, str]:
        self.stored += 1
        self.now.entries[f"topic {self.stored}"] = ("first", tuple(tags))
        return "ok", "CREATE"

    def _update(self, pick: int, value: int) -> tuple[str, str]:
        if (topic := pick_item(self.now.entries, pick)) is None:
            return "none", ""
        self.now.entries[topic] = (f"value {value}", self.now.entries[topic][1])
        return "ok", "UPDATE"

    def _delete(self, pick: int) -> tuple[str, str]:
        if (topic := pick_item(self.now.entries, pick)) is None:
            return "none", ""
        del self.now.entries[topic]
        return "ok", "DELETE"

    def _relate(self, subject: str, predicate: str, object_: str) -> tuple[str, str]:
        subjects, objects = self.now.same(subject), self.now.same(object_)
        known_objects = {o for s, p, o in self.now.triples if s in subjects and p == predicate}
        if known_objects:
            return ("ok" if known_objects & objects else "conflicting"), ""
        self.now.triples.add((subject, predicate, object_))
        return "ok", "CREATE"

    def _forget(self, pick: int) -> tuple[str, str]:
        if (triple := pick_item(self.now.triples, pick)) is None:
            return "none", ""
        self.now.triples.discard(triple)
        return "ok", "DELETE"

    def _name(self, name: str, alias: str) -> tuple[str, str]:
        canonical, other = self.now.owner(name), self.now.owner(alias)
        if other is not None and other != canonical:
            return "conflict", ""
        if canonical is None:
            self.now.entities[name] = [alias] if alias != name else []
            return "ok", "CREATE"
        if other == canonical:
            return "ok", ""
        self.now.entities[canonical].append(alias)
        return "ok", "UPDATE"

    def _merge(self, keep: int, merged: int) -> tuple[str, str]:
        one, two = pick_item(self.now.entities, keep), pick_item(self.now.entities, merged)
        if one is None or two is None:
            return "none", ""
        if one == two:
            return "validation", ""
        self.now.entities[one] += [two, *self.now.entities.pop(two)]
        return "ok", "MERGE"

    def _undo(self, count: int) -> tuple[str, str]:
        for _ in range(min(count, len(self.undo_stack))):
            self.now = self.undo_stack.pop()
            self.ops.append("REVERT")
        return "ok", ""


def pick_item(things: Any, pick: int) -> Any:
    return sorted(things)[pick % len(things)] if things else None


class Driver:
    """Applies the model's operations to the real memory and compares both."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.ids: dict[Any, str] = {}

    async def call(self, model: Model, op: Op) -> tuple[str, dict[str, Any]] | None:
        """Return the tool and arguments of an operation in the model's current state."""
        now = model.now
        match op:
            case ("store", tags):
                return "store", {"topic": f"topic {model.stored + 1}", "content": "first", "tags": tags}
            case ("update", pick, value) if now.entries:
                return "update", {"id": self.ids[pick_item(now.entries, pick)], "content": f"value {value}"}
            case ("delete", pick) if now.entries:
                return "delete", {"id": self.ids[pick_item(now.entries, pick)]}
            case ("relate", subject, predicate, object_):
                return "relate", {"subject": subject, "predicate": predicate, "object": object_}
            case ("forget", pick) if now.triples:
                return "delete", {"id": self.ids[pick_item(now.triples, pick)], "entity_type": "triple"}
            case ("name", name, alias):
                return "upsert_entity", {"name": name, "aliases": [alias]}
            case ("merge", keep, merged) if now.entities:
                keep_id, merge_id = (self.ids[("entity", pick_item(now.entities, pick))] for pick in (keep, merged))
                return "merge_entities", {"keep_id": keep_id, "merge_id": merge_id}
            case ("undo", count):
                return "undo", {"count": count}
            case _:
                return None

    async def step(self, model: Model, op: Op) -> None:
        """Apply the operation to both and compare the outcomes."""
        tool_call = await self.call(model, op)
        expected = model.apply(op)
        if tool_call is None:
            assert expected == "none"
            return
        structured = (await self.memory.result(tool_call[0], tool_call[1]))["structuredContent"]
        assert outcome_of(structured) == expected, (op, structured)
        if op[0] == "undo":
            await self.read_state()
        else:
            self._remember_id(structured)

    def _remember_id(self, item: dict[str, Any]) -> None:
        """Remember the id of a created item under its key in the model."""
        if "topic" in item:
            self.ids[item["topic"]] = item["id"]
        elif "predicate" in item:
            self.ids[(item["subject"], item["predicate"], item["object"])] = item["id"]
        elif "aliases" in item:
            self.ids[("entity", item["name"])] = item["id"]

    async def read_state(self) -> tuple[State, list[str]]:
        """Return the real memory as a model state, and the operations of its history, oldest first."""
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
            self._remember_id(item)
        history = [item["op"] for page in await self.memory.pages("history", limit=100) for item in page]
        return found, history[::-1]

    async def compare(self, model: Model) -> None:
        """Check that contents, history and resources match the model."""
        found, ops = await self.read_state()
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
