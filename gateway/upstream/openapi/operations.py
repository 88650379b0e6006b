"""Turns the operations of a document into tools: names, filters, definitions, and the `Operation` behind each.

An operation that cannot be served is left out with a reason; it does not affect the others.
"""

import re
from base64 import b32encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Final, cast
from urllib.parse import quote

import msgspec

from gateway.contract import Json
from gateway.upstream.openapi.bodies import choose_media_type, read_request_body
from gateway.upstream.openapi.document import Document, DocumentError
from gateway.upstream.openapi.operation import ANNOTATIONS, BODY, DIGEST_KEYWORD, EFFECTS, Operation, RequestBody
from gateway.upstream.openapi.parameters import OperationParameters, read_parameters
from gateway.upstream.openapi.schemas import convert_bounded, shorten

MAX_OPERATIONS: Final = 2_000
MAX_TOOL_NAME: Final = 64
_MAX_DESCRIPTION: Final = 1_000
_MAX_TITLE: Final = 120
_MAX_PATH: Final = 1_024
_DIGEST_CHARS: Final = 6
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_PATH: Final = re.compile(r"/[!-~]*")
_LITERAL_SAFE: Final = "/%:@!$&'()*+,;=~{}"

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class OperationFilter:
    """Patterns of tags, paths and operations; an operation is matched by any of them."""

    tags: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    """Over operation ids, and over `GET /path`."""

    def __bool__(self) -> bool:
        return bool(self.tags or self.paths or self.operations)

    def matches(self, found: "_Found") -> bool:
        ids = (found.operation_id, f"{found.method.upper()} {found.path}")
        return (
            any(fnmatchcase(tag, pattern) for pattern in self.tags for tag in found.tags)
            or any(fnmatchcase(found.path, pattern) for pattern in self.paths)
            or any(fnmatchcase(each, pattern) for pattern in self.operations for each in ids)
        )


@dataclass(frozen=True, slots=True)
class Api:
    """The tools of a document."""

    tools: tuple[Json, ...]
    operations: Mapping[str, Operation]
    """By name of the tool."""
    problems: Mapping[str, str]
    """Reason by operation, such as `GET /pets`, for those that are not served."""
    title: str = ""
    version: str = ""

    @property
    def effects(self) -> dict[str, int]:
        return {name: EFFECTS[operation.method.lower()] for name, operation in self.operations.items()}


@dataclass(frozen=True, slots=True)
class _Found:
    """One operation of the document, not yet read."""

    method: str
    path: str
    item: Json
    """The path item, with the parameters of all its operations."""
    definition: Json
    operation_id: str = ""
    tags: tuple[str, ...] = field(default=())


def read_api(
    document: Document, include: OperationFilter, exclude: OperationFilter, fixed_headers: Sequence[str]
) -> Api:
    """Read the selected operations. `fixed_headers` are set by the entry and so are no arguments.

    Raises `DocumentError` if the document has no operations, or too many are selected.
    """
    problems: dict[str, str] = {}
    every = list(_find_operations(document, problems))
    if not every and not problems:
        raise DocumentError("it has no operations under paths")
    selected = [each for each in every if (not include or include.matches(each)) and not exclude.matches(each)]
    if not selected:
        raise DocumentError(f"include and exclude select none of its {len(every)} operations")
    if len(selected) > MAX_OPERATIONS:
        raise DocumentError(
            f"{len(selected)} operations are selected, and at most {MAX_OPERATIONS} are served:"
            " select fewer with include or exclude"
        )
    problems |= _unmatched("include", include, every) | _unmatched("exclude", exclude, every)
    secured = _security_parameters(document)
    tools: list[Json] = []
    operations: dict[str, Operation] = {}
    for found, name in zip(selected, _names(selected), strict=True):
        try:
            parameters = read_parameters(document, found.path, found.item, found.definition, secured, fixed_headers)
            tool, operation = _read_operation(document, found, name, parameters)
        except (DocumentError, RecursionError) as exc:
            problems[f"{found.method.upper()} {found.path}"[:200]] = str(exc) or "it is nested too deeply"
            continue
        tools.append(tool)
        operations[name] = operation
    info = document.members(document.root, "info")
    return Api(tuple(tools), operations, problems, str(info.get("title", ""))[:200], str(info.get("version", ""))[:80])


