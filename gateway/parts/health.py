"""How the backends are, put together from the backend itself, its lists and the database."""

from collections.abc import Callable

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.snapshot import Snapshot
from gateway.contract import Backend, Caller, Json
from gateway.state.catalogue import CatalogueRows
from gateway.upstream.local import LocalBackend
from gateway.upstream.remote import RemoteBackend


class Healths:
    def __init__(self, catalogue: Catalogue, rows: CatalogueRows, backend: Callable[[str], Backend | None]) -> None:
        self._catalogue = catalogue
        self._rows = rows
        self._backend = backend

    async def report(self, operator: Caller | None) -> list[Json]:
        """A row for each backend that the operator's tenant may use; of others nothing is told. None sees all of them,
        and of their changed definitions those that every tenant is shown."""
        view = self._catalogue.everything() if operator is None else self._catalogue.view(operator, "/mcp")
        mine = view.namespaces if view else {}
        return [await self._row(snapshot, operator.tenant if operator else "") for snapshot in mine.values()]

    async def _row(self, snapshot: Snapshot, tenant: str) -> Json:
        namespace, offer = snapshot.backend.namespace, snapshot.offer
        backend = self._backend(namespace)
        assert isinstance(backend, LocalBackend | RemoteBackend)
        health = backend.health()
        return {
            "namespace": namespace,
            "kind": health.transport,
            "state": health.state,
            "since": health.since,
            "eras": list(health.eras),
            "breaker": health.breaker,
            "degraded": snapshot.degraded,
            "last_error": health.last_error,
            "last_error_at": health.last_error_at,
            "in_flight": health.in_flight,
            "waiting": health.waiting,
            "tools": len(offer.tools),
            "resources": len(offer.resources) + len(offer.templates),
            "prompts": len(offer.prompts),
            "quarantined": dict(snapshot.quarantined),
            "suspicious": dict(snapshot.suspicious),
            "changed": [
                {"tool": each.tool, "parts": list(each.parts), "at": each.at, "accepted": each.accepted}
                for each in (await self._rows.changes(namespace, tenant) if not backend.trusted else ())
            ],
        }
