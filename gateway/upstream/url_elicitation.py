"""URL elicitation between the two protocol eras.

A server of revision 2025-11-25 requires a URL to be opened with a JSON-RPC error; revision 2026-07-28 uses an
`input_required` result, after which the client repeats the call. The server itself knows whether the URL was opened.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind

URL_ELICITATION_REQUIRED: Final = -32042
_STATE: Final = "gatehouse.links"
_ROUND_KEYS: Final = ("inputResponses", "requestState")


async def call_handshake_server(params: Json, send: Callable[[Json], Awaitable[Json]]) -> Json:
    """Send the call of a modern client to a handshake-era server, which has no multi-round calls."""
    params = _without_round(resume_params(params))
    try:
        return await send(params)
    except ForeignError as error:
        return input_required_result(error)


def resume_params(params: Json) -> Json:
    """Undo `input_required_result`: the params of the first round. Raises `Fault(CANCELLED)` for a declined URL."""
    if params.get("requestState") != _STATE:
        return params
    for response in cast("Json", params.get("inputResponses") or {}).values():
        if response.get("action") != "accept":
            raise Fault(Kind.CANCELLED, "The URL that this call requires was not opened. Open it and call again.")
    return _without_round(params)


def input_required_result(error: ForeignError) -> Json:
    """Translate the error to an `input_required` result. Raises the error itself when it contains no elicitations."""
    data: Any = error.data
    listed: Any = cast("Json", data).get("elicitations") if isinstance(data, dict) else None
    if error.code != URL_ELICITATION_REQUIRED or not isinstance(listed, list):
        raise error
    elicitations = [cast("Json", each) for each in cast("list[Any]", listed) if isinstance(each, dict)]
    if not elicitations:
        raise error
    requests = {f"link-{number}": _url_request(each) for number, each in enumerate(elicitations, 1)}
    return {"resultType": "input_required", "inputRequests": requests, "requestState": _STATE}


def _url_request(elicitation: Json) -> Json:
    params = {key: value for key, value in elicitation.items() if key != "elicitationId"}
    return {"method": "elicitation/create", "params": {**params, "mode": "url"}}


def _without_round(params: Json) -> Json:
    return {key: value for key, value in params.items() if key not in _ROUND_KEYS}
