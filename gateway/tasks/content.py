"""The sealed columns of a task, and the stored form of a call that any replica can run.

Arguments, results and messages cannot be read from the database alone: they are encrypted, bound to task and column.
"""

from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from gateway.contract import Call, Caller, ClientProfile, Json
from gateway.protocol.sealed_tokens import InvalidSeal, TokenSeal

_PURPOSE: Final = "task content"
Column = Literal["message", "request", "upstream", "input", "answers", "notes", "outcome"]


class StoredCaller(Struct, frozen=True):
    """A `Caller` as stored. It contains no secret: the credential is an id."""

    tenant: str
    subject: str
    kind: Literal["user", "service"]
    groups: list[str]
    scopes: list[str]
    credential: str
    expires: float | None
    resource: str
    client: str
    token: str
    issued: float


class StoredRequest(Struct, frozen=True):
    """A call as stored: everything that another replica needs to run it."""

    caller: StoredCaller
    client: ClientProfile
    correlation_id: str
    params: Json
    endpoint: str
    body_bytes: int
    trace: dict[str, str]


def store_call(call: Call, params: Json) -> StoredRequest:
    caller = call.caller
    return StoredRequest(
        caller=StoredCaller(
            tenant=caller.tenant,
            subject=caller.subject,
            kind=caller.kind,
            groups=sorted(caller.groups),
            scopes=sorted(caller.scopes),
            credential=caller.credential,
            expires=caller.expires,
            resource=caller.resource,
            client=caller.client,
            token=caller.token,
            issued=caller.issued,
        ),
        client=call.client,
        correlation_id=call.id,
        params=params,
        endpoint=call.endpoint,
        body_bytes=call.body_bytes,
        trace=dict(call.trace),
    )


def restore_caller(stored: StoredCaller) -> Caller:
    return Caller(
        stored.tenant,
        stored.subject,
        stored.kind,
        frozenset(stored.groups),
        frozenset(stored.scopes),
        stored.credential,
        stored.expires,
        stored.resource,
        stored.client,
        stored.token,
        stored.issued,
    )


class TaskContent:
    """Seals and opens the content columns."""

    def __init__(self, seal: TokenSeal) -> None:
        self._seal = seal

    def seal(self, id: str, column: Column, value: Any) -> str:
        return self._seal.seal(_PURPOSE, msgspec.json.encode(value), f"{id} {column}".encode())

    def seal_message(self, id: str, message: str) -> str:
        """Seal a status message; an empty one stays empty."""
        return self.seal(id, "message", message) if message else ""

    def open(self, id: str, column: Column, sealed: str) -> Any:
        """Return the value; an empty object if the column is empty or was sealed with a key that is gone."""
        return self._open(id, column, sealed, Any) if sealed else {}

    def open_request(self, id: str, sealed: str) -> StoredRequest | None:
        """Return the stored call; None if it was sealed with a key that is gone."""
        found = self._open(id, "request", sealed, StoredRequest)
        return found if isinstance(found, StoredRequest) else None

    def _open(self, id: str, column: Column, sealed: str, type: Any) -> Any:
        try:
            return msgspec.json.decode(self._seal.open(_PURPOSE, sealed, f"{id} {column}".encode()), type=type)
        except (InvalidSeal, msgspec.DecodeError):
            return {}
