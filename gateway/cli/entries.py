"""The backends as the operator wrote them, for `check` and `backends list`."""

from dataclasses import dataclass

from gateway.settings import Backend, CommandBackend, ModuleBackend, UrlBackend


@dataclass(frozen=True, slots=True)
class Entry:
    """One of them."""

    namespace: str
    kind: str
    target: str
    served: bool


def entry_of(namespace: str, backend: Backend) -> Entry:
    """`served` as far as the settings say."""
    match backend:
        case ModuleBackend():
            return Entry(namespace, "module", ":".join(backend.target), backend.enabled)
        case UrlBackend():
            return Entry(namespace, "url", backend.url, backend.enabled)
        case CommandBackend():
            # Arguments may hold secrets; the program's name does not.
            return Entry(namespace, "command", backend.command, backend.enabled)
