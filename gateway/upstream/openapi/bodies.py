"""Reads the request body of an operation: chooses one media type, and prepares the schema of the argument `body`."""

from typing import Any, Final, cast

from gateway.contract import Json
from gateway.upstream.openapi.document import Document, DocumentError
from gateway.upstream.openapi.operation import BodyKind, PropertyEncoding, RequestBody
from gateway.upstream.openapi.schemas import UPLOAD

_PREFERRED: Final = ("application/json", "*/*", "application/merge-patch+json")
"""Tried first. A document that accepts anything is sent JSON; of several patch formats, the one like the object."""

_ORDER: Final[tuple[BodyKind, ...]] = ("json", "form", "multipart", "text", "binary")


def choose_media_type(content: Json) -> tuple[str, BodyKind] | None:
    """The media type to use and its kind; None if there is none."""
    for preferred in _PREFERRED:
        for media_type in content:
            if _bare(media_type) == preferred:
                return media_type, "json"
    kinds: list[tuple[str, BodyKind]] = [(media_type, _kind_of(_bare(media_type))) for media_type in content]
    return min(kinds, key=lambda found: _ORDER.index(found[1]), default=None)


def read_request_body(document: Document, operation: Json) -> tuple[RequestBody | None, Any, bool]:
    """The body, the schema of its argument, and whether it is required. Raises `DocumentError`."""
    if operation.get("requestBody") is None:
        return None, None, False
    definition = document.resolve(operation["requestBody"])
    content = document.members(definition, "content")
    chosen = choose_media_type(content)
    if chosen is None:
        return None, None, False
    media_type, kind = chosen
    value = document.members(content, media_type)
    schema = document.members(value, "schema")
    is_required = definition.get("required") is True
    sent = "application/json" if _bare(media_type) == "*/*" else media_type
    if not sent.isascii() or not sent.isprintable() or len(sent) > 100:
        raise DocumentError("the media type of its body is not valid")
    match kind:
        case "json":
            return RequestBody(kind=kind, media_type=sent), schema, is_required
        case "text":
            return RequestBody(kind=kind, media_type=sent), {"type": "string"}, is_required
        case "binary":
            sent = sent if "*" not in sent else "application/octet-stream"
            return RequestBody(kind=kind, media_type=sent), UPLOAD, is_required
        case "form" | "multipart":
            schema = _form_schema(document, schema, kind)
            body = RequestBody(kind=kind, media_type=sent, encodings=_encodings(document, value, schema))
            return body, schema, is_required


def _form_schema(document: Document, schema: Json, kind: BodyKind) -> Json:
    """The schema with its properties in place. In a multipart body, files are replaced by `UPLOAD`."""
    form = dict(document.resolve(schema))
    properties: Json = {}
    required: list[Any] = []
    for part in (*_parts(document, form), form):
        properties |= document.members(part, "properties")
        listed: Any = part.get("required")
        required += cast("list[Any]", listed) if isinstance(listed, list) else []
    if kind == "multipart":
        properties = {name: _upload_schema(document, sub) for name, sub in properties.items()}
    result: Json = {"type": "object", "properties": properties}
    if isinstance(text := form.get("description"), str):
        result["description"] = text
    return result | ({"required": required} if required else {})


def _parts(document: Document, form: Json) -> list[Json]:
    parts: Any = form.get("allOf")
    return [document.resolve(part) for part in cast("list[Any]", parts)[:32]] if isinstance(parts, list) else []


def _upload_schema(document: Document, value: Any) -> Any:
    schema = document.resolve(value)
    if _is_file(schema):
        return UPLOAD
    items = document.members(schema, "items") if schema.get("type") == "array" else {}
    return {"type": "array", "items": UPLOAD} if items and _is_file(document.resolve(items)) else value


def _is_file(schema: Json) -> bool:
    """A file in OpenAPI 3.0 (`format: binary`) or 3.1 (`contentMediaType`, without an encoding of its own)."""
    if schema.get("type", "string") != "string":
        return False
    return schema.get("format") == "binary" or ("contentMediaType" in schema and "contentEncoding" not in schema)


def _encodings(document: Document, value: Json, schema: Json) -> dict[str, PropertyEncoding]:
    given = document.members(value, "encoding")
    found: dict[str, PropertyEncoding] = {}
    for name in document.members(schema, "properties"):
        encoding = document.members(given, name)
        style, explode = encoding.get("style"), encoding.get("explode")
        media_type = encoding.get("contentType")
        found[name] = PropertyEncoding(
            style=style if style in ("form", "spaceDelimited", "pipeDelimited", "deepObject") else None,
            explode=explode if isinstance(explode, bool) else True,
            media_type=_first_type(media_type),
        )
    return found


def _first_type(value: Any) -> str | None:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        return None
    first = value.partition(",")[0].strip()
    return first if "*" not in first and len(first) <= 100 else None


def _bare(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def _kind_of(bare: str) -> BodyKind:
    if bare == "application/json" or bare.endswith("+json"):
        return "json"
    if bare == "application/x-www-form-urlencoded":
        return "form"
    if bare == "multipart/form-data":
        return "multipart"
    if bare.startswith("text/") or bare in ("application/xml", "application/yaml") or bare.endswith(("+xml", "+yaml")):
        return "text"
    return "binary"
