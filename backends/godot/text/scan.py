"""The grammar that scenes, resources and settings share: sections with attributes, and properties below them.

Nothing is interpreted; every part knows its span in the text.
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


class Malformed(Fault):
    """Text that Godot would not read either."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__(Kind.INVALID_INPUT, f"The file is not as Godot writes it: {why} in line {line}.")


@dataclass(frozen=True, slots=True)
class Attribute:
    name: str
    value: str
    start: int
    """Where its value begins."""
    end: int


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    value: str
    start: int
    """Where its line begins."""
    value_start: int
    end: int
    """Where its value ends."""


@dataclass(frozen=True, slots=True)
class Section:
    tag: str
    attributes: tuple[Attribute, ...]
    properties: tuple[Property, ...]
    start: int
    header_end: int
    """Behind the closing bracket."""
    content_end: int
    """Behind the last thing in it that is not blank or a comment."""
    end: int
    """Where the next section begins, or the text ends."""

    def attribute(self, name: str) -> Attribute | None:
        return next((each for each in self.attributes if each.name == name), None)

    def property(self, name: str) -> Property | None:
        return next((each for each in self.properties if each.name == name), None)

    def string(self, name: str) -> str | None:
        """An attribute's value without its quotes."""
        found = self.attribute(name)
        return unquoted(found.value) if found else None


def scan(text: str) -> list[Section]:
    """The sections in order; properties before the first are in one without a tag."""
    return _Scanner(text).sections()


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def unquoted(value: str) -> str:
    """The text of a string, name or path literal; anything else as it is."""
    inner = value.lstrip("&^")
    if len(inner) < 2 or inner[0] != '"' or inner[-1] != '"':
        return value
    return re.sub(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{6}|.)", _unescaped, inner[1:-1], flags=re.DOTALL)


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "uU" and len(code) > 1:
        return chr(int(code[1:], 16))
    return {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}.get(code, code)


def property_name(name: str) -> str:
    """As it is written before the equals sign."""
    return name if _BARE.fullmatch(name) else quoted(name)


def apply(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Replace spans; they may not overlap."""
    for start, end, new in sorted(edits, key=lambda edit: (edit[0], edit[1]), reverse=True):
        text = text[:start] + new + text[end:]
    return text


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def sections(self) -> list[Section]:
        found: list[Section] = []
        tag, attributes, start, header_end = "", (), 0, 0
        while True:
            properties = self._properties()
            content_end = properties[-1].end if properties else header_end
            if tag or properties:
                found.append(Section(tag, attributes, properties, start, header_end, content_end, self._at))
            if self._at >= len(self._text):
                return found
            start = self._at
            tag, attributes = self._header()
            header_end = self._at

    def _header(self) -> tuple[str, tuple[Attribute, ...]]:
        self._at += 1
        self._skip_blank()
        tag = self._word("a section's name")
        attributes: list[Attribute] = []
        while True:
            self._skip_blank()
            if self._peek() == "]":
                self._at += 1
                return tag, tuple(attributes)
            name = self._word("an attribute")
            self._skip_blank()
            self._expect("=")
            self._skip_blank()
            begin = self._at
            self._skip_value(in_header=True)
            attributes.append(Attribute(name, self._text[begin : self._at], begin, self._at))

    def _properties(self) -> tuple[Property, ...]:
        """Up to the next section or the end."""
        found: list[Property] = []
        while True:
            self._skip_blank(comments=True)
            if self._at >= len(self._text) or self._peek() == "[":
                return tuple(found)
            start = self._at
            name = self._name()
            self._skip_blank()
            self._expect("=")
            while self._peek() in (" ", "\t"):
                self._at += 1
            begin = self._at
            self._skip_value(in_header=False)
            end = begin + len(self._text[begin : self._at].rstrip())
            found.append(Property(name, self._text[begin:end], start, begin, end))

    def _name(self) -> str:
        if self._peek() == '"':
            begin = self._at
            self._skip_string()
            return unquoted(self._text[begin : self._at])
        begin = self._at
        while self._peek() not in ("=", "\n", ""):
            self._at += 1
        return self._text[begin : self._at].strip()

    def _word(self, what: str) -> str:
        found = _WORD.match(self._text, self._at)
        if found is None:
            raise self._malformed(f"{what} is missing")
        self._at = found.end()
        return found[0]

    def _skip_value(self, *, in_header: bool) -> None:
        depth, begin = 0, self._at
        while (letter := self._peek()) != "":
            if letter == '"':
                self._skip_string()
                continue
            if not depth and (letter == "\n" or (in_header and letter in " \t]")):
                break
            if letter == ";":
                if not depth:
                    break
                self._skip_line()
                continue
            if letter in _OPEN:
                depth += 1
            elif letter in _CLOSE:
                depth -= 1
                if depth < 0:
                    raise self._malformed("a bracket closes nothing")
            self._at += 1
        if depth or self._at == begin:
            raise self._malformed("a value has no end" if depth else "a value is missing")

    def _skip_string(self) -> None:
        self._at += 1
        while (letter := self._peek()) != '"':
            if letter == "":
                raise self._malformed("a text has no end")
            self._at += 2 if letter == "\\" else 1
        self._at += 1

    def _skip_blank(self, *, comments: bool = False) -> None:
        while (letter := self._peek()) != "":
            if letter in _BLANK or letter == "\ufeff":
                self._at += 1
            elif comments and letter == ";":
                self._skip_line()
            else:
                return

    def _skip_line(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _expect(self, letter: str) -> None:
        if self._peek() != letter:
            raise self._malformed(f"{letter} is missing")
        self._at += 1

    def _malformed(self, why: str) -> Malformed:
        return Malformed(why, self._text.count("\n", 0, self._at) + 1)
