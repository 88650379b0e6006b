"""Parts of a remote backend's entry: the gateway's own credential there, and what a child process may use."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from gateway.settings.section import Section
from gateway.settings.values import Count, WebAddress, problems

Bound = Annotated[int, Field(ge=0)]


class OAuthClient(Section):
    """A token of the gateway's own, by the client credentials grant."""

    token_url: WebAddress | None = Field(default=None, description="Where tokens are asked for; or give issuer.")
    issuer: WebAddress | None = Field(
        default=None, description="Authorization server whose metadata say where tokens are asked for."
    )
    client_id: str = Field(min_length=1, description="Name of the gateway at the authorization server.")
    client_secret: SecretStr | None = Field(default=None, description="Its secret there; or give client_key.")
    client_secret_file: Path | None = Field(default=None, description="File that holds the secret.")
    client_key: SecretStr | None = Field(
        default=None,
        description="Its private key (P-256 or RSA, as PEM or JWK), with which it proves who it is (private_key_jwt).",
    )
    client_key_file: Path | None = Field(default=None, description="File that holds the key.")
    scope: str | None = Field(default=None, description="Scopes to ask for, separated by blanks.")
    resource: str | None = Field(
        default=None,
        description="Resource the token is for (RFC 8707); the backend's own url unless given, none if empty.",
    )
    method: Literal["basic", "post"] | None = Field(
        default=None,
        description="How the secret is sent; as the issuer's metadata say, else in the Authorization header.",
    )

    @model_validator(mode="after")
    def _one_of_each(self) -> "OAuthClient":
        if (self.token_url is None) == (self.issuer is None):
            raise problems((("token_url",), "give either token_url or issuer"))
        if (self.client_secret is None) == (self.client_key is None):
            raise problems((("client_secret",), "give either client_secret or client_key"))
        if self.client_key is not None and self.method is not None:
            raise problems((("method",), "it says how a secret is sent; a key is never sent"))
        return self


class ProcessLimits(Section):
    """What each process of a command may use; 0 is no limit."""

    memory_mb: Bound = Field(default=0, description="Memory it may write to, in MiB.")
    cpu_seconds: Bound = Field(default=0, description="Processor time it may use in its life; then it is ended.")
    files: Bound = Field(default=0, description="Files and sockets it may have open.")
    processes: Bound = Field(
        default=0, description="Processes and threads of the gateway's user, all told, beyond which it can start none."
    )


class Room(Section):
    """How many calls a remote backend gets at a time."""

    max_calls: Count = Field(default=64, description="Calls under way at a time.")
    max_calls_per_tenant: Count | None = Field(
        default=None, description="Calls of one tenant under way at a time; three quarters of max_calls unless given."
    )
    max_waiting: int = Field(default=256, ge=0, description="Calls that may wait for their turn; more are refused.")

    @property
    def per_tenant(self) -> int:
        return min(self.max_calls, self.max_calls_per_tenant or max(1, self.max_calls * 3 // 4))
