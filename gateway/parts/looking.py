"""What operators may look at, composed for `app.py`: the last calls, those under way, and whose."""

from collections.abc import Callable, Sequence
from time import perf_counter_ns

from gateway.contract import Call, Caller, Json
from gateway.settings import Settings
from gateway.state.audit_file import FILE as AUDIT
from gateway.state.calls import Calls
from gateway.telemetry.span import target


class Looking:
    """`owner` is a principal who sees every tenant beside those that the settings name."""

    def __init__(self, settings: Settings, owner: str | None, under_way: Callable[[], Sequence[Call]]) -> None:
        self._organisation = frozenset((*settings.console.organisation, *((owner,) if owner else ())))
        self._under_way = under_way
        at = settings.database.url
        self.calls = Calls(settings.data_dir / AUDIT, at.get_secret_value() if at is not None else None)

    def reach(self, operator: Caller) -> str | None:
        """The tenant that an operator may look at; None for all of them."""
        names = (operator.principal, *(f"{operator.tenant}/group:{group}" for group in operator.groups))
        return None if self._organisation.intersection(names) else operator.tenant

    def under_way(self, tenant: str | None) -> list[Json]:
        """The calls at a backend now, the longest first."""
        now = perf_counter_ns()
        mine = [call for call in self._under_way() if tenant in (None, call.caller.tenant)]
        shown: list[Json] = [
            {
                "correlation_id": call.id,
                "tenant": call.caller.tenant,
                "principal": call.caller.principal,
                "target": target(call),
                "seconds": (now - call.record.started) / 1e9,
            }
            for call in mine
        ]
        return sorted(shown, key=lambda each: -each["seconds"])
