"""Scanner for the grammar of scenes, resources and settings files: sections with attributes and properties.

It does not interpret values. Every part records its span in the text.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.errors import Fault, Kind

_BLANK: Final = " \t\r\n"
_OPEN: Final = "([{"
_CLOSE: Final = ")]}"
_WORD: Final = re.compile(r"[^\s=\[\]\";]+")
_BARE: Final = re.compile(r"[A-Za-z0-9_/.:@\-]+")


class MalformedText(Fault):
    """The text is not a valid Godot file."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(Kind.INVALID_INPUT, f"The file is not a valid Godot file: {reason} in line {line}.")


@dataclass(frozen=True, slots=True)
class Attribute:
    """A `name=value` pair in a section header."""

    name: str
    value: str
    start: int
    """Offset where the value begins."""
    end: int


@dataclass(frozen=True, slots=True)
class Property:
    """A `name = value` line below a section header."""

    name: str
    value: str
    start: int
    """Offset where the line begins."""
    value_start: int
    end: int
    """Offset where the value ends."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section with its header `[tag attribute=value …]` and its properties."""

    tag: str
    attributes: tuple[Attribute, ...]
    properties: tuple[Property, ...]
    start: int
    header_end: int
    """Offset after the closing bracket."""
    content_end: int
    """Offset after the last content that is not blank or a comment."""
    end: int
    """Offset where the next section begins or the text ends."""

    def attribute(self, name: str) -> Attribute | None:
        return next((each for each in self.attributes if each.name == name), None)

    def property(self, name: str) -> Property | None:
        return next((each for each in self.properties if each.name == name), None)

    def string(self, name: str) -> str | None:
        """Return an attribute's value without quotes."""
        found = self.attribute(name)
        return unquote(found.value) if found else None


def scan(text: str) -> list[Section]:
    """Return the sections in order. Properties before the first header are in a section with an empty tag.

    Raises `MalformedText`.
    """
    return _Scanner(text).sections()


def quote(text: str) -> str:
    """Return the text as a Godot string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def unquote(value: str) -> str:
    """Return the text of a string, StringName or NodePath literal; other values are returned unchanged."""
    inner = value.lstrip("&^")
    if len(inner) < 2 or inner[0] != '"' or inner[-1] != '"':
        return value
    return re.sub(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{6}|.)", _unescape, inner[1:-1], flags=re.DOTALL)


def _unescape(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "uU" and len(code) > 1:
        return chr(int(code[1:], 16))
    return {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}.get(code, code)


def format_property_name(name: str) -> str:
    """Return the property name as it is written before the equals sign, quoted if necessary."""
    return name if _BARE.fullmatch(name) else quote(name)


def apply_edits(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Apply (start, end, replacement) edits. The spans must not overlap."""
    for start, end, new in sorted(edits, key=lambda edit: (edit[0], edit[1]), reverse=True):
        text = text[:start] + new + text[end:]
    return text


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def sections(self) -> list[Section]:
        found: list[Section] = []
        tag, attributes, start, header_end = "", (), 0, 0
        while True:
            properties = self._read_properties()
            content_end = properties[-1].end if properties else header_end
            if tag or properties:
                found.append(Section(tag, attributes, properties, start, header_end, content_end, self._position))
            if self._position >= len(self._text):
                return found
            start = self._position
            tag, attributes = self._read_header()
            header_end = self._position

    def _read_header(self) -> tuple[str, tuple[Attribute, ...]]:
        self._position += 1
        self._skip_blank()
        tag = self._read_word("a section's name")
        attributes: list[Attribute] = []
        while True:
            self._skip_blank()
            if self._peek() == "]":
                self._position += 1
                return tag, tuple(attributes)
            name = self._read_word("an attribute")
            self._skip_blank()
            self._expect("=")
            self._skip_blank()
            begin = self._position
            self._skip_value(in_header=True)
            attributes.append(Attribute(name, self._text[begin : self._position], begin, self._position))

    def _read_properties(self) -> tuple[Property, ...]:
        """Read properties up to the next section or the end of the text."""
        found: list[Property] = []
        while True:
            self._skip_blank(comments=True)
            if self._position >= len(self._text) or self._peek() == "[":
                return tuple(found)
            start = self._position
            name = self._read_name()
            self._skip_blank()
            self._expect("=")
            while self._peek() in (" ", "\t"):
                self._position += 1
            begin = self._position
            self._skip_value(in_header=False)
            end = begin + len(self._text[begin : self._position].rstrip())
            found.append(Property(name, self._text[begin:end], start, begin, end))

    def _read_name(self) -> str:
        if self._peek() == '"':
            begin = self._position
            self._skip_string()
            return unquote(self._text[begin : self._position])
        begin = self._position
        while self._peek() not in ("=", "\n", ""):
            self._position += 1
        return self._text[begin : self._position].strip()

    def _read_word(self, label: str) -> str:
        found = _WORD.match(self._text, self._position)
        if found is None:
            raise self._malformed(f"{label} is missing")
        self._position = found.end()
        return found[0]

    def _skip_value(self, *, in_header: bool) -> None:
        depth, begin = 0, self._position
        while (character := self._peek()) != "":
            if character == '"':
                self._skip_string()
                continue
            if not depth and (character == "\n" or (in_header and character in " \t]")):
                break
            if character == ";":
                if not depth:
                    break
                self._skip_line()
                continue
            if character in _OPEN:
                depth += 1
            elif character in _CLOSE:
                depth -= 1
                if depth < 0:
                    raise self._malformed("an unmatched closing bracket")
            self._position += 1
        if depth or self._position == begin:
            raise self._malformed("an unterminated value" if depth else "a missing value")

    def _skip_string(self) -> None:
        self._position += 1
        while (character := self._peek()) != '"':
            if character == "":
                raise self._malformed("an unterminated string")
            self._position += 2 if character == "\\" else 1
        self._position += 1

    def _skip_blank(self, *, comments: bool = False) -> None:
        while (character := self._peek()) != "":
            if character in _BLANK or character == "\ufeff":
                self._position += 1
            elif comments and character == ";":
                self._skip_line()
            else:
                return

    def _skip_line(self) -> None:
        end = self._text.find("\n", self._position)
        self._position = len(self._text) if end < 0 else end

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise self._malformed(f"{character} is missing")
        self._position += 1

    def _malformed(self, reason: str) -> MalformedText:
        return MalformedText(reason, self._text.count("\n", 0, self._position) + 1)
