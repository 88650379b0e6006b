"""Parts of a remote backend's entry: the gateway's own credential there, and what a child process may use.

`backends:`, the three kinds of entry, and what is served without one.
"""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AliasChoices, BeforeValidator, Discriminator, Field, SecretStr, Tag, model_validator

from gateway.settings.base import Section
from gateway.settings.values import CallSeconds, Count, Effect, ModuleName, Tree, WebAddress, problems

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


class ConcurrencyLimits(Section):
    """How many calls a remote backend gets at a time."""

    max_calls: Count = Field(default=64, description="Calls under way at a time.")
    max_calls_per_tenant: Count | None = Field(
        default=None, description="Calls of one tenant under way at a time; three quarters of max_calls unless given."
    )
    max_waiting: int = Field(default=256, ge=0, description="Calls that may wait for their turn; more are refused.")

    @property
    def per_tenant(self) -> int:
        return min(self.max_calls, self.max_calls_per_tenant or max(1, self.max_calls * 3 // 4))


class _Backend(Section):
    effects: dict[str, Effect] = Field(
        default={},
        description="Effect by tool: 0 reads, 1 writes idempotently, 2 writes, 3 destroys or leaves the house.",
    )
    timeouts: dict[str, CallSeconds] = Field(default={}, description="Deadline by tool, in seconds.")
    timeout: CallSeconds | None = Field(
        default=None, description="Deadline of every tool not named in timeouts, in seconds."
    )
    faults: Literal["result", "protocol"] | None = Field(
        default=None, description="Whether a failed call is a result with isError or a JSON-RPC error."
    )
    clean: tuple[Literal["text", "secrets"], ...] | None = Field(
        default=None,
        description="Taken out of its results: hidden text, what looks like secrets; text for modules, else nothing.",
    )
    max_result_bytes: dict[str, Count] = Field(
        default={}, description="Largest result by tool, * for every tool, below calls.max_result_bytes."
    )
    media_types: tuple[str, ...] | None = Field(
        default=None,
        description="Kinds of content that its results may hold beside text, such as image/*.",
    )
    enabled: bool = Field(default=True, description="Whether it is served.")


class ModuleBackend(_Backend):
    """A backend in this process."""

    module: ModuleName = Field(
        description="Python module and attribute, package.module[:attribute]; the attribute is `server` unless given."
    )
    options: Tree = Field(default={}, description="The module's own settings, checked by the module.")

    @property
    def target(self) -> tuple[str, str]:
        """The module's name and the attribute in it."""
        module, _, attribute = self.module.partition(":")
        return module, attribute or "server"


def _transport(text: Any) -> Any:
    return "http" if text in ("streamable-http", "streamableHttp") else text


class UrlBackend(_Backend, ConcurrencyLimits):
    """A remote MCP server."""

    url: WebAddress = Field(description="Address of the server's MCP endpoint.")
    transport: Annotated[Literal["http", "sse"], BeforeValidator(_transport)] = Field(
        default="http",
        validation_alias=AliasChoices("transport", "type"),
        description="Streamable HTTP or the older SSE; may be written as `type`, as clients' own files do.",
    )
    headers: dict[str, SecretStr] = Field(default={}, description="Headers sent with every request.")
    headers_file: dict[str, Path] = Field(default={}, description="Files that hold headers' values, by header.")
    oauth: OAuthClient | None = Field(default=None, description="Where the gateway gets a token of its own for it.")
    allow_private: bool = Field(
        default=False, description="Whether its address, and that of its tokens, may lie in a private network."
    )


class CommandBackend(_Backend, ConcurrencyLimits):
    """An MCP server run as a child process."""

    command: str = Field(min_length=1, description="Program to run.")
    type: Literal["stdio"] = Field(default="stdio", description="Accepted because clients' own files write it.")
    args: tuple[str, ...] = Field(default=(), description="Arguments of the program.")
    env: dict[str, SecretStr] = Field(default={}, description="Environment of the program, beside a clean one.")
    env_file: dict[str, Path] = Field(default={}, description="Files that hold variables' values, by variable.")
    cwd: Path | None = Field(default=None, description="Folder the program runs in.")
    isolation: Literal["shared", "tenant", "user"] = Field(
        default="tenant", description="Whether one process serves everybody, one tenant or one user."
    )
    limits: ProcessLimits = Field(default=ProcessLimits(), description="What each process may use.")
    max_processes: Count = Field(default=32, description="Processes at a time, 8 for one owner; idle ones make room.")


KINDS: Final[Mapping[str, type[_Backend]]] = {"module": ModuleBackend, "url": UrlBackend, "command": CommandBackend}


def _kind(entry: Any) -> str | None:
    given = [kind for kind, model in KINDS.items() if isinstance(entry, model) or _names(entry, kind)]
    return given[0] if len(given) == 1 else None


def _names(entry: Any, key: str) -> bool:
    return isinstance(entry, dict) and key in entry


BackendEntry = Annotated[
    Annotated[ModuleBackend, Tag("module")]
    | Annotated[UrlBackend, Tag("url")]
    | Annotated[CommandBackend, Tag("command")],
    Discriminator(_kind, custom_error_type="kind", custom_error_message="needs exactly one of module, url, command"),
]

_SHIPPED: Final = (  # namespace, module, packages of the extra it needs
    ("core", "backends.core", ()),
    ("project", "backends.core:project", ()),
    ("workflow", "backends.workflow", ()),
    ("knowledge", "backends.knowledge", ()),
    ("launch", "backends.launch", ("tree_sitter", "hugo")),
)


def default_backends() -> "dict[str, BackendEntry]":
    return {
        namespace: ModuleBackend(module=module)
        for namespace, module, packages in _SHIPPED
        if _installed(module.partition(":")[0], whole=True) and all(map(_installed, packages))
    }


def _installed(module: str, *, whole: bool = False) -> bool:
    """Whether it can be found; if `whole`, not as a mere folder without an `__init__.py`, which is found too."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return False
    return found is not None and not (whole and found.origin is None)
