"""Sends `notifications/resources/updated` to subscribers after a commit."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, cast

from mcp.server.session import ServerSession
from mcp.types import Notification, NotificationParams, RequestId, ServerNotification
from pydantic import ConfigDict, Field

from backends.knowledge import uris
from backends.knowledge.unit_of_work import Change, RecordedTransaction
from gateway.contract import Json

MAX_IDS: Final = 50


class _Params(NotificationParams):
    """Carries the change both at the top level (for raw clients) and in `_meta` (for SDK clients)."""

    model_config = ConfigDict(extra="allow")

    uri: str = Field(alias="uri")


class _Updated(Notification[_Params, Literal["notifications/resources/updated"]]):
    method: Literal["notifications/resources/updated"] = "notifications/resources/updated"
    params: _Params


class ChangeNotifier:
    """Holds the subscribed URIs of each tenant and notifies the subscribers of committed changes.

    A write costs nothing extra when its tenant has no subscription.
    """

    def __init__(self) -> None:
        self._subscribed: dict[str, set[str]] = {}

    def subscribe(self, tenant: str, uri: str) -> None:
        self._subscribed.setdefault(tenant, set()).add(uri)

    def unsubscribe(self, tenant: str, uri: str) -> None:
        remaining = self._subscribed.get(tenant, set())
        remaining.discard(uri)
        if not remaining:
            self._subscribed.pop(tenant, None)

    async def notify(
        self, tenant: str, session: ServerSession, request_id: RequestId, transactions: list[RecordedTransaction]
    ) -> None:
        """Notify subscribers after a commit.

        The notification is sent within the call, so that the gateway delivers it to the caller's tenant only.
        """
        subscribed = self._subscribed.get(tenant)
        if not subscribed:
            return
        for payload in notification_payloads(transactions):
            for uri in _matching(subscribed, payload["resource_uri"]):
                params: dict[str, Any] = {"uri": uri, **payload, "_meta": payload}
                update = _Updated(params=_Params.model_validate(params))
                await session.send_notification(cast("ServerNotification", update), related_request_id=request_id)


def _matching(subscribed: set[str], changed: str) -> list[str]:
    """Return the subscribed URIs that match a changed URI: the URI itself, or a search of it."""
    return sorted(uri for uri in subscribed if uri == changed or uri.startswith(f"{changed}?"))


def notification_payloads(transactions: list[RecordedTransaction]) -> Iterator[Json]:
    """Yield one payload per resource and change type, with the newest transaction that changed it."""
    if not transactions:
        return
    changes = [(transaction.id, change) for transaction in transactions for change in transaction.changes]
    groups: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for transaction_id, change in changes:
        for uri in _affected_uris(change):
            key = (uri, "upsert" if change.after is not None else "delete")
            _, ids = groups.get(key, ("", []))
            groups[key] = (transaction_id, [*ids, change.id])
    for (uri, change_type), (transaction_id, ids) in groups.items():
        yield _payload(uri, transaction_id, change_type, ids)
    yield _payload(uris.TRANSACTIONS, transactions[-1].id, "upsert", (transaction.id for transaction in transactions))


def _payload(uri: str, transaction_id: str, change_type: str, ids: Iterable[str]) -> Json:
    return {
        "resource_uri": uri,
        "tx_id": transaction_id,
        "change_type": change_type,
        "changed_ids": list(dict.fromkeys(ids))[-MAX_IDS:],
    }


def _affected_uris(change: Change) -> list[str]:
    changed = [uris.LISTS[change.kind], uris.item_uri(change.kind, change.id)]
    # Entries show the entity that their topic names, so an entity change also affects the list of entries.
    return [*changed, uris.ENTRIES] if change.kind == "entity" else changed
