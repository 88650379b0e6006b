"""Data for the operator API and the console: call history, usage, backend health and policy explanations."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.snapshot import Snapshot
from gateway.contract import Backend, Bus, Call, Caller, Json
from gateway.policy.active_policies import ActivePolicies
from gateway.policy.explain import PolicyExplainer
from gateway.protocol.stream_limits import StreamLimits
from gateway.settings import Settings
from gateway.stages.limit import Limit
from gateway.stages.share import Share
from gateway.state.audit_sqlite import FILE as AUDIT
from gateway.state.call_history import CallHistory
from gateway.state.catalogue_rows import CatalogueRows
from gateway.state.tenants import Tenant
from gateway.state.windows import WindowCharge
from gateway.telemetry.span import call_target
from gateway.upstream.local import LocalBackend
from gateway.upstream.remote import RemoteBackend

if TYPE_CHECKING:
    from gateway.state.redis_windows import RedisWindows


class OperatorCallHistory:
    """Finished and running calls. `owner` may see all tenants, like the principals of `console.organisation`."""

    def __init__(self, settings: Settings, owner: str | None, under_way: Callable[[], Sequence[Call]]) -> None:
        self._organisation = frozenset((*settings.console.organisation, *((owner,) if owner else ())))
        self._under_way = under_way
        at = settings.database.url
        self.calls = CallHistory(settings.data_dir / AUDIT, at.get_secret_value() if at is not None else None)

    def visible_tenant(self, operator: Caller) -> str | None:
        """The tenant that an operator may see; None for all tenants."""
        names = (operator.principal, *(f"{operator.tenant}/group:{group}" for group in operator.groups))
        return None if self._organisation.intersection(names) else operator.tenant

    def running(self, tenant: str | None) -> list[Json]:
        """The calls running at backends now, longest first."""
        now = perf_counter_ns()
        mine = [call for call in self._under_way() if tenant in (None, call.caller.tenant)]
        shown: list[Json] = [
            {
                "correlation_id": call.id,
                "tenant": call.caller.tenant,
                "principal": call.caller.principal,
                "target": call_target(call),
                "seconds": (now - call.record.started) / 1e9,
            }
            for call in mine
        ]
        return sorted(shown, key=lambda each: -each["seconds"])


_TOPIC: Final = "usage"
_ANSWER_SECONDS: Final = 0.5
"""Seconds to wait for the other workers' answers; missing ones are left out."""
_MAX_ROWS: Final = 1000
"""Maximum rows of each kind: those with the highest usage."""


class UsageReporter:
    """Collects the usage of limits, shares and streams from all workers."""

    def __init__(
        self, limit: Limit, share: Share, stream_limits: StreamLimits, bus: Bus, windows: "RedisWindows | None"
    ) -> None:
        self._limit = limit
        self._share = share
        self._stream_limits = stream_limits
        self._bus = bus
        self._windows = windows

    async def report(self, operator: Caller) -> Json:
        """Return the usage of the operator's tenant as a `UsageReport` object."""
        reports = [self._local_usage(operator.tenant), *await self._peer_usage(operator.tenant)]
        return {
            "tenant": operator.tenant,
            "workers": len(reports),
            "limits": await self._limit_rows(reports),
            "shares": _sum_rows(reports, "shares", ("backend", "principal"), ("running", "waiting")),
            "open": _sum_rows(reports, "open", ("principal",), ("streams", "subscriptions")),
        }

    async def run(self) -> None:
        """Answer requests of the other workers."""
        async with self._bus.subscribe(_TOPIC) as requests:
            async for request in requests:
                if request["from"] != self._bus.worker:
                    await self._bus.push(request["answers"], self._local_usage(request["tenant"]), _ANSWER_SECONDS * 4)

    async def _peer_usage(self, tenant: str) -> list[Json]:
        if self._windows is None:
            return []
        answers, received = f"usage:{secrets.token_hex(8)}", list[Json]()
        await self._bus.publish(_TOPIC, {"from": self._bus.worker, "tenant": tenant, "answers": answers})
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                while True:
                    if (report := await self._bus.pop(answers, _ANSWER_SECONDS)) is not None:
                        received.append(report)
        return received

    def _local_usage(self, tenant: str) -> Json:
        shares = self._share.usage()
        rows = [
            {"backend": backend, "principal": principal, "running": running, "waiting": waiting}
            for (backend, principal), (running, waiting) in shares["principals"].items()
            if principal.partition("/")[0] == tenant
        ]
        held: dict[str, Json] = {}
        for (principal, kind), count in self._stream_limits.usage(tenant).items():
            held.setdefault(principal, {"principal": principal, "streams": 0, "subscriptions": 0})[kind] = count
        limits = [
            {"key": key, "limit": rule.name, "counts": rule.counts, "charge": list(charge), "taken": taken}
            for key, (rule, charge, taken) in self._limit.usage(tenant).items()
        ]
        return {"limits": limits, "shares": rows, "open": list(held.values())}

    async def _limit_rows(self, reports: list[Json]) -> list[Json]:
        """One row per window in use, in this process, in other workers or in Redis."""
        found: dict[str, Json] = {}
        for each in (row for report in reports for row in report["limits"]):
            known = found.setdefault(each["key"], {**each, "taken": 0.0})
            known["taken"] += each["taken"]
        rows = list(found.values())
        if self._windows is not None:
            charges = [WindowCharge(*row["charge"]) for row in rows]
            for row, (taken, _) in zip(rows, await self._windows.peek(charges), strict=True):
                # `row` holds the counts of single processes, made while Redis was unreachable; add the shared count.
                row["taken"] += taken
        used = sorted((row for row in rows if row["taken"] > 0), key=lambda row: -row["taken"] / row["charge"][1])
        return [_limit_row(row) for row in used[:_MAX_ROWS]]


