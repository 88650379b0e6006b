"""What the operator decided: `gatehouse.yaml`, overridden by the environment, checked whole before anything starts.

The only reader of settings files and of the environment. `load` raises `SettingsError`, one line for each mistake.
"""

import difflib
import importlib.util
import ipaddress
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast, get_args
from urllib.parse import urlsplit

import yaml
from limits import parse_many as parse_rates
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    IPvAnyNetwork,
    PrivateAttr,
    SecretStr,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import SettingsError as UndecodableError

from gateway.errors import Fault
from gateway.state.names import checked

FILE: Final = "gatehouse.yaml"
PREFIX: Final = "GATEHOUSE__"

Tree = dict[str, Any]
Where = tuple[str | int, ...]
Problem = tuple[Where, str]


class SettingsError(Exception):
    """Settings that cannot be used; `lines` says where and why, one mistake each, never with a value from them."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


# ---- what may be set ----------------------------------------------------------------------------------------------


def _problems(*problems: Problem) -> PydanticCustomError:
    """What a validator raises to report several mistakes, each at its place below the section that found it."""
    return PydanticCustomError("problems", "{problems}", {"problems": problems})


def _web_address(text: str) -> str:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or "?" in text or "#" in text:
        raise ValueError("expected an address such as https://example.org, without query or fragment")
    return text.rstrip("/")


def _rate(text: str) -> str:
    try:
        good = len(parse_rates(text)) == 1
    except ValueError:
        good = False
    if not good:
        raise ValueError('expected a rate such as "600/minute"')
    return text


def is_loopback(host: str) -> bool:
    """Whether a server bound to `host` can be reached from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def http_address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _tenant_name(text: str) -> str:
    try:
        return checked(text, "tenant")
    except Fault as fault:
        raise ValueError(fault.message) from None


def _spelled(pattern: str, expected: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"expected {expected}")
        return text

    return AfterValidator(check)


Namespace = Annotated[
    str, _spelled("[a-z][a-z0-9-]{0,19}", "a lower-case letter, then at most 19 of a-z, 0-9 and hyphen")
]
TenantName = Annotated[str, AfterValidator(_tenant_name)]
ModuleName = Annotated[str, _spelled(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?", "package.module[:attribute]")]
WebAddress = Annotated[str, AfterValidator(_web_address)]
Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0)]
CallSeconds = Annotated[float, Field(gt=0, le=3600)]
Count = Annotated[int, Field(gt=0)]
Effect = Annotated[int, Field(ge=0, le=3)]


