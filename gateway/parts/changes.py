"""Changes of what is listed: from one worker to the others, and to the clients."""

from collections.abc import Callable, Coroutine
from typing import Any

from gateway.catalogue.catalogue import Catalogue
from gateway.contract import Backend, Json, ListChange
from gateway.protocol.hub import Hub
from gateway.protocol.news import News
from gateway.upstream.bridge import EVERYWHERE
from gateway.upstream.home import CURRENT_CALL


class Changes:
    def __init__(
        self,
        catalogue: Catalogue,
        hub: Hub,
        news: News,
        backend: Callable[[str], Backend | None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._catalogue = catalogue
        self._hub = hub
        self._news = news
        self._backend = backend
        self._spawn = spawn
        catalogue.on_change(hub.changed)
        news.on("change", self._changed_elsewhere)

    def tell_others(self, namespace: str, change: ListChange) -> None:
        """A module's change happens in one worker; a remote server tells each of them itself, as an editor does."""
        if (here := CURRENT_CALL.get(None)) is not None and EVERYWHERE in here.meta:
            return
        self._spawn(self._news.tell("change", {"namespace": namespace, "change": list(change)}))

    def tell_of_policies(self) -> None:
        """Every caller's lists may be others now."""
        for namespace in self._catalogue.snapshots:
            self._hub.changed(namespace, ListChange("tools"))

    def _changed_elsewhere(self, about: Json) -> None:
        namespace, change = about["namespace"], ListChange(*about["change"])
        backend = self._backend(namespace)
        if change.kind == "resource":
            self._hub.changed(namespace, change)
        elif backend is not None:
            self._spawn(self._catalogue.refresh(backend, change))
