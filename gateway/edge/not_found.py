"""Responses of FastAPI's router to requests that no route serves: unknown paths, wrong methods, invalid parameters."""

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from gateway.edge.error_response import render_fault
from gateway.errors import Fault, Kind


def handle_unserved(app: FastAPI) -> None:
    """Install handlers for unknown paths, methods that are not allowed, and invalid parameters."""
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)


def not_found() -> Response:
    """Return the 404 response."""
    return _response(404, Fault(Kind.NOT_FOUND, "There is nothing at this path."))


async def _on_http_exception(_: Request, exc: Any) -> Response:
    match exc.status_code:
        case 404:
            return not_found()
        case 405:
            fault = Fault(Kind.INVALID_INPUT, "This method is not allowed here.", code="METHOD_NOT_ALLOWED")
            return _response(405, fault, exc.headers)
        case status:  # a malformed form
            return _response(status, Fault(Kind.INVALID_INPUT, "The request is malformed."), exc.headers)


async def _on_validation_error(_: Request, exc: Any) -> Response:
    # Name the parameter, never the value.
    first = exc.errors()[0]
    location = ".".join(str(part) for part in first["loc"])
    return _response(400, Fault(Kind.INVALID_INPUT, f"{location}: {first['msg']}."))


def _response(status: int, fault: Fault, more: Any = None) -> Response:
    headers, body = render_fault(fault)
    decoded = {name.decode(): value.decode() for name, value in headers}
    return Response(body, status, {**decoded, **(more or {})})
