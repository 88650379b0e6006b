"""What policy allows only with approval waits here for it: the caller's word, or that of the person behind the client.

In the modern era nothing waits: the question goes out as an answer with a sealed state, and the request comes back with
both. The seal binds it to the principal, the tool and the arguments; a row makes sure that it is used once.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, Final, Protocol, cast

import msgspec

from gateway.contract import Call, Handler, Json, Result
from gateway.errors import Fault, ForeignError, Kind

STATE: Final = "approval_state"
"""The note in a call's record that travels, sealed, with what the client is asked."""
_ASKED: Final = "asked"
_GIVEN: Final = "given"
_KEY: Final = "approval"
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_MESSAGE_CHARS: Final = 1500


class UsedApprovals(Protocol):
    async def use(self, tenant: str, id: str) -> bool:
        """True for the first one who asks, and for nobody after."""
        ...


class Approve:
    """`check` decides once more after a person was waited for: much may have changed meanwhile."""

    def __init__(self, used: UsedApprovals, check: Callable[[Call], None]) -> None:
        self._used = used
        self._check = check

    def __call__(self, call: Call, call_next: Handler) -> Awaitable[Result]:
        return self._approved(call, call_next) if "approval" in call.record.notes else call_next(call)

    async def _approved(self, call: Call, call_next: Handler) -> Result:
        notes = call.record.notes
        if notes["approval"] != "self":
            raise _refused(call, "Nobody here can give it yet.", fix=False)
        if _means_yes(call.meta.get("approved")):
            notes["approved"] = "said"
        elif call.input_response is not None and call.input_response.state:
            if not await self._redeemed(call):
                return _question(call)
            notes["approved"] = "answered"
        elif not _can_be_asked(call):
            raise _refused(call)
        elif call.client.modern:
            return _question(call)
        else:
            await self._ask(call)
            notes["approved"] = "answered"
        result = await call_next(call)
        if isinstance(result, dict) and result.get("resultType") == "input_required":
            # The backend asks in its turn: the approval goes on with its question, once more.
            notes[STATE] = _state(_GIVEN, call)
        return result

    async def _redeemed(self, call: Call) -> bool:
        """False when the client came back without an answer."""
        assert call.input_response is not None
        kind, id, definition = call.input_response.state.split(" ")
        answer = call.input_response.responses.get(_KEY)
        if kind == _ASKED and answer is None:
            return False
        if definition != _definition(call):
            raise _refused(call, "The tool has changed since it was approved.")
        if not await self._used.use(call.caller.tenant, id):
            raise _refused(call, "That approval was used already.")
        if kind == _ASKED and not _accepted(answer):
            raise _declined(call)
        return True

    async def _ask(self, call: Call) -> None:
        try:
            answers = await call.wire.ask({_KEY: _request(call)})
        except ForeignError as exc:
            raise _refused(call) from exc
        if not _accepted(answers.get(_KEY)):
            raise _declined(call)
        self._check(call)


def _question(call: Call) -> Json:
    call.record.decision = "ask"
    call.record.notes[STATE] = _state(_ASKED, call)
    return {"resultType": "input_required", "inputRequests": {_KEY: _request(call)}}


def _request(call: Call) -> Json:
    assert call.route is not None
    arguments = msgspec.json.encode(call.arguments).decode()
    reason = call.record.notes.get("approval_reason") or "This needs approval."
    message = f"{reason}\n\n{call.route.canonical}\n{arguments}"
    shown = message if len(message) <= _MESSAGE_CHARS else f"{message[:_MESSAGE_CHARS]}…"
    approve: Json = {"type": "boolean", "title": "Approve", "description": "Let this call be carried out, once."}
    schema: Json = {"type": "object", "properties": {"approve": approve}, "required": ["approve"]}
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": shown, "requestedSchema": schema},
    }


def _state(kind: str, call: Call) -> str:
    return f"{kind} {secrets.token_hex(16)} {_definition(call)}"


def _definition(call: Call) -> str:
    """What was approved is the tool as it was then."""
    assert call.route is not None
    known = [call.route.canonical, call.route.effect, call.route.definition]
    return sha256(msgspec.json.encode(known, order="sorted")).hexdigest()[:32]


def _can_be_asked(call: Call) -> bool:
    capability: Any = call.client.capabilities.get("elicitation")
    # A client that names no mode fills forms.
    return isinstance(capability, dict) and (not capability or "form" in capability)


def _accepted(answer: object) -> bool:
    if not isinstance(answer, dict):
        return False
    given = cast("Mapping[str, Any]", answer)
    content: Any = given.get("content")
    if given.get("action") != "accept" or not isinstance(content, dict):
        return False
    return cast("Json", content).get("approve") is True


def _means_yes(word: object) -> bool:
    """As the Gox contract reads it; anything else is ignored."""
    return word is True or (isinstance(word, str) and word in _TRUE)


def _refused(call: Call, more: str = "", *, fix: bool = True) -> Fault:
    call.record.decision = "deny"
    reason = call.record.notes.get("approval_reason") or "This needs approval."
    return Fault(
        Kind.APPROVAL_REQUIRED,
        f"{reason} {more}".rstrip(),
        suggested_fix='Repeat the call with "approved": true in _meta once a person has agreed.' if fix else None,
    )


def _declined(call: Call) -> Fault:
    call.record.decision = "deny"
    return Fault(Kind.DENIED, "The person who was asked did not approve this call.")
