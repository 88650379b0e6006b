"""All sections together, and what they must agree on."""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from gateway.settings.auth import AuthSettings
from gateway.settings.backends import BackendEntry, default_backends
from gateway.settings.limits import LimitSettings, ShareSettings, StreamSettings
from gateway.settings.merge import MergedValues
from gateway.settings.server import ServerSettings
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
from gateway.settings.values import Namespace, Problem, TenantName, Where, is_loopback, nearest, problems


class Settings(BaseSettings):
    """Everything an operator can decide. Immutable, complete, and true of itself."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    server: ServerSettings = Field(default=ServerSettings(), description="Where and how the gateway listens.")
    data_dir: Path = Field(default=Path(".gatehouse"), description="Folder of the database and keys.")
    files_dir: Path = Field(
        default_factory=lambda data: data["data_dir"] / "files",
        description="Folder of what backends must keep as files; inside data_dir unless given.",
    )
    files_shared: bool = Field(
        default=False, description="Whether files_dir is one volume that all processes share; the operator's word."
    )
    database: DatabaseSettings = Field(default=DatabaseSettings(), description="Where tables are kept.")
    bus: BusSettings = Field(default=BusSettings(), description="How several processes tell each other things.")
    auth: AuthSettings = Field(default=AuthSettings(), description="Who may call.")
    tenants: dict[TenantName, TenantSettings] = Field(
        default={"default": TenantSettings()}, description="Tenants set at every start."
    )
    backends: dict[Namespace, BackendEntry] = Field(
        default_factory=default_backends, description="What is served, by namespace; the shipped set unless given."
    )
    servers: dict[Namespace, VirtualServer] = Field(default={}, description="Virtual servers, by name.")
    names: NameSettings = Field(default=NameSettings(), description="The names that clients see.")
    limits: LimitSettings = Field(default=LimitSettings(), description="How much one principal may ask for.")
    shares: ShareSettings = Field(
        default=ShareSettings(), description="What one caller may have under way at each backend."
    )
    streams: StreamSettings = Field(default=StreamSettings(), description="Event streams that may be open.")
    catalogue: CatalogueSettings = Field(
        default=CatalogueSettings(), description="What is remembered of the backends' lists."
    )
    calls: CallSettings = Field(default=CallSettings(), description="Bounds of one call.")
    policies: PolicySettings = Field(default=PolicySettings(), description="Who may do what.")
    audit: AuditSettings = Field(default=AuditSettings(), description="The record of who did what.")
    log: LogSettings = Field(default_factory=LogSettings, description="What the process says of itself.")
    telemetry: TelemetrySettings = Field(
        default=TelemetrySettings(), description="What is told of calls to whoever watches."
    )
    console: ConsoleSettings = Field(default=ConsoleSettings(), description="The operator's page at /console.")

    _source: Path | None = PrivateAttr(None)
    _gathered: MergedValues | None = PrivateAttr(None)

    @property
    def source(self) -> Path | None:
        """The file these were read from, if any."""
        return self._source

    @property
    def absent(self) -> Mapping[str, Sequence[str]]:
        """Variables that backends rely on and that are not set, by namespace: only where `load` was told to bear it."""
        return {} if self._gathered is None else self._gathered.absent

    def placed(self, at: Where, line: str) -> str:
        """That line about a setting, with the place where it was written before it, if it was written."""
        place = None if self._gathered is None else self._gathered.place(at)
        return line if place is None else f"{place}: {line}"

    def read_from(self, source: Path | None, gathered: MergedValues) -> "Settings":
        copy = self.model_copy()
        copy._source = source
        copy._gathered = gathered
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
        if found := [*self._server_problems(), *self._virtual_server_problems()]:
            raise problems(*found)
        return self

    def _server_problems(self) -> Iterator[Problem]:
        if self.auth.mode == "none" and not is_loopback(self.server.host):
            yield ("server", "host"), "auth.mode none serves loopback only; use 127.0.0.1 or another auth.mode"
        elif self.auth.mode == "none" and not is_loopback(urlsplit(self.server.public_url).hostname or ""):
            yield ("server", "public_url"), "auth.mode none serves loopback only, also by way of a proxy"
        if self.server.workers > 1 and self.bus.url is None:
            yield ("server", "workers"), "more than one worker needs a shared bus; set bus.url to a redis:// address"
        for section, at, package in (("database", self.database, "asyncpg"), ("bus", self.bus, "redis")):
            if at.url is not None and importlib.util.find_spec(package) is None:
                extra = "postgres" if package == "asyncpg" else package
                yield (section, "url"), f"needs the extra {extra}: pip install 'gatehouse[{extra}]'"

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
                        f"unknown backend{nearest(namespace, self.backends)}",
                    )
