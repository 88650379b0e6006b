"""The approve stage: obtains the approval that a policy requires before the call goes on.

If a policy names a group, `gateway.approvals` holds the call until members of the group approve it. Otherwise the
caller approves: by `_meta.approved`, by a grant, or by the user's answer to an elicitation. In the handshake era the
call waits for the user. In the modern era the stage returns `input_required` with a sealed state, and the client
repeats the request with the answer. The seal binds the state to principal, tool and arguments; a database row makes
sure it is redeemed once.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, cast

import msgspec

from gateway.approvals.binding import definition_digest, text_digest
from gateway.approvals.held_calls import HeldCalls
from gateway.contract import Call, Handler, Json, Result, read_flag
from gateway.errors import Fault, ForeignError, Kind
from gateway.policy.decisions import Decision

STATE: Final = "approval_state"
"""Key of the note in `Record.notes` that the protocol package seals into `requestState`."""
_REQUESTED: Final = "asked"
_GRANTED: Final = "given"
_KEY: Final = "approval"
_MESSAGE_CHARS: Final = 16_000
"""Maximum length of a question. A longer one is not asked: the user must see all of what they approve."""


class UsedApprovals(Protocol):
    """Remembers which approvals were redeemed."""

    async def redeem(self, tenant: str, id: str) -> bool:
        """Return True for the first redemption of this id, False for every later one."""
        ...


class Approve:
    """Passes calls that need no approval. `recheck` repeats the policy decision after a wait for the user."""

    def __init__(
        self, approvals: UsedApprovals, recheck: Callable[[Call], None], held_calls: HeldCalls | None = None
    ) -> None:
        self._approvals = approvals
        self._recheck = recheck
        self._held_calls = held_calls

    def __call__(self, call: Call, call_next: Handler) -> Awaitable[Result]:
        return self._require_approval(call, call_next) if "approval" in call.record.notes else call_next(call)

    async def _require_approval(self, call: Call, call_next: Handler) -> Result:
        notes = call.record.notes
        decision: Decision | None = notes.get("approval_decision")
        if decision is not None and decision.requirement is not None and self._held_calls is not None:
            if not _continues(call) or not await self._redeem(call):
                notes["approved"] = await self._held_calls.require(call, decision)
        elif notes["approval"] != "self":
            raise _approval_required(
                call,
                "No one can approve it yet; ask an operator to change the policy.",
                fix=False,
            )
        elif read_flag(call.meta, "approved"):
            notes["approved"] = "said"
        elif call.input_response is not None and call.input_response.state:
            if not await self._redeem(call):
                return _input_required(call)
            notes["approved"] = "answered"
            await self._keep_grant(call, decision, call.input_response.responses.get(_KEY))
        elif grant := await self._find_grant(call, decision):
            notes["approved"] = grant
        elif not _supports_elicitation(call):
            raise _approval_required(call)
        elif call.client.modern:
            return _input_required(call)
        else:
            await self._keep_grant(call, decision, await self._ask_client(call))
            notes["approved"] = "answered"
        result = await call_next(call)
        if isinstance(result, dict) and result.get("resultType") == "input_required":
            # The backend needs input too: issue a new approval state that travels with its request.
            notes[STATE] = _approval_state(_GRANTED, call)
        return result

    async def _find_grant(self, call: Call, decision: Decision | None) -> str:
        if self._held_calls is None or decision is None:
            return ""
        return await self._held_calls.find_grant(call, decision)

    async def _keep_grant(self, call: Call, decision: Decision | None, answer: object) -> None:
        """Keep the user's approval for longer than this call, if the answer says so."""
        if self._held_calls is None or decision is None or not isinstance(answer, dict):
            return
        content: Any = cast("Json", answer).get("content")
        duration: Any = cast("Json", content).get("duration") if isinstance(content, dict) else None
        if isinstance(duration, str) and duration != "once":
            await self._held_calls.grant_self(call, decision, duration)

    async def _redeem(self, call: Call) -> bool:
        """Redeem the approval in the request. Return False if the client sent no answer."""
        assert call.input_response is not None
        kind, id, definition = call.input_response.state.split(" ")
        answer = call.input_response.responses.get(_KEY)
        if kind == _REQUESTED and answer is None:
            return False
        if definition != _bound_digest(call):
            raise _approval_required(call, "The tool has changed since it was approved.")
        if not await self._approvals.redeem(call.caller.tenant, id):
            raise _approval_required(call, "The approval was already used.")
        if kind == _REQUESTED and not _is_accepted(answer):
            raise _approval_declined(call)
        return True

    async def _ask_client(self, call: Call) -> object:
        try:
            answers = await call.wire.ask({_KEY: _elicitation(call)})
        except ForeignError as exc:
            raise _approval_required(call) from exc
        if not _is_accepted(answers.get(_KEY)):
            raise _approval_declined(call)
        self._recheck(call)
        return answers.get(_KEY)


