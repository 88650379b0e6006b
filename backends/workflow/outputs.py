"""What the steps of a run gave, kept for later ones: as text, and no more than a run may keep."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.errors import Fault, Kind


class Outputs(Mapping[str, Any]):
    """By step. Reading one that was too large to be kept raises `Fault(TOO_LARGE)`."""

    def __init__(self, kept: Mapping[str, str | None], max_bytes: int) -> None:
        """`kept`: JSON texts of earlier steps, None for what was not kept."""
        self._kept = dict(kept)
        self._max_bytes = max_bytes
        # Texts, not objects: these may take twenty times the memory.
        self._left = max_bytes - sum(len(text) for text in kept.values() if text is not None)

    def add(self, step_id: str, output: Any) -> str | None:
        """The text to keep, or None when the run has no room for it."""
        text = json.dumps(output)
        kept = text if len(text) <= self._left else None
        self._left -= len(text) if kept is not None else 0
        self._kept[step_id] = kept
        return kept

    def __getitem__(self, step_id: str) -> Any:
        text = self._kept[step_id]
        if text is None:
            raise Fault(
                Kind.TOO_LARGE,
                f"The output of step {step_id!r} was not kept: a run keeps {self._max_bytes} bytes of outputs.",
                details={"stepId": step_id, "max_bytes": self._max_bytes},
                suggested_fix="Have the step give less, such as fewer items.",
            )
        return json.loads(text)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)
