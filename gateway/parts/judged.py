"""Which backends could not be served: the judgements that a start makes, with nothing opened."""

from collections.abc import Iterator

from gateway.contract import Manifest
from gateway.parts.remotes import judge_remote
from gateway.settings import Backend, ModuleBackend, Settings
from gateway.upstream.load import imported
from gateway.upstream.refusal import LoadError


def backend_refusals(settings: Settings) -> Iterator[LoadError]:
    """One for each that is enabled and cannot be served."""
    for namespace, entry in settings.backends.items():
        if entry.enabled:
            try:
                judge(settings, namespace, entry)
            except LoadError as exc:
                yield exc


def judge(settings: Settings, namespace: str, entry: Backend) -> None:
    """Raises `LoadError` for an entry that a gateway would refuse. A module is imported, but not made."""
    if isinstance(entry, ModuleBackend):
        _, manifest, _ = imported(namespace, *entry.target, entry.options)
        judge_files(settings, namespace, manifest)
    else:
        judge_remote(namespace, entry)


def judge_files(settings: Settings, namespace: str, manifest: Manifest) -> None:
    """Raises `LoadError` for a module that works on files where not every process sees the same ones."""
    if manifest.executor and settings.bus.url is not None and not settings.files_shared:
        raise LoadError(
            f"backends.{namespace}: it works on files, which every process must see:"
            " make files_dir one shared volume and set files_shared: true, or serve it without bus.url"
        )
