"""Renders one public symbol as the parts of a reference page. Each statement is a claim about the symbol."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from backends.launch.surface import prose
from gateway.contract import Json

PartKind = Literal["claim", "item", "row", "code", "heading", "header"]

_COLUMNS: Final = (("type", "Type"), ("default", "Default"), ("description", "Description"))


@dataclass(frozen=True, slots=True)
class Part:
    """A line or a code block of a reference page."""

    kind: PartKind
    text: str
    language: str = ""


def parts(symbol: Json) -> Iterator[Part]:
    """Yield what is known about the symbol, without its signature and source line."""
    deprecated: str | None = symbol["deprecated"]
    if deprecated is not None:
        yield Part("claim", f"Deprecated. {deprecated}".strip())
    yield from _blocks(symbol["blocks"])
    yield from _parameter_table(symbol["parameters"])
    returns = symbol["returns"]
    if returns["description"]:
        yield Part(
            "claim", " ".join(filter(None, ["Returns", prose.code(returns["type"])])) + f": {returns['description']}"
        )
    for raised in symbol["raises"]:
        if raised["description"]:
            yield Part("item", f"Raises {prose.code(raised['type']) or 'an error'}: {raised['description']}")


def summary(symbol: Json) -> str:
    """Return the first sentence of the symbol's documentation, or an empty text."""
    first = next((block["text"] for block in symbol["blocks"] if block["kind"] == "text"), "")
    return first_sentence(first)


def first_sentence(text: str) -> str:
    """Return the text up to the first period that ends a sentence."""
    for at, character in enumerate(text[:400]):
        ends = character in ".!?" and (at + 1 == len(text) or text[at + 1] == " ")
        if ends and text[max(0, at - 3) : at + 1] not in ("e.g.", "i.e.", " vs.") and text[:at].count("`") % 2 == 0:
            return text[: at + 1]
    return text if len(text) <= 400 else ""


def _blocks(blocks: list[Json]) -> Iterator[Part]:
    for number, block in enumerate(blocks):
        if block["kind"] == "code":
            yield Part("code", block["text"], block["language"])
        elif block["kind"] == "heading":
            follows = blocks[number + 1 :][:1]
            if follows and follows[0]["kind"] != "heading":
                yield Part("heading", block["text"])
        else:
            yield Part("item" if block["kind"] == "item" else "claim", block["text"])


def _parameter_table(parameters: list[Json]) -> Iterator[Part]:
    columns = [(key, title) for key, title in _COLUMNS if any(each[key] for each in parameters)]
    named = [each for each in parameters if each["name"]]
    if not columns or not named:
        return
    yield Part("header", " | ".join(["Parameter", *(title for _, title in columns)]))
    for each in named:
        cells = [prose.code(each["name"])]
        cells += [each[key] if key == "description" else prose.code(each[key]) for key, _ in columns]
        yield Part("row", " | ".join(prose.cell(text) for text in cells).strip())
