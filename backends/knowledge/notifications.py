"""Telling subscribers what a commit changed. Nobody is told of what nobody watches."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, cast

from mcp.server.session import ServerSession
from mcp.types import Notification, NotificationParams, RequestId, ServerNotification
from pydantic import ConfigDict, Field

from backends.knowledge import uris
from backends.knowledge.unit_of_work import Change, Written
from gateway.contract import Json

MAX_IDS: Final = 50


class _Params(NotificationParams):
    """The protocol's `uri`, and what changed: once at the top level and once in `_meta`, for either kind of reader."""

    model_config = ConfigDict(extra="allow")

    uri: str = Field(alias="uri")


class _Updated(Notification[_Params, Literal["notifications/resources/updated"]]):
    method: Literal["notifications/resources/updated"] = "notifications/resources/updated"
    params: _Params


class Announcer:
    """Of one server: holds the URIs that somebody of a tenant watches, so that no tenant's writes pay for another's."""

    def __init__(self) -> None:
        self._watched: dict[str, set[str]] = {}

    def watch(self, tenant: str, uri: str) -> None:
        self._watched.setdefault(tenant, set()).add(uri)

    def unwatch(self, tenant: str, uri: str) -> None:
        left = self._watched.get(tenant, set())
        left.discard(uri)
        if not left:
            self._watched.pop(tenant, None)

    async def tell(self, tenant: str, session: ServerSession, request_id: RequestId, written: list[Written]) -> None:
        """After the commit. It goes out as part of the call, so that only the caller's tenant hears of it."""
        watched = self._watched.get(tenant)
        if not watched:
            return
        for news in news_of(written):
            for uri in _watching(watched, news["resource_uri"]):
                params: dict[str, Any] = {"uri": uri, **news, "_meta": news}
                update = _Updated(params=_Params.model_validate(params))
                await session.send_notification(cast("ServerNotification", update), related_request_id=request_id)


def _watching(watched: set[str], changed: str) -> list[str]:
    """The URIs under which somebody watches it: its own, or that of a search of it."""
    return sorted(uri for uri in watched if uri == changed or uri.startswith(f"{changed}?"))


def news_of(written: list[Written]) -> Iterator[Json]:
    """One item for each resource and type of change, with the newest transaction that changed it."""
    if not written:
        return
    changes = [(each.id, change) for each in written for change in each.changes]
    groups: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for transaction_id, change in changes:
        for uri in _addresses(change):
            key = (uri, "upsert" if change.after is not None else "delete")
            _, ids = groups.get(key, ("", []))
            groups[key] = (transaction_id, [*ids, change.id])
    for (uri, change_type), (transaction_id, ids) in groups.items():
        yield _news(uri, transaction_id, change_type, ids)
    yield _news(uris.TRANSACTIONS, written[-1].id, "upsert", (each.id for each in written))


def _news(uri: str, transaction_id: str, change_type: str, ids: Iterable[str]) -> Json:
    return {
        "resource_uri": uri,
        "tx_id": transaction_id,
        "change_type": change_type,
        "changed_ids": list(dict.fromkeys(ids))[-MAX_IDS:],
    }


def _addresses(change: Change) -> list[str]:
    own = [uris.LISTS[change.kind], uris.of(change.kind, change.id)]
    # An entity is shown in the entries that its names link to.
    return [*own, uris.ENTRIES] if change.kind == "entity" else own
