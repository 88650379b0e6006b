"""URIs as clients see them: unchanged if the backend owns the prefix, else wrapped with the backend's namespace.

`gatehouse://{namespace}/…` contains a percent-encoded URI or an unchanged template. A client expands a template by
inserting values between its literal parts, so the expansion of a wrapped template is our prefix and the backend's own
expansion. The two forms are distinct because an encoded URI contains no reserved character.
"""

import re
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from gateway.catalogue.names import NAMESPACE
from gateway.contract import Json

Wrap = Callable[[str], str]

_SCHEME: Final = "gatehouse://"
_UI: Final = "ui://"


def wrap(namespace: str, uri: str, uri_prefixes: tuple[str, ...]) -> str:
    """The backend's URI as clients see it. Unchanged if it starts with one of `uri_prefixes`, except ours and `ui://`."""
    return _add_namespace(namespace, uri, quote(uri, safe="", errors="replace"), uri_prefixes)


def wrap_template(namespace: str, template: str, uri_prefixes: tuple[str, ...]) -> str:
    """`wrap` for a URI template: `unwrap` of its expansion is the expansion of `template`."""
    return _add_namespace(namespace, template, template, uri_prefixes)


def _add_namespace(namespace: str, uri: str, inner: str, uri_prefixes: tuple[str, ...]) -> str:
    if uri.startswith(_UI):
        return f"{_UI}{namespace}/{uri.removeprefix(_UI)}"
    if uri.startswith(uri_prefixes) and not uri.startswith(_SCHEME):
        return uri
    return f"{_SCHEME}{namespace}/{inner}"


def unwrap(uri: str) -> tuple[str, str] | None:
    """The namespace and the backend's own URI or template. None if the URI is not wrapped."""
    parts = _WRAPPED.fullmatch(uri)
    if parts is None:
        return None
    scheme, namespace, inner = parts.groups()
    if scheme == _UI:
        return namespace, _UI + inner
    if not _ENCODED.fullmatch(inner):
        return namespace, inner
    try:
        return namespace, unquote(inner, errors="strict")
    except UnicodeDecodeError:
        return None


_WRAPPED: Final = re.compile(rf"({_SCHEME}|{_UI})({NAMESPACE.pattern})/(.*)", re.DOTALL)
_ENCODED: Final = re.compile(r"[A-Za-z0-9_.~%-]*")


# ---- links inside results and definitions -------------------------------------------------------------------------


def rewrite_links(result: Json, wrap: Wrap) -> Json:
    """Wrap the URIs in a result of `tools/call`, `resources/read` or `prompts/get`. Returns `result` if it has none."""
    if _is_text_only(result):
        return result
    changed: Json = {}
    for member, rewrite in _REWRITERS.items():
        items = result.get(member)
        if isinstance(items, list):
            before = cast("list[Any]", items)
            after = _rewrite_items(before, rewrite, wrap)
            if after is not before:
                changed[member] = after
    return {**result, **changed} if changed else result


def _is_text_only(result: Json) -> bool:
    """Whether the result contains only text blocks, which cannot contain links. This is the common case."""
    content = result.get("content")
    if not isinstance(content, list):
        return False
    for block in cast("list[Any]", content):
        if not isinstance(block, dict) or cast("Json", block).get("type") != "text":
            return False
    return "contents" not in result and "messages" not in result


def rewrite_meta(definition: Json, wrap: Wrap) -> Json:
    """Wrap the `ui://` resource in the `_meta` of a tool definition. Returns `definition` if it has none."""
    meta = definition.get("_meta")
    if not isinstance(meta, dict):
        return definition
    before = cast("Json", meta)
    after = _wrap_member(before, wrap, "ui/resourceUri")
    ui = _rewrite_member(before, "ui", lambda ui: _wrap_member(ui, wrap, "resourceUri"))
    if ui is not before:
        after = {**after, "ui": ui["ui"]}
    return definition if after is before else {**definition, "_meta": after}


def _rewrite_block(block: Json, wrap: Wrap) -> Json:
    match block.get("type"):
        case "resource_link":
            return _wrap_member(block, wrap)
        case "resource":
            return _rewrite_member(block, "resource", lambda resource: _wrap_member(resource, wrap))
        case _:
            return block


def _rewrite_message(message: Json, wrap: Wrap) -> Json:
    content = message.get("content")
    if not isinstance(content, list):
        return _rewrite_member(message, "content", lambda block: _rewrite_block(block, wrap))
    before = cast("list[Any]", content)
    after = _rewrite_items(before, _rewrite_block, wrap)
    return message if after is before else {**message, "content": after}


def _wrap_member(holder: Json, wrap: Wrap, member: str = "uri") -> Json:
    uri = holder.get(member)
    return {**holder, member: wrap(uri)} if isinstance(uri, str) else holder


def _rewrite_member(holder: Json, member: str, rewrite: Callable[[Json], Json]) -> Json:
    before = holder.get(member)
    if not isinstance(before, dict):
        return holder
    after = rewrite(cast("Json", before))
    return holder if after is before else {**holder, member: after}


def _rewrite_items(items: list[Any], rewrite: Callable[[Json, Wrap], Json], wrap: Wrap) -> list[Any]:
    rewritten = [rewrite(cast("Json", item), wrap) if isinstance(item, dict) else item for item in items]
    return items if all(new is old for new, old in zip(rewritten, items, strict=True)) else rewritten


_REWRITERS: Final[dict[str, Callable[[Json, Wrap], Json]]] = {
    "content": _rewrite_block,
    "contents": _wrap_member,
    "messages": _rewrite_message,
}