class Section(BaseModel):
    """A closed, frozen part of the settings. A secret `x` may be given as `x_file`, the file that holds it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _read_secrets(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        read = dict(cast("Tree", data))
        for name in cls.model_fields:
            given = read.get(f"{name}_file")
            if f"{name}_file" not in cls.model_fields or given is None:
                continue
            if isinstance(given, dict):
                read[name] = _secrets(name, read.get(name), cast("Tree", given))
            elif read.get(name) is not None:
                raise _problems(((f"{name}_file",), f"give {name} or {name}_file, not both"))
            else:
                read[name] = _secret((f"{name}_file",), given)
        return read


def _secrets(name: str, given: Any, files: Tree) -> Tree:
    direct = cast("Tree", given) if isinstance(given, dict) else {}
    if twice := [key for key in files if key in direct]:
        raise _problems(*(((f"{name}_file", key), f"give it in {name} or {name}_file, not both") for key in twice))
    return direct | {key: _secret((f"{name}_file", key), path) for key, path in files.items()}


def _secret(at: Where, path: Any) -> str:
    try:
        return Path(str(path)).read_text("utf-8").strip()
    except OSError as exc:
        raise _problems((at, f"cannot read that file: {exc.strerror}")) from None
    except UnicodeDecodeError:
        raise _problems((at, "that file is not UTF-8 text")) from None


class Server(Section):
    """Where and how the gateway listens."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: Port = Field(default=8080, description="Port to listen on; 0 takes any free one.")
    public_url: WebAddress = Field(
        default_factory=lambda data: http_address(data["host"], data["port"]),
        description="Address that clients reach the gateway by; derived from host and port unless given.",
    )
    ops_port: Port | None = Field(default=None, description="Port of their own for health, metrics, API and console.")
    allowed_hosts: tuple[str, ...] = Field(default=(), description="Host headers accepted beside those of public_url.")
    allowed_origins: tuple[str, ...] = Field(default=(), description="Origins whose pages may call the gateway.")
    trusted_proxies: tuple[IPvAnyNetwork, ...] = Field(
        default=(), description="Networks whose forwarded headers are believed."
    )
    max_body_bytes: Count = Field(default=4 * 1024 * 1024, description="Largest request body.")
    header_timeout: Seconds = Field(default=10, description="Seconds a client may take to send its headers.")
    body_timeout: Seconds = Field(default=30, description="Seconds a client may take to send its body.")
    min_body_rate: int = Field(default=1024, ge=0, description="Bytes a second below which a body is cut off.")
    idle_timeout: Seconds = Field(default=60, description="Seconds an unused connection stays open.")
    write_timeout: Seconds = Field(default=30, description="Seconds a client may leave an answer unread.")
    max_connections: Count = Field(default=4096, description="Connections open at one time.")
    max_connections_per_ip: int = Field(default=1024, ge=0, description="Connections from one address; 0 is no limit.")
    max_header_bytes: Count = Field(default=32768, description="Size of all headers of a request together.")
    max_headers: Count = Field(default=100, description="Number of headers of a request.")
    workers: Count = Field(default=1, description="Processes that serve.")

    def public_url_at(self, port: int) -> str:
        """The public address once the port is known that was bound for port 0."""
        return self.public_url if "public_url" in self.model_fields_set else http_address(self.host, port)


class Auth(Section):
    """Who may call."""

    mode: Literal["embedded", "external", "none"] = Field(
        default="embedded",
        description="Keys and tokens of our own, tokens of an identity provider, or nobody is asked.",
    )


class Tenant(Section):
    """What one tenant may see."""

    backends: tuple[str, ...] = Field(default=("*",), description="Namespaces the tenant may use; * is all of them.")
    read_only: bool = Field(default=False, description="Whether tools that write are withheld.")


class _Backend(Section):
    options: Tree = Field(default={}, description="The module's own settings, checked by the module.")
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
    enabled: bool = Field(default=True, description="Whether it is served.")


class ModuleBackend(_Backend):
    """A backend in this process."""

    module: ModuleName = Field(
        description="Python module and attribute, package.module[:attribute]; the attribute is `server` unless given."
    )

    @property
    def target(self) -> tuple[str, str]:
        """The module's name and the attribute in it."""
        module, _, attribute = self.module.partition(":")
        return module, attribute or "server"


def _transport(text: Any) -> Any:
    return "http" if text in ("streamable-http", "streamableHttp") else text


class UrlBackend(_Backend):
    """A remote MCP server."""

    url: WebAddress = Field(description="Address of the server's MCP endpoint.")
    transport: Annotated[Literal["http", "sse"], BeforeValidator(_transport)] = Field(
        default="http",
        validation_alias=AliasChoices("transport", "type"),
        description="Streamable HTTP or the older SSE; may be written as `type`, as clients' own files do.",
    )
    headers: dict[str, SecretStr] = Field(default={}, description="Headers sent with every request.")
    headers_file: dict[str, Path] = Field(default={}, description="Files that hold headers' values, by header.")
    allow_private: bool = Field(default=False, description="Whether the address may lie in a private network.")


class CommandBackend(_Backend):
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


_KINDS: Final[Mapping[str, type[_Backend]]] = {"module": ModuleBackend, "url": UrlBackend, "command": CommandBackend}


def _kind(entry: Any) -> str | None:
    given = [kind for kind, model in _KINDS.items() if isinstance(entry, model) or _names(entry, kind)]
    return given[0] if len(given) == 1 else None


def _names(entry: Any, key: str) -> bool:
    return isinstance(entry, dict) and key in entry


