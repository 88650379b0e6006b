"""The end of the path: the backend carries the call out."""

import asyncio
import logging
from typing import Final

from msgspec.structs import replace

from gateway.contract import Call, Json, Result
from gateway.errors import Fault, ForeignError, Kind

log = logging.getLogger("gatehouse.dispatch")

MAX_ROUNDS: Final = 10


WAIT_SECONDS: Final = 0.1


class Dispatch:
    async def __call__(self, call: Call) -> Result:
        route = call.route
        assert route is not None
        try:
            result = await route.backend.send(call)
            if result.get("resultType") == "input_required" and not call.client.modern:
                result = await self._ask_and_retry(call, result)
        except (Fault, ForeignError):
            raise
        except Exception as exc:
            log.exception("%s failed", route.canonical, extra=call.tags)
            raise Fault(Kind.INTERNAL, f"{route.namespace} failed to carry out this call.") from exc
        return route.rewrite(result) if route.rewrite is not None else result

    async def _ask_and_retry(self, call: Call, result: Json) -> Json:
        """A handshake-era client is asked directly; the backend gets the answers as its own era expects them."""
        assert call.route is not None
        for _ in range(MAX_ROUNDS):
            requests: dict[str, Json] = result.get("inputRequests") or {}
            answers = await call.wire.ask(requests) if requests else await _a_moment()
            params = {**call.params, "inputResponses": answers}
            if (state := result.get("requestState")) is not None:
                params["requestState"] = state
            result = await call.route.backend.send(replace(call, params=params))
            if result.get("resultType") != "input_required":
                return result
        raise Fault(Kind.ILLEGAL_STATE, f"{call.route.namespace} asked for input {MAX_ROUNDS} times without an end.")


async def _a_moment() -> dict[str, Json]:
    """It asks for nothing but to be asked again: it waits for something."""
    await asyncio.sleep(WAIT_SECONDS)
    return {}
