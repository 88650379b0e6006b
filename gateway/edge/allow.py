"""Allow-lists of Host and Origin values, compiled once and remembered by raw header bytes."""

import re
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address
from typing import Final

_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?(?::([0-9]{0,5}))?").fullmatch
_ORIGIN: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(.+)").fullmatch
_DEFAULT_PORTS: Final = {"http": frozenset({"80"}), "https": frozenset({"443"})}
_EITHER_DEFAULT: Final = frozenset({"80", "443"})
_REMEMBERED: Final = 1_024


class AllowedHosts:
    """Entries: `host` (the default port), `host:port`, `host:*`, and `*.example.com` for every name below it."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._authorities = _Authorities(_EITHER_DEFAULT)
        for entry in entries:
            self._authorities.add(entry)
        self.allows = _Memory(self._authorities.has)


class AllowedOrigins:
    """Entries: `scheme://` before what `AllowedHosts` takes, or the word `null`."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._null = False
        self._schemes: dict[str, _Authorities] = {}
        for entry in entries:
            self._add(entry.strip().lower())
        self.allows = _Memory(self._has)

    def _add(self, entry: str) -> None:
        if entry == "null":
            self._null = True
            return
        parts = _ORIGIN(entry)
        if parts is None:
            raise ValueError(f"{entry!r} is not an origin such as https://app.example.com")
        scheme, authority = parts.groups()
        ports = _DEFAULT_PORTS.get(scheme, frozenset[str]())
        self._schemes.setdefault(scheme, _Authorities(ports)).add(authority)

    def _has(self, origin: str) -> bool:
        if origin == "null":
            return self._null
        parts = _ORIGIN(origin)
        if parts is None:
            return False
        authorities = self._schemes.get(parts[1])
        return authorities is not None and authorities.has(parts[2])


class _Authorities:
    """A set of `host:port`; a wildcard host is kept with its leading dot."""

    def __init__(self, default_ports: frozenset[str]) -> None:
        self._default_ports = default_ports
        self._exact: set[tuple[str, str]] = set()
        self._any_port: set[str] = set()

    def add(self, entry: str) -> None:
        text = entry.strip().lower()
        wildcard, text = text.startswith("*."), text.removeprefix("*.")
        any_port, text = text.endswith(":*"), text.removesuffix(":*")
        split = self._split(text)
        if split is None:
            raise ValueError(
                f"{entry!r} is not a host such as example.com, example.com:8080, example.com:* or *.example.com"
            )
        host, port = split
        if wildcard:
            host = f".{host}"
        if any_port:
            self._any_port.add(host)
        else:
            self._exact.add((host, port))

    def has(self, authority: str) -> bool:
        split = self._split(authority)
        if split is None:
            return False
        host, port = split
        return any(name in self._any_port or (name, port) in self._exact for name in _self_and_wildcards(host))

    def _split(self, authority: str) -> tuple[str, str] | None:
        parts = _HOST(authority)
        if parts is None:
            return None
        host, port = parts[1], parts[2] or ""
        if host.startswith("["):
            try:
                host = f"[{IPv6Address(host[1:-1]).compressed}]"
            except ValueError:
                return None
        return host, "" if port in self._default_ports else port


def _self_and_wildcards(host: str) -> Iterable[str]:
    yield host
    dot = host.find(".")
    while dot != -1:
        yield host[dot:]
        dot = host.find(".", dot + 1)


class _Memory:
    """What a slow question answered, by raw header bytes; a flood of new ones costs the old ones."""

    __slots__ = ("_ask", "_known")

    def __init__(self, ask: Callable[[str], bool]) -> None:
        self._ask = ask
        self._known: dict[bytes, bool] = {}

    def __call__(self, raw: bytes) -> bool:
        known = self._known.get(raw)
        return self._learn(raw) if known is None else known

    def _learn(self, raw: bytes) -> bool:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        answer = self._known[raw] = self._ask(raw.decode("latin-1").strip(" \t").lower())
        return answer
