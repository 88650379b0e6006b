"""What the operator decided: `gatehouse.yaml`, overridden by the environment, checked whole before anything starts.

The only reader of settings files and of the environment. `load` raises `SettingsError`, one line for each mistake.
"""

from gateway.settings.auth import Auth, Introspection, Issuer
from gateway.settings.backends import BackendEntry, CommandBackend, ModuleBackend, UrlBackend, default_backends
from gateway.settings.base import Section
from gateway.settings.environment import PREFIX
from gateway.settings.limits import Limits
from gateway.settings.merge import SettingsError
from gateway.settings.reader import FILE, load
from gateway.settings.server import Server
from gateway.settings.settings import Settings
from gateway.settings.small_sections import Audit, Calls, Catalogue, Log, Names, Tenant, VirtualServer
from gateway.settings.values import http_address, is_loopback

__all__ = [
    "FILE",
    "PREFIX",
    "Audit",
    "Auth",
    "BackendEntry",
    "Calls",
    "Catalogue",
    "CommandBackend",
    "Introspection",
    "Issuer",
    "Limits",
    "Log",
    "ModuleBackend",
    "Names",
    "Section",
    "Server",
    "Settings",
    "SettingsError",
    "Tenant",
    "UrlBackend",
    "VirtualServer",
    "default_backends",
    "http_address",
    "is_loopback",
    "load",
]
