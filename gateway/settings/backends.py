"""Section `backends`: entries for modules, remote servers (`url`), APIs (`openapi`), child processes (`command`)."""

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AliasChoices, BeforeValidator, Discriminator, Field, SecretStr, Tag, model_validator

from gateway.contract.shipped import shipped_backends
from gateway.settings.accounts import BackendAccount
from gateway.settings.base import Section
from gateway.settings.shape import ShapeSection, ToolRuleSettings
from gateway.settings.values import CallSeconds, Count, Effect, ModuleName, Tree, WebAddress, problems

NonNegative = Annotated[int, Field(ge=0)]


class OAuthClient(Section):
    """How the gateway gets its own token for a backend, with the client credentials grant."""

    token_url: WebAddress | None = Field(default=None, description="URL of the token endpoint, unless issuer is set.")
    issuer: WebAddress | None = Field(
        default=None, description="Authorization server whose metadata contain the token endpoint."
    )
    client_id: str = Field(
        default="", description="Client id of the gateway at the authorization server; optional with assertion_file."
    )
    client_secret: SecretStr | None = Field(default=None, description="Client secret, unless client_key is set.")
    client_secret_file: Path | None = Field(default=None, description="File that contains the client secret.")
    client_key: SecretStr | None = Field(
        default=None,
        description="Private key (P-256 or RSA, as PEM or JWK) for client authentication with private_key_jwt.",
    )
    client_key_file: Path | None = Field(default=None, description="File that contains the private key.")
    assertion_file: Path | None = Field(
        default=None,
        description="File with an identity token of this workload, such as a Kubernetes service account token, which "
        "is read at each use.",
    )
    assertion_use: Literal["grant", "client"] = Field(
        default="grant",
        description="Whether the identity token is the grant (jwt-bearer) or authenticates the client.",
    )
    scope: str | None = Field(default=None, description="Scopes to request, separated by spaces.")
    resource: str | None = Field(
        default=None,
        description="Resource indicator (RFC 8707); by default the url of the backend, omitted if empty.",
    )
    method: Literal["basic", "post"] | None = Field(
        default=None,
        description="How the client secret is sent; by default as in the issuer's metadata, else basic.",
    )

    @model_validator(mode="after")
    def _check_exclusive_fields(self) -> "OAuthClient":
        if (self.token_url is None) == (self.issuer is None):
            raise problems((("token_url",), "give either token_url or issuer"))
        if self.assertion_file is not None:
            if self.client_secret is not None or self.client_key is not None:
                raise problems((("assertion_file",), "give either assertion_file, client_secret or client_key"))
        elif (self.client_secret is None) == (self.client_key is None):
            raise problems((("client_secret",), "give either client_secret or client_key"))
        if not self.client_id and (self.assertion_file is None or self.assertion_use == "client"):
            raise problems((("client_id",), "is required"))
        if self.client_key is not None and self.method is not None:
            raise problems((("method",), "applies to client_secret only; remove it or use client_secret"))
        return self


class ProcessLimits(Section):
    """Resource limits of each process of a command; 0 means no limit."""

    memory_mb: NonNegative = Field(default=0, description="Maximum writable memory, in MiB.")
    cpu_seconds: NonNegative = Field(default=0, description="Maximum total CPU time, after which it is killed.")
    files: NonNegative = Field(default=0, description="Maximum number of open files and sockets.")
    processes: NonNegative = Field(
        default=0,
        description="Maximum number of processes and threads of the gateway's user above which it can start no more.",
    )


