"""The URIs clients see: a backend's own where it owns the prefix, else one that says whose it is.

`gatehouse://{namespace}/…` holds a URI percent-encoded whole, or a template as it is: a client expands a template by
putting values between its literal parts, so what comes back is the backend's own expansion behind our prefix. The two
cannot be confused, since an encoded URI has no reserved character.
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


def wrap(namespace: str, uri: str, owns: tuple[str, ...]) -> str:
    """The backend's URI as a client may see it; a prefix in `owns` keeps it, save for ours and `ui://`."""
    return _wrapped(namespace, uri, quote(uri, safe="", errors="replace"), owns)


def wrap_template(namespace: str, template: str, owns: tuple[str, ...]) -> str:
    """The same for a URI template: `unwrap` of its expansion is the expansion of `template`."""
    return _wrapped(namespace, template, template, owns)


def _wrapped(namespace: str, uri: str, inner: str, owns: tuple[str, ...]) -> str:
    if uri.startswith(_UI):
        return f"{_UI}{namespace}/{uri.removeprefix(_UI)}"
    if uri.startswith(owns) and not uri.startswith(_SCHEME):
        return uri
    return f"{_SCHEME}{namespace}/{inner}"


def unwrap(uri: str) -> tuple[str, str] | None:
    """(namespace, the backend's own URI or template); None when the URI does not say whose it is."""
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
    """The result of `tools/call`, `resources/read` or `prompts/get` with its URIs wrapped; itself when it has none."""
    if _only_text(result):
        return result
    changed: Json = {}
    for member, rewrite in _LINKED.items():
        items = result.get(member)
        if isinstance(items, list):
            before = cast("list[Any]", items)
            after = _each(before, rewrite, wrap)
            if after is not before:
                changed[member] = after
    return {**result, **changed} if changed else result


def _only_text(result: Json) -> bool:
    """The common result of a tool: nothing in it can be a link."""
    content = result.get("content")
    if not isinstance(content, list):
        return False
    for block in cast("list[Any]", content):
        if not isinstance(block, dict) or cast("Json", block).get("type") != "text":
            return False
    return "contents" not in result and "messages" not in result


def rewrite_meta(definition: Json, wrap: Wrap) -> Json:
    """A tool's definition with the `ui://` resource that its `_meta` names wrapped; itself when it names none."""
    meta = definition.get("_meta")
    if not isinstance(meta, dict):
        return definition
    before = cast("Json", meta)
    after = _uri_of(before, wrap, "ui/resourceUri")
    ui = _inner(before, "ui", lambda ui: _uri_of(ui, wrap, "resourceUri"))
    if ui is not before:
        after = {**after, "ui": ui["ui"]}
    return definition if after is before else {**definition, "_meta": after}


def _block(block: Json, wrap: Wrap) -> Json:
    match block.get("type"):
        case "resource_link":
            return _uri_of(block, wrap)
        case "resource":
            return _inner(block, "resource", lambda resource: _uri_of(resource, wrap))
        case _:
            return block


def _message(message: Json, wrap: Wrap) -> Json:
    content = message.get("content")
    if not isinstance(content, list):
        return _inner(message, "content", lambda block: _block(block, wrap))
    before = cast("list[Any]", content)
    after = _each(before, _block, wrap)
    return message if after is before else {**message, "content": after}


def _uri_of(holder: Json, wrap: Wrap, member: str = "uri") -> Json:
    uri = holder.get(member)
    return {**holder, member: wrap(uri)} if isinstance(uri, str) else holder


def _inner(holder: Json, member: str, rewrite: Callable[[Json], Json]) -> Json:
    before = holder.get(member)
    if not isinstance(before, dict):
        return holder
    after = rewrite(cast("Json", before))
    return holder if after is before else {**holder, member: after}


def _each(items: list[Any], rewrite: Callable[[Json, Wrap], Json], wrap: Wrap) -> list[Any]:
    rewritten = [rewrite(cast("Json", item), wrap) if isinstance(item, dict) else item for item in items]
    return items if all(new is old for new, old in zip(rewritten, items, strict=True)) else rewritten


_LINKED: Final[dict[str, Callable[[Json, Wrap], Json]]] = {
    "content": _block,
    "contents": _uri_of,
    "messages": _message,
}
