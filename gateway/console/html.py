"""Markup that cannot be forgotten to be escaped: whatever is not `Html` already becomes text."""

from collections.abc import Callable, Iterable
from html import escape
from typing import Final

_VOID: Final = frozenset({"input", "meta", "link", "br", "hr", "img"})


class Html(str):
    """Text that is markup."""

    __slots__ = ()


Child = str | int | float | Iterable["Child"] | None
"""Anything but `Html` is escaped; None is nothing, and of several each."""
Value = str | int | float | bool | None
"""False and None leave an attribute out; True names it alone."""


def markup(*children: Child) -> Html:
    return Html("".join(map(_text, children)))


def tag(name: str, /, *children: Child, **attributes: Value) -> Html:
    """`class_` and `data_part` are spelled `class` and `data-part`."""
    said = "".join(_attribute(key, value) for key, value in attributes.items())
    end = "" if name in _VOID else f"{markup(*children)}</{name}>"
    return Html(f"<{name}{said}>{end}")


class _Tags:
    def __getattr__(self, name: str) -> "Callable[..., Html]":
        def made(*children: Child, **attributes: Value) -> Html:
            return tag(name, *children, **attributes)

        return made


h: Final = _Tags()
"""`h.p("text", class_="dim")`."""


def _attribute(key: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    name = key.removesuffix("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def _text(child: Child) -> str:
    match child:
        case None:
            return ""
        case Html():
            return child
        case str() | int() | float():
            return escape(str(child))
        case _:
            return "".join(map(_text, child))
