"""Validates the items that a backend lists. Each item is checked separately: a bad one does not affect the others."""

import re
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import urlsplit

from mcp.shared.inbound import find_invalid_x_mcp_header

from gateway.catalogue.schema import InvalidSchema, compile_check, encode_bounded
from gateway.catalogue.text_safety import find_hidden_character, iter_strings
from gateway.contract import Json

MAX_ITEMS: Final = 5_000
MAX_NAME: Final = 128
MAX_URI: Final = 2 * 1024
MAX_DEFINITION: Final = 128 * 1024
MAX_DESCRIPTION: Final = 4 * 1024
MAX_TRUSTED_DESCRIPTION: Final = 16 * 1024

ValidatedItems = tuple[list[Json], dict[str, str]]
"""The valid items, and the reason by name or URI for each rejected one. A repeated name appears as `name#index`."""

_BLANK: Final = re.compile(r"[\x00-\x20\x7f-\x9f]")


class _InvalidItem(ValueError):
    """An item that is not served; the message is the reason."""


def validate_tools(raw: list[Any], *, trusted: bool) -> ValidatedItems:
    """Check names, texts and schemas of tools. A trusted tool may omit its input schema."""
    return _validate(raw, "name", _check_tool, trusted)


def validate_prompts(raw: list[Any], *, trusted: bool) -> ValidatedItems:
    return _validate(raw, "name", _check_prompt, trusted)


def validate_resources(raw: list[Any], *, trusted: bool) -> ValidatedItems:
    return _validate(raw, "uri", _check_resource, trusted)


def validate_templates(raw: list[Any], *, trusted: bool) -> ValidatedItems:
    return _validate(raw, "uriTemplate", _check_template, trusted)


def _validate(raw: list[Any], key: str, check: Callable[[Json, bool], Json], trusted: bool) -> ValidatedItems:
    valid: list[Json] = []
    rejected: dict[str, str] = {}
    seen: set[str] = set()
    for index, item in enumerate(raw[:MAX_ITEMS]):
        label = f"#{index}"
        try:
            encode_bounded(item, limit=MAX_DEFINITION, label="the definition")
            name = _check_identity(item, key)
            label = f"{name}#{index}" if name in seen else name
            if name in seen:
                raise _InvalidItem("duplicate name; only the first is served")
            # Recorded before the check, so that a second definition never replaces an invalid first one.
            seen.add(name)
            _check_texts(item, MAX_TRUSTED_DESCRIPTION if trusted else MAX_DESCRIPTION)
            valid.append(check(item, trusted))
        except (_InvalidItem, InvalidSchema) as exc:
            rejected[label] = str(exc)
    if len(raw) > MAX_ITEMS:
        rejected[f"#{MAX_ITEMS}"] = f"{len(raw)} items are listed; only the first {MAX_ITEMS} are served"
    return valid, rejected


def _check_identity(item: Json, key: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise _InvalidItem(f"{key} is not a string")
    if key == "name":
        if not 1 <= len(value) <= MAX_NAME or not value.isprintable():
            raise _InvalidItem(f"name is not 1 to {MAX_NAME} printable characters")
    elif not value or len(value.encode()) > MAX_URI or _BLANK.search(value) or find_hidden_character(value):
        raise _InvalidItem(f"{key} is not 1 to {MAX_URI} bytes without blanks and hidden characters")
    return value


def _check_texts(item: Json, limit: int) -> None:
    """Check all strings except those in `_meta`. Keys and schemas are included because a model reads them."""
    visible = {key: value for key, value in item.items() if key != "_meta"}
    for place, text in iter_strings(visible, "the definition"):
        if place in ("description", "title") and len(text.encode()) > limit:
            raise _InvalidItem(f"{place} is over {limit} bytes")
        if (found := find_hidden_character(text)) is not None:
            raise _InvalidItem(f"{place[:40]} contains the hidden character {found}")
    for key in ("description", "title"):
        if not isinstance(item.get(key), str | None):
            raise _InvalidItem(f"{key} is not a string")
    for key in ("annotations", "_meta"):
        if not isinstance(item.get(key), dict | None):
            raise _InvalidItem(f"{key} is not an object")


def _check_tool(item: Json, trusted: bool) -> Json:
    if trusted and "inputSchema" not in item:
        item = {**item, "inputSchema": {"type": "object"}}
    schema = item.get("inputSchema")
    encode_bounded(schema, label="inputSchema")
    schema = cast("Json", schema)
    if schema.get("type") != "object":
        raise _InvalidItem('inputSchema has no "type": "object" at its root')
    if (reason := find_invalid_x_mcp_header(schema)) is not None:
        raise _InvalidItem(f"inputSchema: {reason}"[:300])
    try:
        compile_check(schema)
    except InvalidSchema as exc:
        raise _InvalidItem(f"inputSchema: {exc}") from exc
    if item.get("outputSchema") is not None:
        encode_bounded(item["outputSchema"], label="outputSchema")
    return item


def _check_prompt(item: Json, trusted: bool) -> Json:
    arguments = item.get("arguments")
    if arguments is None:
        return item
    if not isinstance(arguments, list):
        raise _InvalidItem("arguments is not a list")
    for argument in cast("list[Any]", arguments):
        if not isinstance(argument, dict):
            raise _InvalidItem("an argument is not an object")
        _check_identity(cast("Json", argument), "name")
    return item


def _check_resource(item: Json, trusted: bool) -> Json:
    try:
        scheme = urlsplit(str(item["uri"])).scheme
    except ValueError as exc:
        raise _InvalidItem("uri cannot be parsed") from exc
    if not scheme:
        raise _InvalidItem("uri has no scheme")
    return item


def _check_template(item: Json, trusted: bool) -> Json:
    depth = 0
    for character in item["uriTemplate"]:
        depth += (character == "{") - (character == "}")
        if depth not in (0, 1):
            break
    if depth != 0:
        raise _InvalidItem("uriTemplate has unbalanced braces")
    return item
