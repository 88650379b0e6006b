"""Small OpenAPI documents for the tests of this package."""

from typing import Any

from gateway.upstream.openapi.document import Document
from gateway.upstream.openapi.operation import Operation
from gateway.upstream.openapi.operations import Api, OperationFilter, read_api

Json = dict[str, Any]


def document(paths: Json, *, version: str = "3.1.0", **components: Json) -> Document:
    root: Json = {"openapi": version, "info": {"title": "T", "version": "1"}, "paths": paths}
    return Document(root | ({"components": components} if components else {}))


def read(paths: Json, *, version: str = "3.1.0", fixed: tuple[str, ...] = (), **components: Json) -> Api:
    return read_api(document(paths, version=version, **components), OperationFilter(), OperationFilter(), fixed)


def operation(path: str = "/x", method: str = "get", **definition: Any) -> tuple[Json, Operation]:
    """The tool and the operation of a document with one operation."""
    api = read({path: {method: {"operationId": "op", **definition}}})
    assert not api.problems, api.problems
    return api.tools[0], api.operations["op"]


def parameter(location: str, schema: Json, **more: Any) -> Json:
    return {"in": location, "name": "p", "required": location == "path", "schema": schema, **more}
