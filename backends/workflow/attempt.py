"""One attempt at one step: a call through the whole path, and its output or fault."""

import asyncio
from typing import Any, Final, cast

from backends.workflow.definition import Step
from gateway.contract import Caller, Host, Json
from gateway.errors import Fault, ForeignError, Kind

_ENVELOPE: Final = frozenset({"runId", "output", "diff"})
_INVALID_PARAMS: Final = -32602
_MAX_MESSAGE: Final = 2000
_KINDS: Final = {kind.value: kind for kind in Kind}


async def attempt(home: Host, caller: Caller, step: Step, arguments: Json, meta: Json) -> Any:
    """The step's output. Raises `Fault`, whatever went wrong."""
    scope = asyncio.timeout(step.timeout)
    try:
        async with scope:
            return output_of(await home.invoke(caller, step.action, arguments, meta))
    except TimeoutError as exc:
        if not scope.expired():
            raise
        raise Fault(Kind.TIMEOUT, f"step {step.id!r} took longer than {step.timeout:g} s") from exc
    except ForeignError as exc:
        kind = Kind.INVALID_INPUT if exc.code == _INVALID_PARAMS else Kind.INTERNAL
        raise Fault(kind, exc.message[:_MAX_MESSAGE]) from exc


def output_of(result: Json) -> Any:
    """What the tool gave: an action's output, else what is structured, else its text. Raises `Fault` for a failure."""
    structured = result.get("structuredContent")
    if result.get("isError"):
        raise _failure(structured, result)
    if not isinstance(structured, dict):
        return structured if structured is not None else {"text": _text(result)}
    known = cast("Json", structured)
    return known["output"] if known.keys() == _ENVELOPE else known


def _failure(structured: Any, result: Json) -> Fault:
    error: Any = cast("Json", structured).get("error") if isinstance(structured, dict) else None
    said = cast("Json", error) if isinstance(error, dict) else {}
    return Fault(
        _KINDS.get(str(said.get("kind")), Kind.INTERNAL),
        str(said.get("message") or _text(result) or "the tool failed")[:_MAX_MESSAGE],
        retryable=said.get("retryable") is True,
    )


def _text(result: Json) -> str:
    blocks: list[Any] = result.get("content") or []
    texts = [cast("Json", block).get("text") for block in blocks if isinstance(block, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
