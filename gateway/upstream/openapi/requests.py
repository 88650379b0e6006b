"""Builds the HTTP request of a call: path, query, headers, cookies and body from the arguments.

The arguments already conform to the tool's input schema. Raises `Fault(INVALID_INPUT)` for values that a request cannot
carry safely.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote, unquote

import httpx
import msgspec

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.upstream.http.request import encode_headers
from gateway.upstream.openapi.operation import BODY, Operation, Parameter, PropertyEncoding, RequestBody

MAX_DEPTH: Final = 16
"""Maximum nesting of a value that is sent as `a[b][c]=…`."""
_UNRESERVED: Final = ""
_RESERVED_KEPT: Final = ":/?@!$'()*,;[]"
"""Kept with `allowReserved`. Not & = # + %, which would add parameters or change the meaning of others."""
_DELIMITERS: Final = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_TEMPLATE: Final = re.compile(r"\{([^{}/]+)\}")
_encode: Final = msgspec.json.Encoder().encode


class ApiRequest(NamedTuple):
    """A request to an API, below its address."""

    method: str
    path: str
    """Path and query."""
    headers: bytes
    body: bytes | None


def build_request(operation: Operation, arguments: Json) -> ApiRequest:
    """Build the request of a call."""
    given = [
        (each, arguments[each.argument])
        for each in operation.parameters
        if each.argument in arguments and arguments[each.argument] is not None
    ]
    path = _build_path(operation, [pair for pair in given if pair[0].location == "path"])
    query: list[str] = []
    headers: list[tuple[str, str]] = [("accept", operation.accept)]
    cookies: list[str] = []
    for parameter, value in given:
        if parameter.location == "query":
            query += _query_pairs(parameter, value, operation.reserved_query)
        elif parameter.location == "header":
            headers.append((parameter.name.lower(), _header_value(parameter, value)))
        elif parameter.location == "cookie":
            cookies += _cookie_pairs(parameter, value)
    if cookies:
        headers.append(("cookie", "; ".join(cookies)))
    body: bytes | None = None
    if operation.body is not None and BODY in arguments:
        media_type, body = _build_body(operation.body, arguments[BODY])
        headers.append(("content-type", media_type))
    elif operation.method in ("POST", "PUT", "PATCH"):
        body = b""  # such a request without a length is refused by many servers
    return ApiRequest(operation.method, f"{path}?{'&'.join(query)}" if query else path, encode_headers(headers), body)


# ---- path ----


def _build_path(operation: Operation, given: list[tuple[Parameter, Any]]) -> str:
    values = {parameter.name: _path_text(parameter, value) for parameter, value in given}

    def fill(found: re.Match[str]) -> str:
        name = unquote(found[1])
        if name not in values:
            raise _invalid(name, "is required")
        return values[name]

    path = _TEMPLATE.sub(fill, operation.path)
    for segment in path.split("/"):
        if unquote(segment) in (".", ".."):
            raise _invalid("path", "contains a dot segment")
    return path


def _path_text(parameter: Parameter, value: Any) -> str:
    for text in _texts(value):
        _check_path_value(parameter, text)
    name, style, explode = quote(parameter.name, safe=""), parameter.style, parameter.explode
    if parameter.as_json:
        return _quoted(_encode(value).decode())
    if isinstance(value, list):
        items = [_quoted(_text(item)) for item in cast("list[Any]", value)]
    elif isinstance(value, dict):
        members = [(_quoted(key), _quoted(_text(item))) for key, item in cast("Json", value).items()]
        if explode and style == "matrix":
            return "".join(f";{key}={item}" for key, item in members)
        items = [f"{key}={item}" if explode else f"{key},{item}" for key, item in members]
    else:
        items = [_quoted(_text(value))]
    match style:
        case "label":
            return "." + ("." if explode else ",").join(items)
        case "matrix" if explode:
            return "".join(f";{name}={item}" for item in items)
        case "matrix":
            return f";{name}={','.join(items)}"
        case _:
            return ",".join(items)


def _check_path_value(parameter: Parameter, text: str) -> None:
    """Refuse values that leave the path: an empty one names the collection, and servers may decode %2F and %2E."""
    if not text:
        raise _invalid(parameter.argument, "must not be empty, because it is part of the path")
    decoded = unquote(unquote(text))
    if any(segment in (".", "..") for each in (text, decoded) for segment in re.split(r"[/\\]", each)):
        raise _invalid(parameter.argument, "contains a dot segment, which is not allowed in a path")
    if "\x00" in decoded:
        raise _invalid(parameter.argument, "contains a null character")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        yield from map(_text, cast("list[Any]", value))
    elif isinstance(value, dict):
        for key, item in cast("Json", value).items():
            yield key
            yield _text(item)
    else:
        yield _text(value)


# ---- query, headers, cookies ----


def _query_pairs(parameter: Parameter, value: Any, reserved: frozenset[str]) -> list[str]:
    safe = _RESERVED_KEPT if parameter.allow_reserved else _UNRESERVED
    if parameter.as_json:
        return [f"{_quoted(parameter.name)}={_quoted(_encode(value).decode())}"]
    if isinstance(value, dict) and parameter.style == "form" and parameter.explode:
        for key in cast("Json", value):
            # Such keys become parameters of their own.
            if key in reserved or key.lower() in reserved:
                raise _invalid(parameter.argument, f"must not contain the key {key[:60]!r}")
    return list(_form_pairs(parameter.name, value, parameter.style, explode=parameter.explode, safe=safe))


