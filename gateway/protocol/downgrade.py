"""Converts results of the newest protocol revision for clients of earlier ones. `LegacyEra` uses it."""

from typing import Any, Final, cast

from gateway.catalogue.view import SERVER_INFO
from gateway.contract import Json

_AUDIO_SINCE: Final = "2025-03-26"
_STRUCTURE_SINCE: Final = "2025-06-18"


def downgrade(result: Json, version: str, correlation_id: str) -> Json:
    """Return a copy of the result without the members and content types that `version` does not define."""
    copy = dict(result)
    for key in ("resultType", "ttlMs", "cacheScope"):
        copy.pop(key, None)
    meta: Json = {**(copy.get("_meta") or {}), "correlation_id": correlation_id}
    meta.pop(SERVER_INFO, None)  # Clients of these revisions get the server info from `initialize`.
    copy["_meta"] = meta
    structured = copy.get("structuredContent")
    if structured is not None and (version < _STRUCTURE_SINCE or not isinstance(structured, dict)):
        # The text content has the same data.
        del copy["structuredContent"]
    content = copy.get("content")
    if version < _STRUCTURE_SINCE and isinstance(content, list):
        copy["content"] = [_block(block, version) for block in cast("list[Any]", content)]
    messages = copy.get("messages")
    if version < _STRUCTURE_SINCE and isinstance(messages, list):
        copy["messages"] = [_message(message, version) for message in cast("list[Any]", messages)]
    return copy


def _message(message: Any, version: str) -> Any:
    """Convert one message of a prompt."""
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
