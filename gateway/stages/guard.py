"""A result larger than a client should ever get is refused, not cut."""

import json

import msgspec

from gateway.contract import Call, Handler, Result
from gateway.errors import Fault, Kind


class Guard:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    async def __call__(self, call: Call, call_next: Handler) -> Result:
        result = await call_next(call)
        try:
            size = len(msgspec.json.encode(result))
        except UnicodeEncodeError:
            # Half a surrogate pair, which the door will replace as it encodes; escaped it is no shorter.
            size = len(json.dumps(result, default=str))
        except TypeError as exc:
            raise Fault(Kind.INTERNAL, "The backend's answer is not JSON.", stage="guard") from exc
        call.record.notes["result_bytes"] = size
        if size > self._max_bytes:
            raise Fault(
                Kind.TOO_LARGE,
                "The backend's answer exceeds the limit for one result.",
                details={"payload_bytes": size, "max_bytes": self._max_bytes},
                suggested_fix="Ask for less at a time.",
                stage="guard",
            )
        return result
