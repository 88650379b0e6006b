"""What the flows ask of the house, and the words in which they do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.auth.embedded_issuer import Grant
from gateway.auth.server.clients import Client
from gateway.auth.server.codes import Code
from gateway.contract import Json


class Ask(Protocol):
    """What the flows ask of the house, from their thread."""

    def client(self, client_id: str) -> Client | None: ...

    def secret_is(self, client: Client, secret: str) -> bool: ...

    def assertion(self, form: Mapping[str, str]) -> Client | None: ...

    def scopes(self, client: Client, wanted: str | None) -> str: ...

    def resource(self, given: Sequence[str]) -> str | None: ...

    def save_code(self, asked: "Asked", client: Client, approved: "Approved") -> str: ...

    def redeem(self, code: str, client: Client) -> Code | None: ...

    def grant(self, code: Code) -> Grant | None: ...

    def tokens(self, grant: Grant, *, refreshable: bool) -> Json: ...

    def refresh(self, token: str, client: Client, resource: str | None) -> Json | None: ...

    def service(self, client: Client, scopes: str, resource: str) -> Grant: ...

    def revoke(self, token: str, client: Client) -> None: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """An authorization request that was found good."""

    scopes: str
    resource: str
    challenge: str
    redirect_uri: str


@dataclass(frozen=True, slots=True)
class Approved:
    """Who agreed, and to how much of it."""

    tenant: str
    subject: str
    scopes: str