class ConcurrencyLimits(Section):
    """Limits on concurrent calls to a remote backend."""

    max_calls: Count = Field(default=64, description="Maximum concurrent calls.")
    max_calls_per_tenant: Count | None = Field(
        default=None, description="Maximum concurrent calls per tenant; by default three quarters of max_calls."
    )
    max_waiting: int = Field(default=256, ge=0, description="Maximum queued calls; further calls are rejected.")

    @property
    def per_tenant(self) -> int:
        return min(self.max_calls, self.max_calls_per_tenant or max(1, self.max_calls * 3 // 4))


class _Backend(ShapeSection):
    tools: tuple[ToolRuleSettings, ...] = Field(
        default=(), description="Rules for its tools, by canonical id; the first that matches decides."
    )
    effects: dict[str, Effect] = Field(
        default={},
        description="Effect by tool name or pattern, such as delete_*: 0 reads, 1 writes idempotently, 2 writes, "
        "3 destroys or sends data outside; `gatehouse check` rejects a name that matches no tool.",
    )
    timeouts: dict[str, CallSeconds] = Field(default={}, description="Timeout by tool, in seconds.")
    timeout: CallSeconds | None = Field(
        default=None, description="Timeout in seconds of all tools that timeouts does not list."
    )
    faults: Literal["result", "protocol"] | None = Field(
        default=None, description="Whether a failed call returns a result with isError or a JSON-RPC error."
    )
    clean: tuple[Literal["text", "secrets"], ...] | None = Field(
        default=None,
        description="What to remove from results: hidden text (text), secrets (secrets); by default text for modules.",
    )
    max_result_bytes: dict[str, Count] = Field(
        default={}, description="Maximum result size by tool, * for all tools; at most calls.max_result_bytes."
    )
    media_types: tuple[str, ...] | None = Field(
        default=None,
        description="Media types allowed in results in addition to text, such as image/*.",
    )
    enabled: bool = Field(default=True, description="Whether the backend is served.")


class ModuleBackend(_Backend):
    """A backend that runs in this process."""

    module: ModuleName = Field(
        description="Python module and attribute, package.module[:attribute]; the default attribute is `server`."
    )
    options: Tree = Field(default={}, description="Settings of the module, which validates them itself.")

    @property
    def target(self) -> tuple[str, str]:
        """The module's name and the attribute in it."""
        module, _, attribute = self.module.partition(":")
        return module, attribute or "server"


class _RemoteBackend(_Backend, ConcurrencyLimits):
    trust: Literal["strict", "annotations", "client"] = Field(
        default="annotations",
        description="Which tools need approval by their effect: 2 and above (strict), 3 (annotations), or only those "
        "that effects sets to 3 (client: the users' clients ask); policies that require approval always apply.",
    )


def _transport(text: Any) -> Any:
    return "http" if text in ("streamable-http", "streamableHttp") else text


class _HttpBackend(_RemoteBackend):
    headers: dict[str, SecretStr] = Field(default={}, description="Headers sent with every request.")
    headers_file: dict[str, Path] = Field(default={}, description="Files that contain header values, by header.")
    oauth: OAuthClient | None = Field(
        default=None,
        description="OAuth client of the gateway for this server; with account, it only reads the shared lists.",
    )
    ca_file: Path | None = Field(
        default=None, description="Certificate authorities (PEM) of this server, in addition to outbound.ca_file."
    )
    allow_private: bool = Field(
        default=False, description="Whether the server and its token endpoint may be in a private network."
    )


class UrlBackend(_HttpBackend):
    """A remote MCP server."""

    url: WebAddress = Field(description="URL of the server's MCP endpoint.")
    transport: Annotated[Literal["http", "sse"], BeforeValidator(_transport)] = Field(
        default="http",
        validation_alias=AliasChoices("transport", "type"),
        description="Streamable HTTP (http) or the older SSE (sse); may also be written as `type`, as in client files.",
    )
    account: BackendAccount | None = Field(
        default=None, description="Whether each caller uses a credential of its own at this server."
    )

    @model_validator(mode="after")
    def _check_account(self) -> "UrlBackend":
        if self.account is not None and self.transport == "sse":
            raise problems((("account",), "needs Streamable HTTP; the SSE transport has no accounts"))
        return self


class OperationPatterns(Section):
    """Selects operations of an API; an operation that matches any of the patterns is selected."""

    tags: tuple[str, ...] = Field(default=(), description="Patterns of tags, such as `pets`.")
    paths: tuple[str, ...] = Field(default=(), description="Patterns of paths, such as `/pets/*`; * matches / too.")
    operations: tuple[str, ...] = Field(
        default=(), description="Patterns of operation ids such as `list*`, or of method and path such as `GET /pets*`."
    )


class OpenApiBackend(_HttpBackend):
    """An HTTP API described by an OpenAPI document; each of its operations is a tool."""

    openapi: str = Field(min_length=1, description="File or URL of the OpenAPI 3 document, as JSON or YAML.")
    url: WebAddress = Field(description="Base URL of the API; the servers that the document names are ignored.")
    include: OperationPatterns = Field(
        default=OperationPatterns(), description="The operations to serve; all if it is empty."
    )
    exclude: OperationPatterns = Field(
        default=OperationPatterns(), description="Operations not to serve, even if include selects them."
    )

    @property
    def document_url(self) -> str | None:
        """The URL of the document; None if it is a file."""
        return self.openapi if re.match(r"https?://", self.openapi, re.IGNORECASE) else None


class CommandBackend(_RemoteBackend):
    """An MCP server run as a child process."""

    command: str = Field(min_length=1, description="Program to run.")
    type: Literal["stdio"] = Field(
        default="stdio", description="Accepted for compatibility with client configurations."
    )
    args: tuple[str, ...] = Field(default=(), description="Arguments of the program.")
    env: dict[str, SecretStr] = Field(
        default={}, description="Environment variables of the program, in addition to a minimal environment."
    )
    env_file: dict[str, Path] = Field(default={}, description="Files that contain variable values, by variable.")
    cwd: Path | None = Field(default=None, description="Working directory of the program.")
    isolation: Literal["shared", "tenant", "user"] = Field(
        default="tenant", description="Whether a process serves all callers, one tenant or one user."
    )
    limits: ProcessLimits = Field(default=ProcessLimits(), description="Resource limits of each process.")
    max_processes: Count = Field(
        default=32, description="Maximum number of processes, at most 8 per owner; idle processes are stopped first."
    )


KINDS: Final[Mapping[str, type[_Backend]]] = {
    "module": ModuleBackend,
    "url": UrlBackend,
    "openapi": OpenApiBackend,
    "command": CommandBackend,
}


def _kind_of(entry: Any) -> str | None:
    kinds = [kind for kind, model in KINDS.items() if isinstance(entry, model) or _has_key(entry, kind)]
    if "openapi" in kinds:  # its `url` is the address of the API
        kinds = [kind for kind in kinds if kind != "url"]
    return kinds[0] if len(kinds) == 1 else None


def _has_key(entry: Any, key: str) -> bool:
    return isinstance(entry, dict) and key in entry


BackendEntry = Annotated[
    Annotated[ModuleBackend, Tag("module")]
    | Annotated[OpenApiBackend, Tag("openapi")]
    | Annotated[UrlBackend, Tag("url")]
    | Annotated[CommandBackend, Tag("command")],
    Discriminator(
        _kind_of,
        custom_error_type="kind",
        custom_error_message="needs exactly one of module, url, openapi, command",
    ),
]


def default_backends() -> "dict[str, BackendEntry]":
    """The shipped modules whose packages are installed. Served if the settings have no `backends`."""
    return {
        namespace: ModuleBackend(module=shipped.module)
        for namespace, shipped in shipped_backends().items()
        if shipped.default
        and _is_installed(shipped.module.partition(":")[0], regular=True)
        and all(map(_is_installed, shipped.packages))
    }


def _is_installed(module: str, *, regular: bool = False) -> bool:
    """Whether the module can be imported. With `regular`, a folder without an `__init__.py` does not count."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return False
    return found is not None and not (regular and found.origin is None)
