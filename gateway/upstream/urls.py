"""`-32042` of 2025-11-25, "open these addresses first and ask again", as 2026-07-28 says it: `input_required`.

The newer revision has no such error; its client is asked to open them, and asks again by itself.
"""

from typing import Any, Final, cast

from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind

URL_REQUIRED: Final = -32042
_KEY: Final = "gatehouse.url."
_ROUNDS: Final = ("inputResponses", "requestState")


def answered(params: Json) -> Json:
    """The params without the answers to what `asking` asked. Raises `Fault(CANCELLED)` when the client declined it."""
    given: Any = params.get("inputResponses")
    if not isinstance(given, dict):
        return params
    others: Json = {}
    for key, answer in cast("dict[str, Any]", given).items():
        if not key.startswith(_KEY):
            others[key] = answer
        elif not isinstance(answer, dict) or cast("Json", answer).get("action") != "accept":
            raise Fault(Kind.CANCELLED, "The address that the server asks to open was declined.")
    rest = {key: value for key, value in params.items() if key != "inputResponses"}
    return {**rest, "inputResponses": others} if others else rest


def without_rounds(params: Json) -> Json:
    """As a server of the handshake era knows them: each of its requests is the first."""
    if "inputResponses" not in params and "requestState" not in params:
        return params
    return {key: value for key, value in answered(params).items() if key not in _ROUNDS}


def asking(error: ForeignError) -> Json:
    """The error as a result that asks. Raises the error itself when it is another, or names no address."""
    data: Any = error.data
    listed: Any = cast("Json", data).get("elicitations") if isinstance(data, dict) else None
    if error.code != URL_REQUIRED or not isinstance(listed, list):
        raise error
    requests: Json = {}
    for place, each in enumerate(cast("list[Any]", listed)):
        if isinstance(each, dict) and isinstance(cast("Json", each).get("url"), str):
            params = {key: value for key, value in cast("Json", each).items() if key != "elicitationId"}
            requests[f"{_KEY}{place}"] = {"method": "elicitation/create", "params": {**params, "mode": "url"}}
    if not requests:
        raise error
    return {"resultType": "input_required", "inputRequests": requests}
