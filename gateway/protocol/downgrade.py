"""A result of the newest revision, as a client of an earlier one understands it."""

from typing import Any, Final, cast

from gateway.catalogue.view import SERVER_INFO
from gateway.contract import Json

_AUDIO_SINCE: Final = "2025-03-26"
_STRUCTURE_SINCE: Final = "2025-06-18"


def downgrade(result: Json, version: str, correlation_id: str) -> Json:
    """A copy without what the version does not know; nothing that it knows is lost."""
    shown = dict(result)
    for newer in ("resultType", "ttlMs", "cacheScope"):
        shown.pop(newer, None)
    meta: Json = {**(shown.get("_meta") or {}), "correlation_id": correlation_id}
    meta.pop(SERVER_INFO, None)  # the newest revision's stamp: who that is, an older client was told once
    shown["_meta"] = meta
    structured = shown.get("structuredContent")
    if structured is not None and (version < _STRUCTURE_SINCE or not isinstance(structured, dict)):
        # The text block beside it says the same.
        del shown["structuredContent"]
    content = shown.get("content")
    if version < _STRUCTURE_SINCE and isinstance(content, list):
        shown["content"] = [_block(block, version) for block in cast("list[Any]", content)]
    messages = shown.get("messages")
    if version < _STRUCTURE_SINCE and isinstance(messages, list):
        shown["messages"] = [_message(message, version) for message in cast("list[Any]", messages)]
    return shown


def _message(message: Any, version: str) -> Any:
    """One of a prompt."""
    if not isinstance(message, dict):
        return message
    known = cast("Json", message)
    return {**known, "content": _block(known["content"], version)} if "content" in known else known


def _block(block: Any, version: str) -> Any:
    if not isinstance(block, dict):
        return block
    block = cast("Json", block)
    kind = block.get("type")
    if kind == "resource_link":
        return _text(f"{block.get('name') or 'resource'}: {block.get('uri')}")
    if kind == "audio" and version < _AUDIO_SINCE:
        return _text(f"[audio, {block.get('mimeType')}: this protocol version cannot carry it]")
    return block


def _text(text: str) -> Json:
    return {"type": "text", "text": text}
