"""What no plain route answers, in the same form as every other failure."""

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from gateway.edge.refusal import refusal
from gateway.errors import Fault, Kind


def answer_unserved(app: FastAPI) -> None:
    """Paths that are not served, methods that a path does not take, and values that a route cannot read."""
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _unreadable)


def not_served() -> Response:
    """There is nothing at this path."""
    return _response(404, Fault(Kind.NOT_FOUND, "There is nothing at this path."))


async def _refused(_: Request, exc: Any) -> Response:
    match exc.status_code:
        case 404:
            return not_served()
        case 405:
            told = Fault(Kind.INVALID_INPUT, "This method is not allowed here.", code="METHOD_NOT_ALLOWED")
            return _response(405, told, exc.headers)
        case status:  # a form that cannot be read
            return _response(status, Fault(Kind.INVALID_INPUT, "This request cannot be read."), exc.headers)


async def _unreadable(_: Request, exc: Any) -> Response:
    # Where it stands, never what was sent.
    first = exc.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return _response(400, Fault(Kind.INVALID_INPUT, f"{place}: {first['msg']}."))


def _response(status: int, fault: Fault, more: Any = None) -> Response:
    headers, body = refusal(fault)
    shown = {name.decode(): value.decode() for name, value in headers}
    return Response(body, status, {**shown, **(more or {})})
