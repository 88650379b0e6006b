"""Request headers as text."""

from typing import Final

from mcp.shared.inbound import find_duplicated_routing_header

RawHeaders = list[tuple[bytes, bytes]]

_NAMES_KEPT: Final = 512


class _Names(dict[bytes, str]):
    """Decoded names, as far as they are worth remembering."""

    def __missing__(self, key: bytes) -> str:
        name = key.decode("latin-1").lower()
        if len(self) < _NAMES_KEPT:
            self[key] = name
        return name


_names: Final = _Names()


def fold(raw: RawHeaders) -> dict[str, str]:
    """Lower-case names and stripped values; the values of a repeated name are joined by a comma.

    Joined, two Authorization headers, or two of any other single value, are an ill-formed one.
    """
    folded = {_names[key]: value.decode("latin-1").strip(" \t") for key, value in raw}
    return folded if len(folded) == len(raw) else _join(raw)


def _join(raw: RawHeaders) -> dict[str, str]:
    values: dict[str, list[str]] = {}
    for key, value in raw:
        values.setdefault(_names[key], []).append(value.decode("latin-1").strip(" \t"))
    return {name: ", ".join(given) for name, given in values.items()}


def repeated_routing_header(raw: RawHeaders, folded: dict[str, str]) -> str | None:
    """The name of an MCP routing header that was sent twice: readers of the first and of the last would disagree."""
    if len(folded) == len(raw):
        return None
    return find_duplicated_routing_header([(_names[key], "") for key, _ in raw])
