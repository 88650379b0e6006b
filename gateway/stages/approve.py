"""What policy allows only with approval waits here for it; the caller's own word is enough by default."""

from collections.abc import Awaitable

from gateway.contract import Call, Handler, Result
from gateway.errors import Fault, Kind

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})


class Approve:
    def __call__(self, call: Call, call_next: Handler) -> Awaitable[Result]:
        if call.record.notes.get("approval") and not _approved(call.meta.get("approved")):
            call.record.decision = "deny"
            raise Fault(
                Kind.APPROVAL_REQUIRED,
                "This tool is destructive and needs approval.",
                suggested_fix='Repeat the call with "approved": true in _meta once a person has agreed.',
            )
        return call_next(call)


def _approved(word: object) -> bool:
    return word is True or (isinstance(word, str) and word in _TRUE)
