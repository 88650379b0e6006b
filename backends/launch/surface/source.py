"""A source file as a tree-sitter tree, with helpers for names, signatures and documentation comments."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from backends.launch.surface.model import Parameter
from backends.launch.workers import languages

_MAX_SIGNATURE: Final = 1500
_WRAP_AT: Final = 96
_BRACKETS: Final = {"(": ")", "[": "]", "{": "}", "<": ">"}
_COMMENTS: Final = frozenset({"comment", "line_comment", "block_comment", "multiline_comment"})
_BETWEEN: Final = frozenset({"attribute_item", "decorator", "attribute_list", "annotation"})
"""Nodes that may stand between a documentation comment and its declaration."""


@dataclass(frozen=True, slots=True)
class Source:
    path: str
    data: bytes
    root: Any

    @classmethod
    def parse(cls, path: str, data: bytes, language: str) -> "Source":
        # `tsx` differs in its cast syntax; the TypeScript grammar reads declarations of both.
        return cls(path, data, languages.parse(language, data))

    def text(self, node: Any) -> str:
        return self.between(node.start_byte, node.end_byte) if node is not None else ""

    def between(self, start: int, end: int) -> str:
        return self.data[start:end].decode("utf-8", "replace")

    def field(self, node: Any, name: str) -> str:
        return self.text(node.child_by_field_name(name))

    def line(self, node: Any) -> int:
        return node.start_point[0] + 1

    def comment_before(self, node: Any) -> str:
        """Return the comments directly above the node, with their markers, as one text."""
        found: list[str] = []
        row = node.start_point[0]
        sibling = node.prev_sibling
        while sibling is not None:
            kind = sibling.type
            end_row = sibling.end_point[0] - (1 if sibling.end_point[1] == 0 and kind in _COMMENTS else 0)
            if kind in _BETWEEN:
                row = sibling.start_point[0]
            elif kind in _COMMENTS and row - end_row <= 1 and not self._is_trailing(sibling):
                found.append(self.text(sibling).rstrip("\n"))
                row = sibling.start_point[0]
            else:
                break
            sibling = sibling.prev_sibling
        return "\n".join(reversed(found))

    def _is_trailing(self, comment: Any) -> bool:
        """Whether the comment stands behind code on the same line."""
        start = comment.start_byte
        line_start = self.data.rfind(b"\n", 0, start) + 1
        return bool(self.data[line_start:start].strip())


def walk(node: Any, descend: frozenset[str]) -> Iterator[Any]:
    """Yield the named children of the node and of its children of these types."""
    for child in node.named_children:
        if child.type in descend:
            yield from walk(child, descend)
        else:
            yield child


def one_line(text: str) -> str:
    text = re.sub(r"\s+", " ", text[:_MAX_SIGNATURE]).strip()
    text = re.sub(r"([(\[]) | ([)\],;])", r"\1\2", text)
    return re.sub(r",([)\]])", r"\1", text).rstrip(" ;{=")


def wrap(signature: str) -> str:
    """Break a long signature into one line per parameter."""
    at = signature.find("(")
    if len(signature) <= _WRAP_AT or at < 0:
        return signature
    end = matching(signature, at)
    if end is None:
        return signature
    parts = split_list(signature[at + 1 : end])
    if len(parts) < 2:
        return signature
    return f"{signature[: at + 1]}\n" + "".join(f"    {part},\n" for part in parts) + signature[end:]


def matching(text: str, start: int) -> int | None:
    """Return the position of the bracket that closes the one at `start`."""
    depth, quote = 0, ""
    opening, closing = text[start], _BRACKETS[text[start]]
    for at in range(start, len(text)):
        character = text[at]
        if quote:
            quote = "" if character == quote and text[at - 1] != "\\" else quote
        elif character in "\"'" and not (character == "'" and _is_lifetime(text, at)):
            quote = character
        elif character == opening:
            depth += 1
        elif character == closing:
            depth -= 1
            if depth == 0:
                return at
    return None


def _is_lifetime(text: str, at: int) -> bool:
    """Whether a single quotation mark begins a Rust lifetime instead of a character."""
    return re.match(r"'[A-Za-z_]\w*(?!')", text[at : at + 40]) is not None


def split_list(text: str, separator: str = ",") -> list[str]:
    """Split at separators that are outside brackets and quotations."""
    parts: list[str] = []
    depth, quote, current = 0, "", ""
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote and text[at - 1] != "\\" else quote
        elif character in "\"'`" and not (character == "'" and _is_lifetime(text, at)):
            quote = character
        elif character in "([{" or (character == "<" and text[at - 1 : at] not in ("", " ", "<")):
            depth += 1
        elif character in ")]}" or (character == ">" and text[at - 1 : at] not in ("", "=", "-", " ")):
            depth = max(0, depth - 1)
        if character == separator and depth == 0 and not quote:
            parts.append(current)
            current = ""
        else:
            current += character
    return [part.strip() for part in (*parts, current) if part.strip()]


_MODIFIERS: Final = re.compile(
    r"^(?:(?:@\w+(?:\([^)]*\))?|#\[[^\]]*\]|\[[^\]]*\]|final|const|vararg|val|var|let|noinline|crossinline|private|public"
    r"|protected|internal|override|readonly|mut|inout|ref|out|in|params|this|scoped)\s+)+"
)


def name_first(text: str) -> Parameter:
    """Parse a parameter of the form `name: Type = default`."""
    text = _MODIFIERS.sub("", text.strip())
    head, default = _split_default(text)
    name, _, kind = head.partition(":")
    return Parameter(name.strip(), kind.strip(), default)


def type_first(text: str) -> Parameter:
    """Parse a parameter of the form `Type name = default`."""
    plain = re.sub(r"^(?:(?:@\w+(?:\([^)]*\))?|#\[[^\]]*\]|\[[^\]]*\]|final)\s+)+", "", text.strip())
    head, default = _split_default(plain)
    found = re.match(r"^(.*?)([&*.\s]*)((?:\$)?[A-Za-z_]\w*)((?:\[[^\]]*\])*)$", head, re.DOTALL)
    if found is None or not (found[1].strip() or found[2].strip()):
        return Parameter(head, "", default) if head.startswith(("$", "...$", "&$")) else Parameter("", head, default)
    return Parameter(found[3], f"{found[1]}{found[2]}".strip() + found[4], default)


def _split_default(text: str) -> tuple[str, str]:
    depth = 0
    for at, character in enumerate(text):
        if character in "([{<":
            depth += 1
        elif character in ")]}" or (character == ">" and text[at - 1 : at] not in ("=", "-")):
            depth -= 1
        elif character == "=" and depth <= 0 and text[at + 1 : at + 2] != ">" and text[at - 1 : at] not in "<>!=":
            return text[:at].strip(), text[at + 1 :].strip()
    return text.strip(), ""
