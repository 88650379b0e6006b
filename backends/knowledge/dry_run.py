"""Dry runs: a call is carried out in a unit of work that is rolled back, and its changes are returned as `diff`."""

from collections import Counter
from typing import Final

from backends.knowledge import uris
from backends.knowledge.tool_results import ToolResult, clip, entry_line, triple_line
from backends.knowledge.unit_of_work import Change, RecordedTransaction
from gateway.contract import Json

MAX_ENTRIES: Final = 50
_PLURALS: Final = {"entry": "entries", "triple": "triples", "entity": "entities"}


def preview(result: ToolResult, transactions: list[RecordedTransaction]) -> ToolResult:
    """Return the result of a call that was rolled back, with what it would change.

    Ids of new items are examples: a real call makes others.
    """
    changes = [change for transaction in transactions for change in transaction.changes]
    diff: Json = {
        "summary": _summary(changes),
        "entries": [_entry(change) for change in changes[:MAX_ENTRIES]],
        "truncated": len(changes) > MAX_ENTRIES,
    }
    lines = [
        f"Dry run: nothing was changed. {diff['summary']}",
        *(f"- {_line(each)}" for each in changes[:MAX_ENTRIES]),
    ]
    # The item of the real result may not exist, so the preview refers to its list.
    uri = uris.list_of(result.uri)
    return ToolResult("\n".join(lines), uri, {**result.data, "dryRun": True, "diff": diff})


def _summary(changes: list[Change]) -> str:
    if not changes:
        return "It would change nothing."
    counts = Counter((_verb(change), change.kind) for change in changes)
    parts = [f"{verb} {count} {kind if count == 1 else _PLURALS[kind]}" for (verb, kind), count in counts.items()]
    return f"It would {', '.join(parts)}."


def _verb(change: Change) -> str:
    if change.after is None:
        return "delete"
    return "create" if change.before is None else "update"


def _entry(change: Change) -> Json:
    return {
        "change": _verb(change),
        "entity_type": change.kind,
        "entity_id": change.id,
        "before_snapshot": change.before,
        "after_snapshot": change.after,
    }


def _line(change: Change) -> str:
    shown = change.after or change.before or {}
    match change.kind:
        case "entry":
            text = entry_line(shown)
        case "triple":
            text = triple_line(shown)
        case _:
            text = f"{change.id} {clip(shown['name'])}"
    return f"{_verb(change)} {change.kind} {text}"
