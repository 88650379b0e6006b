"""Links to open first: how an older server asks for them, and how a newer client is asked."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from gateway.contract import Call, Json
from gateway.errors import Fault, ForeignError, Kind

URL_ELICITATION_REQUIRED: Final = -32042
_STATE: Final = "links"
_ROUND: Final = ("inputResponses", "requestState")


async def in_handshake(call: Call, params: Json, carry: Callable[[Json], Awaitable[Json]]) -> Json:
    """Carry a call to a server of the handshake era, which knows no rounds.

    Its error that names links to open becomes `input_required` for a modern client, who makes the call again when they
    are done; the server itself knows whether they are.
    """
    if not call.client.modern:
        return await carry(params)
    if params.get("requestState") == _STATE:
        _consented(cast("Json", params.get("inputResponses") or {}))
    plain = {key: value for key, value in params.items() if key not in _ROUND}
    try:
        return await carry(plain)
    except ForeignError as error:
        requests = _requests(error)
        if not requests:
            raise
        return {"resultType": "input_required", "inputRequests": requests, "requestState": _STATE}


def _consented(answers: Json) -> None:
    for answer in answers.values():
        if answer.get("action") != "accept":
            raise Fault(Kind.CANCELLED, "The link that this call needs was not opened.")


def _requests(error: ForeignError) -> dict[str, Json]:
    data: Any = error.data
    links: Any = cast("Json", data).get("elicitations") if isinstance(data, dict) else None
    if error.code != URL_ELICITATION_REQUIRED or not isinstance(links, list):
        return {}
    known = [cast("Json", link) for link in cast("list[Any]", links) if isinstance(link, dict)]
    return {
        f"link-{number}": {
            "method": "elicitation/create",
            "params": {key: value for key, value in {**link, "mode": "url"}.items() if key != "elicitationId"},
        }
        for number, link in enumerate(known, 1)
    }
