"""What a backend lists, checked once and item by item: one bad item never breaks the list."""

import re
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import urlsplit

from mcp.shared.inbound import find_invalid_x_mcp_header

from gateway.catalogue.schema import InvalidSchema, bound, compile_check
from gateway.catalogue.text_safety import hidden_in, strings
from gateway.contract import Json

MAX_ITEMS: Final = 5_000
MAX_NAME: Final = 128
MAX_URI: Final = 2 * 1024
MAX_DEFINITION: Final = 128 * 1024
MAX_DESCRIPTION: Final = 4 * 1024
MAX_TRUSTED_DESCRIPTION: Final = 16 * 1024

Taken = tuple[list[Json], dict[str, str]]
"""What is served, and the name or URI of what is not -> why. A name listed again is given as `name#index`."""

_BLANK: Final = re.compile(r"[\x00-\x20\x7f-\x9f]")


class _Unfit(ValueError):
    """Why an item is not served."""


def take_tools(raw: list[Any], *, trusted: bool) -> Taken:
    """Tools whose name, texts and schemas are sound. A trusted one may leave out its input schema."""
    return _take(raw, "name", _tool, trusted)


def take_prompts(raw: list[Any], *, trusted: bool) -> Taken:
    return _take(raw, "name", _prompt, trusted)


def take_resources(raw: list[Any], *, trusted: bool) -> Taken:
    return _take(raw, "uri", _resource, trusted)


def take_templates(raw: list[Any], *, trusted: bool) -> Taken:
    return _take(raw, "uriTemplate", _template, trusted)


def _take(raw: list[Any], key: str, check: Callable[[Json, bool], Json], trusted: bool) -> Taken:
    good: list[Json] = []
    bad: dict[str, str] = {}
    seen: set[str] = set()
    for index, item in enumerate(raw[:MAX_ITEMS]):
        label = f"#{index}"
        try:
            bound(item, limit=MAX_DEFINITION, what="the definition")
            name = _identity(item, key)
            label = f"{name}#{index}" if name in seen else name
            if name in seen:
                raise _Unfit("listed before; the first is served")
            # Noted before it is checked: a second definition never stands in for a bad first one.
            seen.add(name)
            _texts(item, MAX_TRUSTED_DESCRIPTION if trusted else MAX_DESCRIPTION)
            good.append(check(item, trusted))
        except (_Unfit, InvalidSchema) as exc:
            bad[label] = str(exc)
    if len(raw) > MAX_ITEMS:
        bad[f"#{MAX_ITEMS}"] = f"{len(raw)} are listed; only the first {MAX_ITEMS} are looked at"
    return good, bad


def _identity(item: Json, key: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise _Unfit(f"{key} is not a string")
    if key == "name":
        if not 1 <= len(value) <= MAX_NAME or not value.isprintable():
            raise _Unfit(f"name is not 1 to {MAX_NAME} printable characters")
    elif not value or len(value.encode()) > MAX_URI or _BLANK.search(value) or hidden_in(value):
        raise _Unfit(f"{key} is not 1 to {MAX_URI} bytes free of blanks and hidden characters")
    return value


def _texts(item: Json, limit: int) -> None:
    """Every string but those of `_meta`, keys as well: a model reads the schemas too."""
    read = {key: value for key, value in item.items() if key != "_meta"}
    for place, text in strings(read, "the definition"):
        if place in ("description", "title") and len(text.encode()) > limit:
            raise _Unfit(f"{place} is over {limit} bytes")
        if (found := hidden_in(text)) is not None:
            raise _Unfit(f"{place[:40]} holds the hidden character {found}")
    for key in ("description", "title"):
        if not isinstance(item.get(key), str | None):
            raise _Unfit(f"{key} is not a string")
    for key in ("annotations", "_meta"):
        if not isinstance(item.get(key), dict | None):
            raise _Unfit(f"{key} is not an object")


def _tool(item: Json, trusted: bool) -> Json:
    if trusted and "inputSchema" not in item:
        item = {**item, "inputSchema": {"type": "object"}}
    schema = item.get("inputSchema")
    bound(schema, what="inputSchema")
    schema = cast("Json", schema)
    if schema.get("type") != "object":
        raise _Unfit('inputSchema has no "type": "object" at its root')
    if (reason := find_invalid_x_mcp_header(schema)) is not None:
        raise _Unfit(f"inputSchema: {reason}"[:300])
    try:
        compile_check(schema)
    except InvalidSchema as exc:
        raise _Unfit(f"inputSchema: {exc}") from exc
    if item.get("outputSchema") is not None:
        bound(item["outputSchema"], what="outputSchema")
    return item


def _prompt(item: Json, trusted: bool) -> Json:
    arguments = item.get("arguments")
    if arguments is None:
        return item
    if not isinstance(arguments, list):
        raise _Unfit("arguments is not a list")
    for argument in cast("list[Any]", arguments):
        if not isinstance(argument, dict):
            raise _Unfit("an argument is not an object")
        _identity(cast("Json", argument), "name")
    return item


def _resource(item: Json, trusted: bool) -> Json:
    try:
        scheme = urlsplit(str(item["uri"])).scheme
    except ValueError as exc:
        raise _Unfit("uri cannot be parsed") from exc
    if not scheme:
        raise _Unfit("uri has no scheme")
    return item


def _template(item: Json, trusted: bool) -> Json:
    depth = 0
    for character in item["uriTemplate"]:
        depth += (character == "{") - (character == "}")
        if depth not in (0, 1):
            break
    if depth != 0:
        raise _Unfit("uriTemplate has braces that do not match")
    return item
