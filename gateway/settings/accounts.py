"""Section `account` of a backend, and the sections `vault` and `outbound`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, model_validator

from gateway.settings.base import Section
from gateway.settings.values import Problem, Scope, WebAddress, problems


class _ClientSection(Section):
    client_secret: SecretStr | None = Field(default=None, description="Client secret of the gateway.")
    client_secret_file: Path | None = Field(default=None, description="File that contains the client secret.")
    client_key: SecretStr | None = Field(
        default=None,
        description="Private key (P-256 or RSA, as PEM or JWK) for client authentication with private_key_jwt.",
    )
    client_key_file: Path | None = Field(default=None, description="File that contains the private key.")

    def _client_problems(self) -> Iterator[Problem]:
        if self.client_secret is not None and self.client_key is not None:
            yield ("client_secret",), "give either client_secret or client_key"


class AccountOAuth(_ClientSection):
    """Users connect an account of their own with OAuth. Without a client id, the gateway registers itself."""

    issuer: WebAddress | None = Field(
        default=None, description="Authorization server; by default the one that the server's metadata name."
    )
    client_id: str | None = Field(
        default=None,
        min_length=1,
        description="Client id of the gateway; by default its metadata document, or a dynamic registration.",
    )
    scopes: tuple[Scope, ...] = Field(
        default=(), description="Scopes to ask for; by default those that the server names."
    )
    dpop: bool = Field(default=True, description="Whether tokens are bound to a key (DPoP) if the server supports it.")

    @model_validator(mode="after")
    def _check_client(self) -> "AccountOAuth":
        found = list(self._client_problems())
        if self.client_id is None and (self.client_secret is not None or self.client_key is not None):
            found.append((("client_id",), "is required with a client secret or key"))
        if found:
            raise problems(*found)
        return self


class AccountKey(Section):
    """Users enter a personal key."""

    header: str = Field(default="Authorization", pattern="[A-Za-z0-9-]{1,64}", description="Header of the key.")
    template: str = Field(default="Bearer {key}", description="Value of the header; {key} stands for the key.")
    help: str = Field(default="", max_length=500, description="Tells users where they get a key.")

    @model_validator(mode="after")
    def _check_template(self) -> "AccountKey":
        if "{key}" not in self.template or not (self.template.isascii() and self.template.isprintable()):
            raise problems((("template",), "expected printable ASCII with {key}"))
        if self.header.lower() in ("host", "content-length", "transfer-encoding", "connection"):
            raise problems((("header",), "this header cannot carry a key"))
        return self


class AccountExchange(_ClientSection):
    """The caller's token is exchanged for one of the server (RFC 8693)."""

    token_url: WebAddress | None = Field(default=None, description="URL of the token endpoint, unless issuer is set.")
    issuer: WebAddress | None = Field(
        default=None, description="Authorization server whose metadata contain the token endpoint."
    )
    client_id: str | None = Field(default=None, min_length=1, description="Client id of the gateway.")
    subject_token_file: Path | None = Field(
        default=None, description="File with the token to exchange; by default the caller's own access token."
    )
    audience: str | None = Field(default=None, description="Audience of the new token.")
    resource: str | None = Field(
        default=None, description="Resource indicator (RFC 8707); by default the url of the backend, omitted if empty."
    )
    scope: str | None = Field(default=None, description="Scopes of the new token, separated by spaces.")
    actor_token_file: Path | None = Field(
        default=None, description="File with the gateway's own token, which names it as the actor; read at each use."
    )

    @model_validator(mode="after")
    def _check_endpoint(self) -> "AccountExchange":
        found = list(self._client_problems())
        if (self.token_url is None) == (self.issuer is None):
            found.append((("token_url",), "give either token_url or issuer"))
        if found:
            raise problems(*found)
        return self


class AccountIdentityAssertion(_ClientSection):
    """Enterprise-managed authorization: the identity provider issues an assertion (ID-JAG) for the server."""

    provider: WebAddress = Field(description="Issuer URL of the identity provider.")
    provider_client_id: str = Field(min_length=1, description="Client id of the gateway at the identity provider.")
    provider_client_secret: SecretStr | None = Field(default=None, description="Its client secret, if it has one.")
    provider_client_secret_file: Path | None = Field(
        default=None, description="File that contains the client secret at the identity provider."
    )
    subject_token_file: Path | None = Field(
        default=None, description="File with the ID token to exchange; by default the caller's own token."
    )
    issuer: WebAddress = Field(description="Authorization server of the backend.")
    client_id: str = Field(min_length=1, description="Client id of the gateway at that authorization server.")
    resource: str | None = Field(default=None, description="Resource identifier; by default the url of the backend.")
    scope: str | None = Field(default=None, description="Scopes to request, separated by spaces.")

    @model_validator(mode="after")
    def _check_client(self) -> "AccountIdentityAssertion":
        if found := list(self._client_problems()):
            raise problems(*found)
        return self


class BackendAccount(Section):
    """How calls to a backend get the caller's own credential. Exactly one of the keys is set."""

    oauth: AccountOAuth | None = Field(default=None, description="Users connect an account with OAuth.")
    key: AccountKey | None = Field(default=None, description="Users enter a personal key.")
    exchange: AccountExchange | None = Field(default=None, description="The caller's token is exchanged (RFC 8693).")
    id_jag: AccountIdentityAssertion | None = Field(
        default=None, description="The identity provider vouches for the caller (ID-JAG)."
    )

    @model_validator(mode="after")
    def _check_kind(self) -> "BackendAccount":
        if sum(each is not None for each in (self.oauth, self.key, self.exchange, self.id_jag)) != 1:
            raise problems(((), "needs exactly one of oauth, key, exchange, id_jag"))
        return self


class VaultSettings(Section):
    """The vault that holds the tokens and keys of users. By default its master key is a file in data_dir/secrets."""

    key: SecretStr | None = Field(
        default=None, description="Master key: 32 bytes as Base64, from the environment or a file (key_file)."
    )
    key_file: Path | None = Field(default=None, description="File that contains the master key.")
    key_command: tuple[str, ...] = Field(
        default=(), description="Program and arguments that print the master key, such as a client of a key service."
    )
    former_key_files: tuple[Path, ...] = Field(
        default=(), description="Files with former master keys, needed until `gatehouse vault rotate` has run."
    )

    @model_validator(mode="after")
    def _check_source(self) -> "VaultSettings":
        if self.key is not None and self.key_command:
            raise problems((("key_command",), "give either key, key_file or key_command"))
        return self


def _proxy(value: SecretStr | None) -> SecretStr | None:
    if value is not None:
        from gateway.outbound.route import Proxy  # a package with an HTTP client, which commands do not need

        Proxy.parse(value.get_secret_value())
    return value


class OutboundSettings(Section):
    """How outgoing requests leave the network."""

    proxy: Annotated[SecretStr | None, AfterValidator(_proxy)] = Field(
        default=None,
        description="HTTP proxy for all outgoing connections, as http://[user:password@]host:port.",
    )
    proxy_file: Path | None = Field(default=None, description="File that contains the URL of the proxy.")
    no_proxy: tuple[str, ...] = Field(
        default=(), description="Hosts reached directly: names with their subdomains, addresses, networks, or *."
    )
    ca_file: Path | None = Field(
        default=None, description="Certificate authorities (PEM) that are trusted in addition to those of the system."
    )
