"""The last stage: sends the call to its backend and translates unexpected exceptions."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from gateway.contract import Call, Json, Result
from gateway.errors import Fault, ForeignError, Kind

log = logging.getLogger("gatehouse.dispatch")

MAX_ROUNDS: Final = 10
POLL_SECONDS: Final = 0.1
WRITES: Final = 2
"""Lowest effect of a tool that may write."""


class Dispatch:
    """Raises only `Fault` and `ForeignError`; anything else a backend raises becomes `Fault(INTERNAL)`.

    `announce` is awaited before a call that may write is sent. It is no stage, because a stage costs every call.
    """

    def __init__(self, announce: Callable[[Call], Awaitable[None]] | None = None) -> None:
        self._announce = announce

    async def __call__(self, call: Call) -> Result:
        route = call.route
        assert route is not None
        if route.effect >= WRITES and self._announce is not None:
            await self._announce(call)
        try:
            if call.task is not None:
                await call.task.mark_sent()
            result = await route.backend.send(call)
            if result.get("resultType") == "input_required" and (
                not call.client.modern or (call.task is not None and call.task.is_detached)
            ):
                result = await self._ask_and_retry(call, result)
        except (Fault, ForeignError):
            raise
        except Exception as exc:
            log.exception(
                "dispatch: %s raised an unexpected exception; the client gets an internal error",
                route.canonical,
                extra=call.log_fields,
            )
            raise Fault(Kind.INTERNAL, f"{route.namespace} failed to execute this call.") from exc
        return route.rewrite(result) if route.rewrite is not None else result

    async def _ask_and_retry(self, call: Call, result: Json) -> Json:
        """Ask for the input a modern backend requires, and repeat the call with the answers.

        For clients of the handshake era, and for tasks, whose clients answer without repeating the call.
        """
        assert call.route is not None
        for _ in range(MAX_ROUNDS):
            requests: dict[str, Json] = result.get("inputRequests") or {}
            answers = await call.wire.ask(requests) if requests else await _poll_pause()
            params = {**call.params, "inputResponses": answers}
            if (state := result.get("requestState")) is not None:
                params["requestState"] = state
            result = await call.route.backend.send(replace(call, params=params))
            if result.get("resultType") != "input_required":
                return result
        raise Fault(Kind.ILLEGAL_STATE, f"{call.route.namespace} asked for input more than {MAX_ROUNDS} times.")


async def _poll_pause() -> dict[str, Json]:
    """The backend requested no input, only another attempt: wait before polling again."""
    await asyncio.sleep(POLL_SECONDS)
    return {}
