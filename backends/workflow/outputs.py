"""The outputs of a run's steps, stored as JSON text for later steps up to a size limit."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from backends.workflow import run_store
from gateway.contract import Json, Store
from gateway.errors import Fault, Kind

MAX_SHOWN: Final = 65_536
"""Bytes of outputs that a tool returns; a resource returns them whole."""


async def read(store: Store, run_id: str, max_bytes: int | None = None) -> list[Json]:
    """Return `stepId`, `status` and `output` of each finished step, until `max_bytes` are used up."""
    shown: list[Json] = []
    remaining = max_bytes
    for step_id, status, text in await run_store.read_steps(store, run_id):
        step: Json = {"stepId": step_id, "status": status}
        if text is None:
            step |= {"stored": False} if status == "succeeded" else {}
        elif remaining is None or len(text) <= remaining:
            step["output"] = json.loads(text)
            remaining = None if remaining is None else remaining - len(text)
        else:
            step |= {"truncated": True, "bytes": len(text)}
        shown.append(step)
    return shown


class Outputs(Mapping[str, Any]):
    """Step outputs by step id. Reading an output that was too large to store raises `Fault(TOO_LARGE)`."""

    def __init__(self, stored: Mapping[str, str | None], max_bytes: int) -> None:
        """`stored`: JSON texts of earlier steps; None for an output that was not stored."""
        self._stored = dict(stored)
        self._max_bytes = max_bytes
        # Stored as text: parsed objects can take twenty times the memory.
        self._remaining_bytes = max_bytes - sum(len(text) for text in stored.values() if text is not None)

    def add(self, step_id: str, output: Any) -> str | None:
        """Store an output and return its JSON text, or None when it exceeds the remaining size."""
        text = json.dumps(output)
        stored = text if len(text) <= self._remaining_bytes else None
        self._remaining_bytes -= len(text) if stored is not None else 0
        self._stored[step_id] = stored
        return stored

    def __getitem__(self, step_id: str) -> Any:
        text = self._stored[step_id]
        if text is None:
            raise Fault(
                Kind.TOO_LARGE,
                f"The output of step {step_id!r} was not stored: the limit is {self._max_bytes} bytes per run.",
                details={"stepId": step_id, "max_bytes": self._max_bytes},
                suggested_fix="Reduce the output of the step, for example by requesting fewer items.",
            )
        return json.loads(text)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)
