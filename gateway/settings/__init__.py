"""Settings of the gateway: `gatehouse.yaml`, overridden by environment variables, validated before anything starts.

No other package reads the settings file or the environment. `load` raises `SettingsError` with one line per mistake.
"""

from gateway.settings.auth import AuthSettings, IntrospectionSettings, IssuerSettings
from gateway.settings.backends import (
    BackendEntry,
    CommandBackend,
    ModuleBackend,
    OpenApiBackend,
    OperationPatterns,
    UrlBackend,
    default_backends,
)
from gateway.settings.base import Section
from gateway.settings.environment import PREFIX
from gateway.settings.limits import LimitSettings
from gateway.settings.merge import SettingsError
from gateway.settings.reader import FILE, load
from gateway.settings.server import ServerSettings
from gateway.settings.settings import Settings
from gateway.settings.small_sections import (
    AuditSettings,
    CallSettings,
    CatalogueSettings,
    LogSettings,
    NameSettings,
    TenantSettings,
    VirtualServer,
)
from gateway.settings.values import http_address, is_loopback

__all__ = [
    "FILE",
    "PREFIX",
    "AuditSettings",
    "AuthSettings",
    "BackendEntry",
    "CallSettings",
    "CatalogueSettings",
    "CommandBackend",
    "IntrospectionSettings",
    "IssuerSettings",
    "LimitSettings",
    "LogSettings",
    "ModuleBackend",
    "NameSettings",
    "OpenApiBackend",
    "OperationPatterns",
    "Section",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "TenantSettings",
    "UrlBackend",
    "VirtualServer",
    "default_backends",
    "http_address",
    "is_loopback",
    "load",
]