def _input_required(call: Call) -> Json:
    call.record.decision = "ask"
    call.record.notes[STATE] = _approval_state(_REQUESTED, call)
    return {"resultType": "input_required", "inputRequests": {_KEY: _elicitation(call)}}


def _elicitation(call: Call) -> Json:
    assert call.route is not None
    arguments = msgspec.json.encode(call.arguments).decode()
    reason = call.record.notes.get("approval_reason") or "This call requires approval."
    message = f"{reason}\n\n{call.route.canonical}\n{arguments}"
    if len(message) > _MESSAGE_CHARS:
        raise _approval_required(call, "Its arguments are too long to be shown to the user.")
    approve: Json = {"type": "boolean", "title": "Approve", "description": "Allow this call once."}
    durations = ["once", "hour", *(["session"] if call.client.session else [])]
    duration: Json = {"type": "string", "title": "Do not ask again for this tool", "enum": durations, "default": "once"}
    properties: Json = {"approve": approve, "duration": duration}
    schema: Json = {"type": "object", "properties": properties, "required": ["approve"]}
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": message, "requestedSchema": schema},
    }


def _approval_state(kind: str, call: Call) -> str:
    return f"{kind} {secrets.token_hex(16)} {_bound_digest(call)}"


def _bound_digest(call: Call) -> str:
    """Digest of the tool's definition and effect and, if a group approved, of the policy version."""
    decision: Decision | None = call.record.notes.get("approval_decision")
    if decision is None or decision.requirement is None:
        return definition_digest(call)
    return text_digest(f"{definition_digest(call)} {decision.version}")


def _continues(call: Call) -> bool:
    """Whether the request continues a call that was approved and whose backend asked for input."""
    return call.input_response is not None and call.input_response.state.startswith(f"{_GRANTED} ")


def _supports_elicitation(call: Call) -> bool:
    capability: Any = call.client.capabilities.get("elicitation")
    # An empty capability means form mode.
    return isinstance(capability, dict) and (not capability or "form" in capability)


def _is_accepted(answer: object) -> bool:
    if not isinstance(answer, dict):
        return False
    given = cast("Mapping[str, Any]", answer)
    content: Any = given.get("content")
    if given.get("action") != "accept" or not isinstance(content, dict):
        return False
    return cast("Json", content).get("approve") is True


def _approval_required(call: Call, detail: str = "", *, fix: bool = True) -> Fault:
    call.record.decision = "deny"
    reason = call.record.notes.get("approval_reason") or "This call requires approval."
    return Fault(
        Kind.APPROVAL_REQUIRED,
        f"{reason} {detail}".rstrip(),
        suggested_fix='Repeat the call with "approved": true in _meta once a person has agreed.' if fix else None,
    )


def _approval_declined(call: Call) -> Fault:
    call.record.decision = "deny"
    return Fault(Kind.DENIED, "The user declined this call.")
