"""HTML builder for the console pages. Every value that is not `Html` is escaped."""

from collections.abc import Callable, Iterable
from html import escape
from typing import Final

_VOID: Final = frozenset({"input", "meta", "link", "br", "hr", "img"})


class Html(str):
    """A string of trusted markup; it is not escaped again."""

    __slots__ = ()


Child = str | int | float | Iterable["Child"] | None
"""Content of an element: `Html` as is, other values escaped, None omitted, iterables flattened."""
Value = str | int | float | bool | None
"""Value of an attribute: False and None omit the attribute; True writes it without a value."""


def markup(*children: Child) -> Html:
    return Html("".join(map(_text, children)))


def tag(name: str, /, *children: Child, **attributes: Value) -> Html:
    """Render one element. The attribute names `class_` and `data_part` become `class` and `data-part`."""
    rendered = "".join(_attribute(key, value) for key, value in attributes.items())
    end = "" if name in _VOID else f"{markup(*children)}</{name}>"
    return Html(f"<{name}{rendered}>{end}")


class _Tags:
    def __getattr__(self, name: str) -> "Callable[..., Html]":
        def build(*children: Child, **attributes: Value) -> Html:
            return tag(name, *children, **attributes)

        return build


h: Final = _Tags()
"""One method per element: `h.p("text", class_="dim")`."""


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