Backend = Annotated[
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


def _default_backends() -> "dict[str, Backend]":
    return {
        namespace: ModuleBackend(module=module)
        for namespace, module, packages in _SHIPPED
        if all(map(_installed, (module.partition(":")[0], *packages)))
    }


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class VirtualServer(Section):
    """Some backends under an address of their own, /mcp/{name}."""

    backends: tuple[str, ...] = Field(min_length=1, description="Namespaces it serves.")
    names: Literal["underscore", "dotted", "bare"] = Field(
        default="underscore", description="How tools are named: namespace_tool, namespace.tool, or tool."
    )


class Names(Section):
    """The names that clients see."""

    max_length: int = Field(default=64, ge=32, description="Longest name that clients accept.")
    client_prefix_budget: int = Field(
        default=16, ge=0, description="Part of max_length left for prefixes that clients add."
    )

    @model_validator(mode="after")
    def _room(self) -> "Names":
        if self.max_length - self.client_prefix_budget < 32:
            raise _problems((("client_prefix_budget",), "leaves fewer than 32 characters of max_length for the name"))
        return self


class Limits(Section):
    """How much one principal may ask for."""

    calls: Annotated[str, AfterValidator(_rate)] = Field(default="600/minute", description="Calls of one principal.")


class Catalogue(Section):
    """What is remembered of the backends' lists."""

    ttl: Seconds = Field(default=60, description="Seconds until a backend's lists are read again.")
    page_size: Count = Field(default=100, description="Entries in one page of a list.")
    keep_stale: float = Field(default=86400, ge=0, description="Seconds a dead backend's tools stay listed.")


class Calls(Section):
    """Bounds of one call."""

    deadline: CallSeconds = Field(default=60, description="Seconds a call may take unless its tool says otherwise.")
    max_arguments_bytes: Count = Field(default=1024 * 1024, description="Largest arguments.")
    max_result_bytes: Count = Field(default=8 * 1024 * 1024, description="Largest result.")


class Audit(Section):
    """The record of who did what."""

    enabled: bool = Field(default=True, description="Whether calls are recorded.")


class Log(Section):
    """What the process says of itself on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe message shown."
    )
    format: Literal["json", "text"] = Field(
        default_factory=lambda: "text" if sys.stderr.isatty() else "json",
        description="One JSON object a line, or text; text by default when standard error is a terminal.",
    )


class Settings(BaseSettings):
    """Everything an operator can decide. Immutable, complete, and true of itself."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    server: Server = Field(default=Server(), description="Where and how the gateway listens.")
    data_dir: Path = Field(default=Path(".gatehouse"), description="Folder of the database and keys.")
    files_dir: Path = Field(
        default_factory=lambda data: data["data_dir"] / "files",
        description="Folder of what backends must keep as files; inside data_dir unless given.",
    )
    auth: Auth = Field(default=Auth(), description="Who may call.")
    tenants: dict[TenantName, Tenant] = Field(default={"default": Tenant()}, description="Tenants set at every start.")
    backends: dict[Namespace, Backend] = Field(
        default_factory=_default_backends, description="What is served, by namespace; the shipped set unless given."
    )
    servers: dict[Namespace, VirtualServer] = Field(default={}, description="Virtual servers, by name.")
    names: Names = Field(default=Names(), description="The names that clients see.")
    limits: Limits = Field(default=Limits(), description="How much one principal may ask for.")
    catalogue: Catalogue = Field(default=Catalogue(), description="What is remembered of the backends' lists.")
    calls: Calls = Field(default=Calls(), description="Bounds of one call.")
    audit: Audit = Field(default=Audit(), description="The record of who did what.")
    log: Log = Field(default_factory=Log, description="What the process says of itself.")

    _source: Path | None = PrivateAttr(None)

    @property
    def source(self) -> Path | None:
        """The file these were read from, if any."""
        return self._source

    def read_from(self, source: Path | None) -> "Settings":
        copy = self.model_copy()
        copy._source = source
        return copy

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # Only `load` reads the environment: settings built in code are what the code says.
        return (init_settings,)

    @model_validator(mode="after")
    def _agree(self) -> "Settings":
        if problems := [*self._server_problems(), *self._virtual_server_problems()]:
            raise _problems(*problems)
        return self

    def _server_problems(self) -> Iterator[Problem]:
        if self.auth.mode == "none" and not is_loopback(self.server.host):
            yield ("server", "host"), "auth.mode none serves loopback only; use 127.0.0.1 or another auth.mode"
        if self.server.workers > 1:
            yield ("server", "workers"), "more than one worker needs a shared bus (bus.url: redis://…); set workers: 1"

    def _virtual_server_problems(self) -> Iterator[Problem]:
        for name, server in self.servers.items():
            if name in self.backends:
                yield ("servers", name), f"a backend is named {name} too; rename one of them"
            if server.names == "bare" and len(server.backends) != 1:
                yield ("servers", name, "names"), "bare needs exactly one backend"
            for position, namespace in enumerate(server.backends):
                if namespace not in self.backends:
                    yield (
                        ("servers", name, "backends", position),
                        f"unknown backend{_nearest(namespace, self.backends)}",
                    )


# ---- where it comes from ------------------------------------------------------------------------------------------

_VARIABLE: Final = re.compile(r"\$(\$?)\{([^}]*)\}")
_SEED_VARIABLES: Final[Mapping[str, tuple[str, str]]] = {
    "GOX_BRIDGE_ENABLED": ("roblox", "bridge_enabled"),
    "ALLOW_DANGEROUS_OPS": ("godot", "allow_dangerous_ops"),
    "ALLOW_EXTERNAL_TOOLS": ("godot", "allow_external_tools"),
    "GODOT_PATH": ("godot", "godot_path"),
}
_EXPECTED: Final[Mapping[str, str]] = {
    "missing": "is required",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "string_type": "expected text",
    "string_too_short": "may not be empty",
    "path_type": "expected a path",
    "dict_type": "expected a mapping",
    "model_type": "expected a mapping",
    "tuple_type": "expected a list",
    "too_short": "needs at least one",
    "ip_any_network": "expected a network such as 10.0.0.0/8",
}


def load(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of `path`, else of `GATEHOUSE_CONFIG`, else of ./gatehouse.yaml if it exists, else the defaults."""
    environ = os.environ if environ is None else environ
    reader = _Reader(environ)
    source = _locate(path, environ)
    if source is not None:
        reader.read_file(source)
    reader.read_environment()
    if reader.problems:
        raise SettingsError(*reader.problems)
    try:
        settings = Settings(**reader.tree)
    except ValidationError as exc:
        # Not chained: the original may show values.
        raise SettingsError(*(line for error in exc.errors() for line in reader.explain(error))) from None
    return settings.read_from(source)


def _locate(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    if path is not None:
        return path
    if named := environ.get("GATEHOUSE_CONFIG"):
        return Path(named)
    return Path(FILE) if Path(FILE).exists() else None


class _Reader:
    """Gathers the values from all sources, and of each where it was written."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.tree: Tree = {}
        self.problems: list[str] = []
        self._environ = environ
        self._origins: dict[Where, str] = {}
        self._file = "settings"

    def read_file(self, path: Path) -> None:
        self._file = str(path)
        try:
            node = yaml.SafeLoader(path.read_text("utf-8")).get_single_node()
        except OSError as exc:
            raise SettingsError(f"{path}: cannot be read: {exc.strerror}") from exc
        except UnicodeDecodeError:
            raise SettingsError(f"{path}: is not UTF-8 text") from None
        except yaml.MarkedYAMLError as exc:
            raise SettingsError(f"{self._place(exc.problem_mark)}: not valid YAML: {exc.problem}") from None
        except yaml.YAMLError:
            raise SettingsError(f"{path}: not valid YAML: holds characters that are not text") from None
        if isinstance(node, yaml.MappingNode):
            # A section with nothing in it, or only comments, is a section left out.
            self.tree = {key: value for key, value in self._mapping(node, ()).items() if value is not None}
        elif node is not None:
            self.problems.append(f"{self._place(node.start_mark)}: expected a mapping of settings")

    def _mapping(self, node: yaml.MappingNode, at: Where) -> Tree:
        values: Tree = {}
        for key, value in node.value:
            here = (*at, str(key.value))
            place = self._place(key.start_mark)
            if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
                self.problems.append(f"{place}: {_dotted(at)}: expected a plain key")
            elif key.value in values:
                self.problems.append(f"{place}: {_dotted(here)}: given twice; first at {self._origins[here]}")
            else:
                self._origins[here] = place
                values[key.value] = self._value(value, here)
        return values

    def _value(self, node: yaml.Node, at: Where) -> Any:
        if len(at) > 32:  # an alias to what it is part of would never end
            raise SettingsError(f"{self._place(node.start_mark)}: nested too deeply")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, at)
        if isinstance(node, yaml.SequenceNode):
            return [self._item(item, (*at, position)) for position, item in enumerate(node.value)]
        return self._scalar(node, at)

    def _item(self, node: yaml.Node, at: Where) -> Any:
        self._origins[at] = self._place(node.start_mark)
        return self._value(node, at)

    def _scalar(self, node: yaml.Node, at: Where) -> Any:
        try:
            value = cast("Any", yaml.SafeLoader("").construct_object(node))  # pyright: ignore[reportUnknownMemberType]
        except (yaml.YAMLError, ValueError):
            self.problems.append(f"{self._place(node.start_mark)}: {_dotted(at)}: not a value that YAML knows")
            return None
        return self._expand(value, self._place(node.start_mark), at) if isinstance(value, str) else value

    def _expand(self, text: str, place: str, at: Where) -> str:
        def replacement(found: re.Match[str]) -> str:
            if found[1]:  # $${ is a plain ${
                return found[0][1:]
            name, has_default, default = found[2].partition(":-")
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                self.problems.append(f"{place}: {_dotted(at)}: expected ${{NAME}} or ${{NAME:-default}}")
            elif name not in self._environ and not has_default:
                self.problems.append(f"{place}: {_dotted(at)}: {name} is not set; set it or write ${{{name}:-default}}")
            return self._environ.get(name) or default

        return _VARIABLE.sub(replacement, text)

    def _place(self, mark: yaml.Mark | None) -> str:
        return self._file if mark is None else f"{self._file}:{mark.line + 1}:{mark.column + 1}"

    def read_environment(self) -> None:
        given = [name for name in sorted(self._environ) if name.upper().startswith(PREFIX)]
        paths = {name: _variable_path(name) for name in given}
        source = EnvSettingsSource(Settings, case_sensitive=False, env_prefix=PREFIX, env_nested_delimiter="__")
        for name, at in paths.items():
            self._origins[at] = f"environment {name}"
            _merge(self.tree, self._variable(source, name, at))
        self._read_seed_variables(frozenset(paths.values()))

    def _variable(self, source: EnvSettingsSource, name: str, at: tuple[str, ...]) -> Tree:
        text = self._environ[name]
        if text == "null":
            return _nested(at, None)
        if at[0] == "backends" and at[2:3] == ("options",) and len(at) > 3:
            return _nested(at, _option(text))
        # One at a time: a value that cannot be decoded is then known by its name, and so is one of no known section.
        source.env_vars = {PREFIX.lower() + "__".join(at): text}
        try:
            return source() or _nested(at, text)
        except UndecodableError:
            self.problems.append(f"environment {name}: {_dotted(at)}: expected JSON")
            return {}

    def _read_seed_variables(self, overridden: frozenset[tuple[str, ...]]) -> None:
        """The variables that the backends had before they lived here."""
        for name, (namespace, option) in _SEED_VARIABLES.items():
            at = ("backends", namespace, "options", option)
            if name in self._environ and at not in overridden and _names(self.tree.get("backends"), namespace):
                self._origins[at] = f"environment {name}"
                _merge(self.tree, _nested(at, self._environ[name] if name == "GODOT_PATH" else self._flag(name)))
        if "READ_ONLY_MODE" in self._environ and self._flag("READ_ONLY_MODE"):
            for tenant in self.tree.get("tenants", {"default": None}):
                _merge(self.tree, _nested(("tenants", tenant, "read_only"), True))

    def _flag(self, name: str) -> bool:
        word = self._environ[name].strip().lower()
        if word not in ("1", "true", "yes", "on", "0", "false", "no", "off", ""):
            self.problems.append(f"environment {name}: expected true or false")
        return word in ("1", "true", "yes", "on")

    def explain(self, error: ErrorDetails) -> Iterator[str]:
        """The lines of one mistake that validation found."""
        at = error["loc"]
        if error["type"] == "problems":
            for below, message in error["ctx"]["problems"]:  # pyright: ignore[reportTypedDictNotRequiredAccess]
                yield self._line((*at, *below), message)
        elif error["type"] == "extra_forbidden":
            yield self._line(at, f"unknown key{_nearest(str(at[-1]), _known_keys(at))}")
        elif error["type"] != "default_factory_not_called":  # the value it derives from is reported itself
            yield self._line(at, _EXPECTED.get(error["type"]) or _in_our_words(error["msg"]))

    def _line(self, at: Where, message: str) -> str:
        at = tuple(part for part in _untagged(at) if part != "[key]")
        return f"{self._origin(at)}: {_dotted(at)}: {message}"

    def _origin(self, at: Where) -> str:
        """Where it was written; else what is below it, else what it is part of."""
        below = (place for key, place in self._origins.items() if key[: len(at)] == at)
        above = (self._origins.get(at[:end]) for end in range(len(at), 0, -1))
        return self._origins.get(at) or next(below, None) or next(filter(None, above), self._file)


def _variable_path(name: str) -> tuple[str, ...]:
    """`GATEHOUSE__BACKENDS__MY_FILES__CWD` -> backends, my-files, cwd. Names of a child's variables keep their case."""
    parts = name[len(PREFIX) :].split("__")
    path = [part.lower() for part in parts]
    if path[0] in ("backends", "servers"):
        path[1:2] = [part.replace("_", "-") for part in path[1:2]]
    if path[0] == "backends" and path[2:3] in (["env"], ["env_file"]):
        path[3:] = parts[3:]
    return tuple(path)


def _option(text: str) -> Any:
    """A flag, list or mapping if it is one: only the module knows the types of its options. Numbers it reads itself."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        return text
    return value if text in ("true", "false") or text.lstrip()[:1] in ("[", "{") else text


def _nested(at: tuple[str, ...], value: Any) -> Tree:
    for key in reversed(at):
        value = {key: value}
    return value


def _merge(base: Tree, over: Tree) -> None:
    for key, value in over.items():
        below = base.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            _merge(cast("Tree", below), cast("Tree", value))
        else:
            base[key] = value


def _untagged(at: Where) -> Where:
    """Without the word that validation inserts for the kind of backend it chose."""
    return (*at[:2], *at[3:]) if at[0] == "backends" and at[2:3] and at[2] in _KINDS and len(at) > 3 else at


def _dotted(at: Where) -> str:
    return ".".join(map(str, at)) or "settings"


def _nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known) or 'none'}"


def _known_keys(at: Where) -> list[str]:
    """The keys that would be right where an unknown one was found."""
    models: list[type[BaseModel]] = [Settings]
    for part in at[:-1]:
        kind = _KINDS.get(str(part)) if len(models) > 1 else None
        below = [model.model_fields[str(part)].annotation for model in models if part in model.model_fields]
        models = [kind] if kind else [found for annotation in below for found in _models(annotation)] or models
    return [name for model in models for name in model.model_fields]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _in_our_words(message: str) -> str:
    message = message.removeprefix("Value error, ").replace("Input should be ", "expected ")
    return message.replace("expected greater", "expected a value greater").replace(
        "expected less", "expected a value less"
    )
