"""What a tool answers: a sentence, the data as an embedded resource, and the same data structured."""

import json
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from gateway.contract import Json

JSON_TYPE: Final = "application/json"
_SHOWN: Final = 600


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    """For clients that read nothing else: it says all that matters."""
    uri: str
    data: Json

    def as_result(self) -> Json:
        resource = {"uri": self.uri, "mimeType": JSON_TYPE, "text": json.dumps(self.data, ensure_ascii=False)}
        content = [{"type": "text", "text": self.text}, {"type": "resource", "resource": resource}]
        return {"content": content, "structuredContent": self.data, "isError": False}


def counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def listing(head: str, lines: list[str], next_cursor: str | None = None) -> str:
    """A heading with one line for each item, as text, and how to go on where there is more."""
    tail = [f"More with cursor {next_cursor}"] if next_cursor is not None else []
    return "\n".join([head, *(f"- {line}" for line in lines), *tail])


def entry_line(entry: Json) -> str:
    sure = f" (confidence {entry['confidence']:g})" if entry["confidence"] is not None else ""
    return f"{entry['id']} {clipped(entry['topic'])}: {clipped(entry['content'])}{sure}"


def triple_line(triple: Json) -> str:
    return f"{triple['id']} {' | '.join(clipped(triple[part]) for part in ('subject', 'predicate', 'object'))}"


def transaction_line(item: Json) -> str:
    undone = ", undone" if item["reverted_by"] else ""
    actor = f" by {item['actor']}" if item["actor"] else ""
    return (
        f"{item['id']} {item['op']} {item['entity_type']} {item['entity_id']}{actor} at {item['recorded_at']}{undone}"
    )


def clipped(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN else flat[: _SHOWN - 1] + "…"


def uri_with(base: str, asked: Json) -> str:
    """The address whose read gives the same items."""
    given = {name: value for name, value in asked.items() if value not in (None, "", [])}
    return f"{base}?{urlencode(given, doseq=True)}" if given else base
