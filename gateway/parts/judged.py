"""What these settings could not serve: the judgements that a start makes, with nothing opened."""

from collections.abc import Iterator

from gateway.contract import Manifest
from gateway.parts.remotes import judge_remote
from gateway.parts.ruling import judge_policies
from gateway.settings import Backend, ModuleBackend, Settings
from gateway.upstream.load import LoadError, imported


def refusals(settings: Settings) -> Iterator[LoadError]:
    """One for each backend that is enabled and cannot be served, and for policies that cannot be used."""
    yield from backend_refusals(settings)
    try:
        judge_policies(settings)
    except LoadError as exc:
        yield exc


def backend_refusals(settings: Settings) -> Iterator[LoadError]:
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
