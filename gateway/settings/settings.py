"""`Settings`: all sections, and the checks that involve several of them."""

import importlib.util
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from gateway.settings.accounts import OutboundSettings, VaultSettings
from gateway.settings.approvals import ApprovalSettings
from gateway.settings.auth import AuthSettings
from gateway.settings.backends import BackendEntry, default_backends
from gateway.settings.limits import LimitSettings, ShareSettings, StreamSettings, TaskSettings
from gateway.settings.merge import MergedValues
from gateway.settings.server import ServerSettings
from gateway.settings.shape import rule_problems
from gateway.settings.small_sections import (
    AuditSettings,
    BusSettings,
    CallSettings,
    CatalogueSettings,
    ConsoleSettings,
    DatabaseSettings,
    LogSettings,
    NameSettings,
    PolicySettings,
    TenantSettings,
    VirtualServer,
)
from gateway.settings.telemetry import TelemetrySettings
from gateway.settings.values import (
    Namespace,
    Problem,
    SettingPath,
    TenantName,
    Tree,
    dotted_path,
    is_loopback,
    parse_flag,
    problems,
    suggest,
)


class Settings(BaseSettings):
    """All settings of the gateway. Immutable, complete and consistent."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    server: ServerSettings = Field(default=ServerSettings(), description="The HTTP server.")
    data_dir: Path = Field(default=Path(".gatehouse"), description="Folder for the database and keys.")
    files_dir: Path = Field(
        default_factory=lambda data: data["data_dir"] / "files",
        description="Folder for the files of backends; by default inside data_dir.",
    )
    files_shared: bool = Field(
        default=False, description="Whether files_dir is a volume that all processes share; not verified."
    )
    database: DatabaseSettings = Field(default=DatabaseSettings(), description="The database.")
    bus: BusSettings = Field(default=BusSettings(), description="Message bus between processes.")
    auth: AuthSettings = Field(default=AuthSettings(), description="Authentication.")
    tenants: dict[TenantName, TenantSettings] = Field(
        default={"default": TenantSettings()}, description="Tenants to create or update at every start, by name."
    )
    backends: dict[Namespace, BackendEntry] = Field(
        default_factory=default_backends, description="Backends, by namespace; by default the shipped ones."
    )
    vault: VaultSettings = Field(default=VaultSettings(), description="The vault of users' tokens and keys.")
    outbound: OutboundSettings = Field(default=OutboundSettings(), description="Proxy and certificate authorities.")
    servers: dict[Namespace, VirtualServer] = Field(default={}, description="Virtual servers, by name.")
    names: NameSettings = Field(default=NameSettings(), description="Names of tools and prompts in lists.")
    limits: LimitSettings = Field(default=LimitSettings(), description="Rate limits.")
    shares: ShareSettings = Field(
        default=ShareSettings(), description="Concurrent calls of one tenant or principal at each backend."
    )
    streams: StreamSettings = Field(default=StreamSettings(), description="Limits on open event streams.")
    tasks: TaskSettings = Field(default=TaskSettings(), description="Calls that outlive their connection.")
    catalogue: CatalogueSettings = Field(default=CatalogueSettings(), description="Caching of the backends' lists.")
    calls: CallSettings = Field(default=CallSettings(), description="Limits of one call.")
    policies: PolicySettings = Field(default=PolicySettings(), description="Authorization policies.")
    approvals: ApprovalSettings = Field(default=ApprovalSettings(), description="Approval by other people.")
    audit: AuditSettings = Field(default=AuditSettings(), description="The audit log.")
    log: LogSettings = Field(default_factory=LogSettings, description="The log on standard error.")
    telemetry: TelemetrySettings = Field(default=TelemetrySettings(), description="Traces and metrics.")
    console: ConsoleSettings = Field(default=ConsoleSettings(), description="The operator console at /console.")

    _source: Path | None = PrivateAttr(None)
    _merged: MergedValues | None = PrivateAttr(None)
    _environ: Mapping[str, str] = PrivateAttr({})

    @property
    def source(self) -> Path | None:
        """The file these were read from, if any."""
        return self._source

    @property
    def missing_variables(self) -> Mapping[str, Sequence[str]]:
        """Unset variables of backends, by namespace. Empty unless `load` was called with `allow_missing_variables`."""
        return {} if self._merged is None else self._merged.missing_variables

    def with_origin(self, key_path: SettingPath, line: str) -> str:
        """Prefix a line about a setting with the position of the setting, if it was set."""
        origin = None if self._merged is None else self._merged.find_origin(key_path)
        return line if origin is None else f"{origin}: {line}"

    def options_with_aliases(
        self, namespace: str, options: Tree, aliases: Mapping[str, str], flags: Collection[str]
    ) -> Tree:
        """The options of a module, overridden by the environment variables `aliases` (variable -> option).

        A variable with the prefix `GATEHOUSE__` takes precedence. `flags` are the boolean options. Raises `ValueError`.
        """
        found = dict(options)
        for name, option in aliases.items():
            key_path = ("backends", namespace, "options", option)
            if name in self._environ and self._merged is not None and not self._merged.is_from_environment(key_path):
                self._merged.aliases[key_path] = f"environment {name}"
                text = self._environ[name]
                value = parse_flag(text) if option in flags else text
                if value is None:
                    raise ValueError(f"{dotted_path(key_path)}: expected true or false")
                found[option] = value
        return found

    def with_source(self, source: Path | None, merged: MergedValues, environ: Mapping[str, str]) -> "Settings":
        copy = self.model_copy()
        copy._source = source
        copy._merged = merged
        copy._environ = environ
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
        # Only `load` reads the environment. Settings built in code use the given values only.
        return (init_settings,)

    @model_validator(mode="after")
    def _check_consistency(self) -> "Settings":
        if found := [*self._server_problems(), *self._virtual_server_problems(), *self._rule_problems()]:
            raise problems(*found)
        return self

    def _server_problems(self) -> Iterator[Problem]:
        if self.auth.mode == "none" and not is_loopback(self.server.host):
            yield ("server", "host"), "auth.mode none is allowed on loopback only; use 127.0.0.1 or another auth.mode"
        elif self.auth.mode == "none" and not is_loopback(urlsplit(self.server.public_url).hostname or ""):
            yield (
                ("server", "public_url"),
                "auth.mode none is allowed on loopback only, also behind a proxy; use another auth.mode",
            )
        if self.server.workers > 1 and self.bus.url is None:
            yield ("server", "workers"), "more than one worker needs a shared bus; set bus.url to a redis:// address"
        if (ca_file := self.outbound.ca_file) is not None and not ca_file.is_file():
            yield ("outbound", "ca_file"), "the file does not exist"
        for name, section, package in (("database", self.database, "asyncpg"), ("bus", self.bus, "redis")):
            if section.url is not None and importlib.util.find_spec(package) is None:
                extra = "postgres" if package == "asyncpg" else package
                yield (name, "url"), f"needs the extra {extra} of gatehouse-mcp"

    def _virtual_server_problems(self) -> Iterator[Problem]:
        for name, server in self.servers.items():
            if name in self.backends:
                yield ("servers", name), f"a backend has the name {name} as well; rename one of them"
            if server.names == "bare" and len(server.backends) != 1:
                yield ("servers", name, "names"), "bare needs exactly one backend"
            for position, namespace in enumerate(server.backends):
                if namespace not in self.backends:
                    yield (
                        ("servers", name, "backends", position),
                        f"unknown backend{suggest(namespace, self.backends)}",
                    )

    def _rule_problems(self) -> Iterator[Problem]:
        max_name = self.names.max_length - self.names.client_prefix_budget
        for name, server in self.servers.items():
            yield from rule_problems(("servers", name), server.tools.rules, server.prompts, max_name)
        for namespace, backend in self.backends.items():
            yield from rule_problems(("backends", namespace), backend.tools, backend.prompts, max_name)