def _unmatched(setting: str, patterns: OperationFilter, every: Sequence["_Found"]) -> dict[str, str]:
    """A problem for each pattern that matches no operation."""
    single = [
        *((f"{setting}.tags {pattern!r}", OperationFilter(tags=(pattern,))) for pattern in patterns.tags),
        *((f"{setting}.paths {pattern!r}", OperationFilter(paths=(pattern,))) for pattern in patterns.paths),
        *(
            (f"{setting}.operations {pattern!r}", OperationFilter((), (), (pattern,)))
            for pattern in patterns.operations
        ),
    ]
    return {name: "it matches no operation" for name, each in single if not any(each.matches(found) for found in every)}


def _find_operations(document: Document, problems: dict[str, str]) -> Iterator[_Found]:
    for path, value in document.members(document.root, "paths").items():
        if not path.startswith("/"):
            continue  # an extension, `x-…`
        try:
            item = document.resolve(value)
        except DocumentError as exc:
            problems[path[:200]] = str(exc)
            continue
        for method in EFFECTS:
            if not isinstance(definition := item.get(method), dict):
                continue
            definition = cast("Json", definition)
            tags: Any = definition.get("tags")
            yield _Found(
                method,
                path,
                item,
                definition,
                operation_id if isinstance(operation_id := definition.get("operationId"), str) else "",
                tuple(map(str, cast("list[Any]", tags))) if isinstance(tags, list) else (),
            )


def _security_parameters(document: Document) -> frozenset[tuple[str, str]]:
    """Location and lower-case name of every API key, whether or not an operation requires it."""
    schemes = document.members(document.members(document.root, "components"), "securitySchemes")
    found: set[tuple[str, str]] = set()
    for value in schemes.values():
        try:
            scheme = document.resolve(value)
        except DocumentError:
            continue
        if scheme.get("type") == "apiKey":
            found.add((str(scheme.get("in")), str(scheme.get("name")).lower()))
    return frozenset(found)


# ---- names ----


def _names(selected: Sequence[_Found]) -> list[str]:
    """A name for each operation. It depends on other operations only if they claim the same name."""
    wanted = [_wanted_name(found) for found in selected]
    # Without case: catalogues reject names that look the same.
    claims = Counter(name.casefold() for name in wanted)
    return [
        _with_digest(name, found) if claims[name.casefold()] > 1 else name
        for name, found in zip(wanted, selected, strict=True)
    ]


def _wanted_name(found: _Found) -> str:
    name = _UNSAFE.sub("_", found.operation_id).strip("_-")
    if not name:
        name = re.sub(r"[^A-Za-z0-9-]+", "_", f"{found.method}_{found.path}").strip("_-")
        if not found.path.isascii():
            return _with_digest(name, found)
    return name if len(name) <= MAX_TOOL_NAME else _with_digest(name, found)


def _with_digest(name: str, found: _Found) -> str:
    digest = sha256(f"{found.method} {found.path}".encode(errors="surrogatepass")).digest()
    return f"{name[: MAX_TOOL_NAME - _DIGEST_CHARS - 1]}_{b32encode(digest)[:_DIGEST_CHARS].decode().lower()}"


# ---- one operation ----


def _read_operation(
    document: Document, found: _Found, name: str, parameters: OperationParameters
) -> tuple[Json, Operation]:
    path = _check_path(found.path)
    body, body_schema, body_required = read_request_body(document, found.definition)
    parts = dict(parameters.schemas)
    if body is not None:
        parts[BODY] = body_schema
    properties, definitions = convert_bounded(document, "request", parts)
    if body is not None:
        properties[BODY] = _body_schema(body, properties[BODY])
    accept, output = _read_output(document, found.definition)
    operation = Operation(
        name=name,
        method=found.method.upper(),
        path=path,
        parameters=parameters.parameters,
        body=body,
        accept=accept,
        reserved_query=parameters.reserved_query,
        output_schema=output,
    )
    required = [*parameters.required, *([BODY] if body is not None and body_required else [])]
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    if definitions:
        schema["$defs"] = definitions
    operation = replace(operation, digest=f"request {_mapping_digest(operation)}")
    schema[DIGEST_KEYWORD] = operation.digest
    return _tool(found, name, schema, output), operation


