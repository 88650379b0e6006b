"""One attempt at one workflow step: calls the tool and returns its output or raises a fault."""

import asyncio
from typing import Any, Final, cast

from backends.workflow.definition import Step
from gateway.contract import Caller, Host, Json
from gateway.errors import Fault, ForeignError, Kind

_ENVELOPE: Final = frozenset({"runId", "output", "diff"})
_INVALID_PARAMS: Final = -32602
_MAX_MESSAGE: Final = 2000
_KINDS: Final = {kind.value: kind for kind in Kind}


async def attempt(host: Host, caller: Caller, step: Step, arguments: Json, meta: Json) -> Any:
    """Call the step's tool and return its output. Every failure is raised as a `Fault`."""
    scope = asyncio.timeout(step.timeout)
    try:
        async with scope:
            return extract_output(await host.invoke(caller, step.action, arguments, meta))
    except TimeoutError as exc:
        if not scope.expired():
            raise
        raise Fault(Kind.TIMEOUT, f"step {step.id!r} took longer than {step.timeout:g} s") from exc
    except ForeignError as exc:
        kind = Kind.INVALID_INPUT if exc.code == _INVALID_PARAMS else Kind.INTERNAL
        raise Fault(kind, exc.message[:_MAX_MESSAGE]) from exc


def extract_output(result: Json) -> Any:
    """Return an action's output, else the structured content, else the text. Raises `Fault` for an error result."""
    structured = result.get("structuredContent")
    if result.get("isError"):
        raise _to_fault(structured, result)
    if not isinstance(structured, dict):
        return structured if structured is not None else {"text": _join_text(result)}
    content = cast("Json", structured)
    return content["output"] if content.keys() == _ENVELOPE else content


def _to_fault(structured: Any, result: Json) -> Fault:
    error: Any = cast("Json", structured).get("error") if isinstance(structured, dict) else None
    reported = cast("Json", error) if isinstance(error, dict) else {}
    return Fault(
        _KINDS.get(str(reported.get("kind")), Kind.INTERNAL),
        str(reported.get("message") or _join_text(result) or "the tool failed")[:_MAX_MESSAGE],
        retryable=reported.get("retryable") is True,
    )


def _join_text(result: Json) -> str:
    blocks: list[Any] = result.get("content") or []
    texts = [cast("Json", block).get("text") for block in blocks if isinstance(block, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