def _limit_row(row: Json) -> Json:
    _, _, *dimensions = row["key"].split("|")
    _, amount, seconds, _ = row["charge"]
    return {
        "limit": row["limit"],
        "of": dimensions,
        "counts": row["counts"],
        "taken": round(row["taken"], 3),
        "amount": amount,
        "seconds": seconds,
    }


def _sum_rows(reports: list[Json], kind: str, by: tuple[str, ...], add: tuple[str, ...]) -> list[Json]:
    sums: dict[tuple[Any, ...], Counter[str]] = {}
    for row in (row for report in reports for row in report[kind]):
        sums.setdefault(tuple(row[key] for key in by), Counter()).update({key: row[key] for key in add})
    rows = [{**dict(zip(by, key, strict=True)), **{name: counts[name] for name in add}} for key, counts in sums.items()]
    return sorted(rows, key=lambda row: -sum(row[name] for name in add))[:_MAX_ROWS]


class BackendHealthReporter:
    """Health of the backends, from the backend, its lists and the database."""

    def __init__(self, catalogue: Catalogue, rows: CatalogueRows, backend: Callable[[str], Backend | None]) -> None:
        self._catalogue = catalogue
        self._rows = rows
        self._backend = backend

    async def report(self, operator: Caller | None) -> list[Json]:
        """One row per backend that the operator's tenant may use. Without an operator: all backends, with the changed
        definitions that all tenants see."""
        view = self._catalogue.full_view() if operator is None else self._catalogue.view(operator, "/mcp")
        mine = view.namespaces if view else {}
        served = [each for each in mine.values() if self._backend(each.backend.namespace) is not None]
        return [await self._row(snapshot, operator.tenant if operator else "") for snapshot in served]

    async def _row(self, snapshot: Snapshot, tenant: str) -> Json:
        namespace, offer = snapshot.backend.namespace, snapshot.lists
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
            "open_tenant_breakers": health.open_tenant_breakers,
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
                {
                    "tool": each.tool,
                    "parts": list(each.parts),
                    "at": each.at,
                    "accepted": each.accepted,
                    "accepted_by": each.accepted_by,
                }
                for each in (await self._rows.list_changes(namespace, tenant) if not backend.trusted else ())
            ],
        }


class OperatorPolicyExplainer:
    """Answers operators' questions about policies with the current catalogue."""

    def __init__(self, tenant: Callable[[str], Tenant | None], policies: ActivePolicies, catalogue: Catalogue) -> None:
        self._tenant = tenant
        self._policies = policies
        self._catalogue = catalogue

    def explain(self, caller: Caller, tool: str, arguments: Json, approved: bool, own: bool = False) -> Json:
        """Explain the decision on a call and the policies behind it; `own` as in `PolicyExplainer`."""
        explain = PolicyExplainer(self._tenant, self._policies, self._catalogue.full_view().tools.get)
        return explain.explain(caller, tool, arguments, approved=approved, own_tenant_only=own).as_json()

    def visible_tools(self, caller: Caller) -> list[Json]:
        """The tools that the caller may call: as listed, without those whose scope its credential lacks."""
        view = self._catalogue.view(caller, "/mcp")
        listed = view.items("tools/list") if view else []
        explain = PolicyExplainer(self._tenant, self._policies, view.tools.get if view else lambda name: None)
        return [tool for tool in listed if explain.explain(caller, tool["name"], {}).outcome != "scope"]
