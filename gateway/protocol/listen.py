"""`subscriptions/listen`: one long answer that tells of changes until the client leaves."""

from typing import Any, Final, cast

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.view import View
from gateway.contract import Call, Json, ListChange, Result
from gateway.protocol.caps import Caps
from gateway.protocol.floor import seen
from gateway.protocol.hub import LIST_CHANGED, UPDATED, Hub, Target, updated

SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
_FLAGS: Final = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}


class Listen:
    """The end of the short path for a subscription."""

    def __init__(self, catalogue: Catalogue, hub: Hub, caps: Caps) -> None:
        self._catalogue = catalogue
        self._hub = hub
        self._caps = caps

    async def __call__(self, call: Call) -> Result:
        with self._caps.held(call.caller, "subscriptions"):
            return await self._listen(call)

    async def _listen(self, call: Call) -> Result:
        view = seen(self._catalogue, call)
        granted, targets = _grant(cast("Json", call.params["notifications"]), view)
        meta: Json = {SUBSCRIPTION_ID: call.request_id}

        def hears(namespace: str, change: ListChange) -> tuple[str, Json] | None:
            if namespace not in self._namespaces(call) or not call.caller.may_receive(change.owner):
                return None
            if change.kind == "resource":
                shown = targets.get((namespace, change.uri))
                return (UPDATED, updated(shown, change, meta)) if shown is not None else None
            return (LIST_CHANGED[change.kind], {"_meta": meta}) if granted.get(_FLAGS[change.kind]) else None

        # Attached before the acknowledgement is written: what changes meanwhile is not lost.
        ear = self._hub.attach(hears)
        try:
            await self._hub.want(ear, call.caller, call.client, frozenset(targets))
            await call.wire.notify(
                "notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": granted}
            )
            while (notification := await ear.next()) is not None:
                await call.wire.notify(*notification)
        finally:
            self._hub.detach(ear)
            self._hub.drop(ear)
        return {"_meta": meta}

    def _namespaces(self, call: Call) -> set[str]:
        view = self._catalogue.view(call.caller, call.endpoint)
        return set(view.namespaces) if view else set()


def _grant(wanted: Json, view: View) -> tuple[Json, dict[Target, str]]:
    """What is acknowledged: only resources that are in the caller's view, under the URIs the client used."""
    granted: Json = {flag: True for flag in _FLAGS.values() if wanted.get(flag) is True}
    uris = cast("list[Any]", wanted.get("resourceSubscriptions") or [])
    targets: dict[Target, str] = {}
    for uri in uris:
        if isinstance(uri, str) and (route := view.resource(uri)) is not None:
            targets[(route.namespace, route.name)] = uri
    if targets:
        granted["resourceSubscriptions"] = list(targets.values())
    return granted, targets
