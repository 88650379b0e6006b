"""Links to open first: 2025-11-25 says so with an error, 2026-07-28 with `input_required`, after which its client makes
the call again; the server itself knows whether they were opened.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind

URL_ELICITATION_REQUIRED: Final = -32042
_STATE: Final = "gatehouse.links"
_ROUND: Final = ("inputResponses", "requestState")


async def in_handshake(params: Json, carry: Callable[[Json], Awaitable[Json]]) -> Json:
    """Carry a modern client's call to a server of the handshake era, which knows no rounds."""
    params = _first_round(answered(params))
    try:
        return await carry(params)
    except ForeignError as error:
        return asking(error)


def answered(params: Json) -> Json:
    """The params as they were before `asking`. Raises `Fault(CANCELLED)` when a link was declined."""
    if params.get("requestState") != _STATE:
        return params
    for answer in cast("Json", params.get("inputResponses") or {}).values():
        if answer.get("action") != "accept":
            raise Fault(Kind.CANCELLED, "The link that this call needs was not opened.")
    return _first_round(params)


def asking(error: ForeignError) -> Json:
    """The error as a modern client is asked. Raises the error itself when it names no links."""
    data: Any = error.data
    links: Any = cast("Json", data).get("elicitations") if isinstance(data, dict) else None
    if error.code != URL_ELICITATION_REQUIRED or not isinstance(links, list):
        raise error
    known = [cast("Json", link) for link in cast("list[Any]", links) if isinstance(link, dict)]
    if not known:
        raise error
    requests = {f"link-{number}": _request(link) for number, link in enumerate(known, 1)}
    return {"resultType": "input_required", "inputRequests": requests, "requestState": _STATE}


def _request(link: Json) -> Json:
    named = {key: value for key, value in link.items() if key != "elicitationId"}
    return {"method": "elicitation/create", "params": {**named, "mode": "url"}}


def _first_round(params: Json) -> Json:
    return {key: value for key, value in params.items() if key not in _ROUND}