def _tool(found: _Found, name: str, schema: Json, output: Json | None) -> Json:
    tool: Json = {"name": name}
    summary, description = found.definition.get("summary"), found.definition.get("description")
    texts = [
        shorten(each, _MAX_DESCRIPTION) for each in (summary, description) if isinstance(each, str) and each.strip()
    ]
    if isinstance(summary, str) and summary.strip():
        tool["title"] = shorten(summary, _MAX_TITLE)
    if found.definition.get("deprecated") is True:
        texts.insert(0, "Deprecated.")
    texts.append(f"{found.method.upper()} {found.path}")
    tool["description"] = "\n".join(dict.fromkeys(texts))
    tool["inputSchema"] = schema
    if output is not None:
        tool["outputSchema"] = output
    tool["annotations"] = dict(ANNOTATIONS[found.method])
    return tool


def _body_schema(body: RequestBody, schema: Json) -> Json:
    """The schema of the body. Forms are closed: each property needs a known encoding."""
    if body.kind not in ("form", "multipart") or "properties" not in schema:
        return schema
    return {**schema, "type": "object", "additionalProperties": False}


def _mapping_digest(operation: Operation) -> str:
    mapping = replace(operation, output_schema=None, reserved_query=frozenset())
    return sha256(_encode(mapping)).hexdigest()[:16]


def _check_path(path: str) -> str:
    """The template, ready to send. Raises `DocumentError` for one that no request can have."""
    if len(path) > _MAX_PATH:
        raise DocumentError("its path is too long")
    encoded = quote(path, safe=_LITERAL_SAFE)
    if not _PATH.fullmatch(encoded) or "?" in path or "#" in path:
        raise DocumentError("its path contains a query, a fragment or characters that are not allowed in a path")
    if any(segment in (".", "..") for segment in path.split("/")) or "//" in path or "\\" in path:
        raise DocumentError("its path contains an empty segment, a dot segment or a backslash")
    return encoded


def _read_output(document: Document, definition: Json) -> tuple[str, Json | None]:
    """The Accept header, and the output schema if all documented successes return the same JSON."""
    types: dict[str, None] = {}
    schemas: list[Any] = []
    for status, value in document.members(definition, "responses").items():
        if not re.fullmatch(r"2(\d\d|XX)", status):
            continue
        content = document.members(document.resolve(value), "content")
        types |= dict.fromkeys(content)
        chosen = choose_media_type(content)
        is_json = chosen is not None and chosen[1] == "json"
        schemas.append(document.members(content, chosen[0]).get("schema") if chosen is not None and is_json else None)
    accept = ", ".join([*[each for each in types if _is_plain_type(each)][:8], "application/json;q=0.9", "*/*;q=0.1"])
    if not schemas or not all(isinstance(each, dict) for each in schemas):
        return accept, None
    # Compared after the conversion, which is bounded.
    variants = [convert_bounded(document, "response", {"result": each}) for each in _distinct(schemas)]
    if any(each != variants[0] for each in variants):
        return accept, None
    converted, definitions = variants[0]
    result = converted["result"]
    target = _follow(result, definitions)
    if _is_object(target):
        # An object is the structured content itself; clients require this type at the root.
        inline = {key: value for key, value in target.items() if key != "type"}
        output: Json = {"type": "object", **inline}
    else:
        output = {"type": "object", "properties": {"result": result}}
    return accept, output | ({"$defs": definitions} if definitions else {})


def _distinct(schemas: list[Json]) -> list[Json]:
    """The schemas without repetitions of the same reference."""
    return list({str(each.get("$ref") or id(each)): each for each in schemas}.values())


def _follow(schema: Json, definitions: Json) -> Json:
    for _ in range(8):
        if not isinstance(ref := schema.get("$ref"), str):
            break
        schema = cast("Json", definitions[ref.removeprefix("#/$defs/")])
    return schema


def _is_object(schema: Json) -> bool:
    types: Any = schema.get("type")
    return types == "object" or (isinstance(types, list) and "object" in types) or "properties" in schema


def _is_plain_type(media_type: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9!#$&^_.+*/-]{3,100}", media_type) is not None and "event-stream" not in media_type
