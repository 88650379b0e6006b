"""Calls to servers that want each user's own account: what they need from `gateway.accounts`, and how a user is asked.

A call without a connected account is answered with a link: by URL elicitation if the client supports it, else as an
error. In the handshake era the call waits for the user and goes on; in the modern era the client repeats it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, NoReturn, Protocol, cast
from uuid import uuid4

from msgspec.structs import replace

from gateway.contract import BackendLists, Call, Caller, Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.url_elicitation import URL_ELICITATION_REQUIRED

WAIT_SECONDS: Final = 300.0
"""How long a call waits for its user to connect the account; this time does not count against its deadline."""
_STATE: Final = "gatehouse.account"
_KEY: Final = "account"
_ROUND_KEYS: Final = frozenset(("inputResponses", "requestState"))
Reason = Literal["missing", "reconnect", "scopes"]


class AccountRequired(Fault):
    """The caller has no account at the server, or it is no longer accepted, or it lacks scopes."""

    def __init__(self, backend: str, reason: Reason, scopes: tuple[str, ...] = ()) -> None:
        super().__init__(Kind.ILLEGAL_STATE, _MESSAGES[reason].format(backend), code="ACCOUNT_REQUIRED")
        self.reason: Reason = reason
        self.scopes = scopes
        """Scopes that the server demands in addition to those of the account."""


class AccountToken(Protocol):
    """A credential of one account. It is sent in header lines."""

    @property
    def lines(self) -> bytes | None:
        """The header lines, if they are the same for every request."""
        ...

    def sign(self, verb: str, path: str) -> bytes:
        """The header lines for this request, if each request needs its own."""
        ...


class AccountCredential(Protocol):
    """Provides the credentials of all principals for one server. Used by `HttpTarget`."""

    def cached(self, owner: str) -> AccountToken | None:
        """The credential of this principal if it is known and valid."""
        ...

    async def obtain(self, owner: str) -> AccountToken:
        """Return a valid credential. Raises `AccountRequired` if there is none."""
        ...

    async def replace(self, owner: str, rejected: Any, headers: Mapping[str, str]) -> AccountToken:
        """The server rejected the credential with these headers: return another. Raises `AccountRequired`."""
        ...

    async def give_up(self, owner: str, rejected: Any) -> NoReturn:
        """The server rejected a new credential, too: the account has to be connected again."""
        ...


class AccountAccess(Protocol):
    """The accounts at one server, as calls and lists need them. Used by `RemoteBackend`."""

    @property
    def credential(self) -> AccountCredential: ...

    @property
    def note(self) -> str:
        """Tells users in the shared lists that an account is required."""
        ...

    async def is_connected(self, owner: str) -> bool: ...

    def is_known(self, owner: str) -> bool:
        """Whether the account was used recently, without a lookup."""
        ...

    def link(self, caller: Caller, required: AccountRequired) -> str:
        """The URL at which this caller, and no other, connects the account. Empty if the caller cannot."""
        ...

    async def wait_until_connected(self, owner: str, seconds: float, scopes: tuple[str, ...]) -> bool:
        """Wait until the account can be used, with these scopes."""
        ...

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with each principal whose account is connected or disconnected, by any process."""
        ...


Send = Callable[[Call], Awaitable[Json]]


async def ask_for_account(call: Call, required: AccountRequired, accounts: AccountAccess, send: Send) -> Json:
    """Have the user connect the account, then send the call. Returns `input_required` to a modern client."""
    link = accounts.link(call.caller, required)
    if not link or not _supports_urls(call):
        raise _with_link(required, call.caller, link)
    if call.client.modern:
        if not _was_accepted(call):
            return _input_required(required, link)
    else:
        await _ask_client(call, required, link)
    with call.wire.pause():
        connected = await accounts.wait_until_connected(call.caller.principal, WAIT_SECONDS, required.scopes)
    if connected:
        return await send(without_answers(call))
    if call.client.modern:
        return _input_required(required, link)
    raise _elicitation_error(required, link)


def without_answers(call: Call) -> Call:
    """The call without the answers to the gateway's own input request, which are not for the server."""
    if call.params.get("requestState") != _STATE:
        return call
    return replace(call, params={key: value for key, value in call.params.items() if key not in _ROUND_KEYS})


def add_note(lists: BackendLists, note: str) -> BackendLists:
    """Lists for users without an account: each description says that one is required."""
    if not note:
        return lists

    def noted(item: Json) -> Json:
        return {**item, "description": f"{item.get('description') or ''}\n\n{note}".strip()}

    return BackendLists(
        tools=tuple(map(noted, lists.tools)),
        resources=lists.resources,
        templates=lists.templates,
        prompts=tuple(map(noted, lists.prompts)),
        capabilities=lists.capabilities,
        instructions=f"{lists.instructions}\n\n{note}".strip(),
        info=lists.info,
    )


async def _ask_client(call: Call, required: AccountRequired, link: str) -> None:
    """Ask a client of the handshake era to open the link, and wait for its consent."""
    try:
        answers = await call.wire.ask({_KEY: _elicitation(required, link, str(uuid4()))})
    except (ForeignError, Fault) as exc:
        if isinstance(exc, Fault) and exc.kind is not Kind.UNSUPPORTED:
            raise
        raise _elicitation_error(required, link) from exc
    if answers.get(_KEY, {}).get("action") != "accept":
        raise _declined()


def _was_accepted(call: Call) -> bool:
    """Whether this is the repetition of a call whose user agreed to open the link. Raises if the user declined."""
    if call.params.get("requestState") != _STATE:
        return False
    responses: Any = call.params.get("inputResponses")
    answer: Any = cast("Json", responses).get(_KEY) if isinstance(responses, dict) else None
    if not isinstance(answer, dict):
        return False
    if cast("Json", answer).get("action") != "accept":
        raise _declined()
    return True


def _input_required(required: AccountRequired, link: str) -> Json:
    requests = {_KEY: _elicitation(required, link)}
    return {"resultType": "input_required", "inputRequests": requests, "requestState": _STATE}


def _elicitation(required: AccountRequired, link: str, id: str | None = None) -> Json:
    params: Json = {"mode": "url", "message": required.message, "url": link}
    return {"method": "elicitation/create", "params": params if id is None else {**params, "elicitationId": id}}


def _elicitation_error(required: AccountRequired, link: str) -> ForeignError:
    elicitation: Json = _elicitation(required, link, str(uuid4()))["params"]
    return ForeignError(URL_ELICITATION_REQUIRED, required.message, {"elicitations": [elicitation]})


def _with_link(required: AccountRequired, caller: Caller, link: str) -> Fault:
    if not link:
        fix = "A service has no account of its own: use the account of a user, or a backend with its own credential."
        return Fault(required.kind, required.message, code=required.code, suggested_fix=fix)
    fix = f"Open {link} in a browser, signed in as {caller.subject}, then call again."
    return Fault(
        required.kind, f"{required.message} {fix}", code=required.code, details={"url": link}, suggested_fix=fix
    )


def _supports_urls(call: Call) -> bool:
    capability: Any = call.client.capabilities.get("elicitation")
    return isinstance(capability, dict) and "url" in capability


def _declined() -> Fault:
    return Fault(Kind.CANCELLED, "The link to connect the account was not opened. Open it and call again.")


_MESSAGES: Final[Mapping[Reason, str]] = {
    "missing": "{} needs your own account, which is not connected yet.",
    "reconnect": "Your account at {} is no longer accepted and has to be connected again.",
    "scopes": "{} demands more permissions than your account has given.",
}
