"""Idempotency keys: a write with a key happens once, and repetitions return the first answer.

The answer is stored in the transaction of the write, so a crash leaves both or neither. A key is scoped to one
principal and one tool, and kept for a day.
"""

import json
from typing import Any, Final

from sqlalchemy import bindparam, delete, insert, select

from backends.knowledge import timestamps
from backends.knowledge.tables import idempotency
from backends.knowledge.text_keys import digest
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract import Json
from gateway.errors import Fault, Kind

MAX_KEY_LENGTH: Final = 255
_RETENTION_SECONDS: Final = 24 * 3600.0
_KEY_COLUMNS: Final = ("principal", "tool", "word")
_FIND: Final = select(idempotency).where(
    *(idempotency.c[name] == bindparam(f"of_{name}") for name in _KEY_COLUMNS),
    idempotency.c.recorded_at >= bindparam("since"),
)
_EXPIRE: Final = delete(idempotency).where(idempotency.c.recorded_at < bindparam("before"))
_INSERT: Final = insert(idempotency)


class IdempotencyKey:
    """The key of one call, bound to its caller, tool and arguments."""

    def __init__(self, principal: str, tool: str, key: object, arguments: Json) -> None:
        """Raises `Fault(INVALID_INPUT)` for a key that is not a short string."""
        if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_LENGTH:
            message = f"idempotencyKey must be a string of 1 to {MAX_KEY_LENGTH} characters."
            raise _invalid(message)
        self._row: Json = {"principal": principal, "tool": tool, "word": key}
        self._digest = digest(json.dumps(arguments, sort_keys=True))

    async def find_answer(self, unit: UnitOfWork) -> Any | None:
        """Return the answer of the first call, or None. Locks the memory, so that calls with one key take turns."""
        await unit.begin_writing()
        values = {f"of_{name}": self._row[name] for name in _KEY_COLUMNS}
        values["since"] = timestamps.from_now(-_RETENTION_SECONDS)
        found = (await unit.connection.execute(_FIND, values)).first()
        if found is None:
            return None
        if found.digest != self._digest:
            raise _invalid("This idempotencyKey was used with other arguments.")
        return json.loads(found.answer)

    async def save_answer(self, unit: UnitOfWork, answer: Any) -> None:
        await unit.connection.execute(_EXPIRE, {"before": timestamps.from_now(-_RETENTION_SECONDS)})
        row = {"digest": self._digest, "answer": json.dumps(answer, ensure_ascii=False), "recorded_at": unit.now}
        await unit.connection.execute(_INSERT, {**self._row, **row})


def _invalid(message: str) -> Fault:
    details = {"validation_path": "_meta.idempotencyKey", "validation_rule": "idempotencyKey"}
    return Fault(Kind.INVALID_INPUT, message, details=details)