def _form_pairs(name: str, value: Any, style: str, *, explode: bool, safe: str) -> Iterator[str]:
    """The `name=value` pairs of one value, encoded."""
    key = _quoted(name)
    if style == "deepObject":
        yield from (f"{_quoted(each)}={quote(text, safe=safe)}" for each, text in _deep(name, value, 0))
    elif isinstance(value, list):
        items = [quote(_text(item), safe=safe) for item in cast("list[Any]", value)]
        if explode:
            yield from (f"{key}={item}" for item in items)
        elif items:
            yield f"{key}={_DELIMITERS[style].join(items)}"
    elif isinstance(value, dict):
        members = [(_quoted(each), quote(_text(item), safe=safe)) for each, item in cast("Json", value).items()]
        if explode:
            yield from (f"{each}={item}" for each, item in members)
        elif members:
            yield f"{key}={_DELIMITERS[style].join(part for pair in members for part in pair)}"
    else:
        yield f"{key}={quote(_text(value), safe=safe)}"


def _deep(name: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if depth > MAX_DEPTH:
        raise _invalid(name.partition("[")[0], f"is nested over {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        for key, item in cast("Json", value).items():
            yield from _deep(f"{name}[{key}]", item, depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _deep(f"{name}[{index}]", item, depth + 1)
    else:
        yield name, _text(value)


def _header_value(parameter: Parameter, value: Any) -> str:
    if parameter.as_json:
        text = _encode(value).decode()
    elif isinstance(value, list):
        text = ",".join(_text(item) for item in cast("list[Any]", value))
    elif isinstance(value, dict):
        joiner = "=" if parameter.explode else ","
        text = ",".join(f"{key}{joiner}{_text(item)}" for key, item in cast("Json", value).items())
    else:
        text = _text(value)
    if not _HEADER_VALUE.fullmatch(text):
        raise _invalid(parameter.argument, "is sent as a header, which allows printable ASCII only")
    return text.strip()


def _cookie_pairs(parameter: Parameter, value: Any) -> Iterable[str]:
    if parameter.as_json:
        value = _encode(value).decode()
    pairs = _form_pairs(parameter.name, value, "form", explode=parameter.explode, safe="")
    return [pair.replace(",", "%2C") if not isinstance(value, list) else pair for pair in pairs]


# ---- body ----


def _build_body(body: RequestBody, value: Any) -> tuple[str, bytes]:
    match body.kind:
        case "json":
            return body.media_type, _encode(value)
        case "text":
            return body.media_type, _text(value).encode()
        case "binary":
            _, content, media_type = read_upload(BODY, value)
            return media_type or body.media_type, content
        case "form":
            pairs = [
                pair
                for name, item in cast("Json", value).items()
                if item is not None
                for pair in _form_property(name, item, body.encodings.get(name, PropertyEncoding()))
            ]
            return body.media_type, "&".join(pairs).encode()
        case "multipart":
            return _build_multipart(body, cast("Json", value))


def _form_property(name: str, value: Any, encoding: PropertyEncoding) -> Iterator[str]:
    if encoding.style is None:
        if isinstance(value, dict):
            value = _encode(value).decode()
        return _form_pairs(name, value, "form", explode=True, safe="")
    return _form_pairs(name, value, encoding.style, explode=encoding.explode, safe="")


def _build_multipart(body: RequestBody, value: Json) -> tuple[str, bytes]:
    """Encode with httpx, which escapes names and file names."""
    parts: list[tuple[str, tuple[str | None, bytes, str | None]]] = []
    for name, item in value.items():
        media_type = body.encodings.get(name, PropertyEncoding()).media_type
        for each in cast("list[Any]", item) if isinstance(item, list) else [item]:
            if is_upload(each):
                file_name, content, given = read_upload(f"{BODY}.{name}", each)
                parts.append((name, (file_name or name, content, given or media_type or "application/octet-stream")))
            elif isinstance(each, dict | list):
                parts.append((name, (None, _encode(cast("Any", each)), media_type or "application/json")))
            else:
                parts.append((name, (None, _text(each).encode(), media_type)))
    if not parts:
        raise _invalid(BODY, "has no parts")
    request = httpx.Request("POST", "http://multipart.invalid", files=parts)
    return request.headers["content-type"], request.read()


def is_upload(value: Any) -> bool:
    """Whether a value is a file, as `schemas.UPLOAD` describes it."""
    if not isinstance(value, dict):
        return False
    keys = set(cast("Json", value))
    return len(keys & {"blob", "text"}) == 1 and keys <= {"blob", "text", "mimeType", "name"}


def read_upload(place: str, value: Any) -> tuple[str | None, bytes, str | None]:
    """The name, content and media type of a file."""
    upload = cast("Json", value)
    media_type: Any = upload.get("mimeType")
    if isinstance(media_type, str) and not re.fullmatch(r"[\x21-\x7e][\x20-\x7e]{0,99}", media_type):
        raise _invalid(f"{place}.mimeType", "is not a media type")
    if isinstance(text := upload.get("text"), str):
        return upload.get("name"), text.encode(), media_type
    try:
        return upload.get("name"), base64.b64decode(str(upload["blob"]), validate=True), media_type
    except (binascii.Error, ValueError) as exc:
        raise _invalid(f"{place}.blob", "is not base64") from exc


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else _encode(value).decode()


def _quoted(text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as exc:
        raise Fault(Kind.INVALID_INPUT, "input: contains text that is not valid Unicode.") from exc


def _invalid(place: str, problem: str) -> Fault:
    details = {"validation_path": f"input.{place}", "validation_rule": "request"}
    return Fault(Kind.INVALID_INPUT, f"input.{place}: {problem}.", details=details)
