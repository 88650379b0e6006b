"""Computes the snapshot of a run from its events. The journal is the only input."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from backends.launch.states import SECTIONS
from gateway.contract import Json

SCHEMA_VERSION: Final = "1.0"


def fold(events: Iterable[Json], onto: Json | None = None) -> Json:
    """Apply the events to an empty snapshot, or to `onto`, which is modified, and return the result."""
    snapshot = empty() if onto is None else onto
    for event in events:
        apply = _REDUCERS.get(event["type"])
        if apply is not None:
            apply(snapshot, event["payload"], event)
    return snapshot


def empty() -> Json:
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": "",
        "run_state": "CREATED",
        "section_states": {},
        "artifacts_index": {},
        "work_items": [],
        "issues": [],
    }


def _created(snapshot: Json, payload: Json, event: Json) -> None:
    snapshot["run_id"] = event["run_id"]
    snapshot["section_states"] = {name: "NOT_STARTED" for name in SECTIONS if name in payload["required_sections"]}


def _state(snapshot: Json, payload: Json, event: Json) -> None:
    snapshot["run_state"] = payload["new_state"]


def _section(snapshot: Json, payload: Json, event: Json) -> None:
    snapshot["section_states"][payload["section"]] = payload["state"]


def _artifact(snapshot: Json, payload: Json, event: Json) -> None:
    known = {key: payload[key] for key in ("path", "sha256", "schema_id", "writer_worker")}
    snapshot["artifacts_index"][payload["name"]] = {**known, "ts": event["ts"], "event_id": event["event_id"]}


def _queued(snapshot: Json, payload: Json, event: Json) -> None:
    snapshot["work_items"].append({**payload, "status": "queued"})


def _work(status: str) -> Callable[[Json, Json, Json], None]:
    def apply(snapshot: Json, payload: Json, event: Json) -> None:
        for item in reversed(snapshot["work_items"]):
            if item["work_item_id"] == payload["work_item_id"]:
                item.update(payload, status=status)
                return

    return apply


def _opened(snapshot: Json, payload: Json, event: Json) -> None:
    issue = payload["issue"]
    others = [known for known in snapshot["issues"] if known["issue_id"] != issue["issue_id"]]
    snapshot["issues"] = [*others, issue]


def _resolved(snapshot: Json, payload: Json, event: Json) -> None:
    for issue in snapshot["issues"]:
        if issue["issue_id"] == payload["issue_id"]:
            issue["status"] = "RESOLVED"


_REDUCERS: Final[Mapping[str, Callable[[Json, Any, Json], None]]] = {
    "RUN_CREATED": _created,
    "RUN_STATE_CHANGED": _state,
    "SECTION_STATE_CHANGED": _section,
    "ARTIFACT_WRITTEN": _artifact,
    "WORK_ITEM_QUEUED": _queued,
    "WORK_ITEM_STARTED": _work("running"),
    "WORK_ITEM_FINISHED": _work("finished"),
    "WORK_ITEM_FAILED": _work("failed"),
    "WORK_ITEM_SKIPPED": _work("skipped"),
    "ISSUE_OPENED": _opened,
    "ISSUE_RESOLVED": _resolved,
}
