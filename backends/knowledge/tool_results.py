"""Builds tool results: a text summary, the data as an embedded resource, and the same data as structured content."""

import json
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from gateway.contract import Json

JSON_TYPE: Final = "application/json"
_MAX_LINE_TEXT: Final = 600


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The outcome of a tool call, rendered for text-only and structured clients."""

    text: str
    """Summary for text-only clients. It contains every id and value they need to continue."""
    uri: str
    data: Json

    def as_result(self) -> Json:
        resource = {"uri": self.uri, "mimeType": JSON_TYPE, "text": json.dumps(self.data, ensure_ascii=False)}
        content = [{"type": "text", "text": self.text}, {"type": "resource", "resource": resource}]
        return {"content": content, "structuredContent": self.data, "isError": False}


def pluralize(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def format_list(head: str, lines: list[str], next_cursor: str | None = None) -> str:
    """Format a heading and one line per item, followed by the cursor of the next page if there is one."""
    tail = [f"More with cursor {next_cursor}"] if next_cursor is not None else []
    return "\n".join([head, *(f"- {line}" for line in lines), *tail])


def entry_line(entry: Json) -> str:
    confidence = f" (confidence {entry['confidence']:g})" if entry["confidence"] is not None else ""
    return f"{entry['id']} {clip(entry['topic'])}: {clip(entry['content'])}{confidence}"


def triple_line(triple: Json) -> str:
    return f"{triple['id']} {' | '.join(clip(triple[part]) for part in ('subject', 'predicate', 'object'))}"


def transaction_line(item: Json) -> str:
    undone = ", undone" if item["reverted_by"] else ""
    actor = f" by {item['actor']}" if item["actor"] else ""
    return (
        f"{item['id']} {item['op']} {item['entity_type']} {item['entity_id']}{actor} at {item['recorded_at']}{undone}"
    )


def clip(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MAX_LINE_TEXT else flat[: _MAX_LINE_TEXT - 1] + "…"


def with_query(base: str, query: Json) -> str:
    """Return the resource URI that lists the same items."""
    filled = {name: value for name, value in query.items() if value not in (None, "", [])}
    return f"{base}?{urlencode(filled, doseq=True)}" if filled else base
