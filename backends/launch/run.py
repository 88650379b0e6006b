"""One run on disk: its folder, its journal and all changes of its state."""

import fcntl
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import yaml

from backends.launch import events, snapshot
from backends.launch.errors import cancelled, illegal_state
from backends.launch.events import NewEvent, Span
from backends.launch.serialization import canonical_json, pretty_json, write_atomic
from backends.launch.states import TERMINAL, State, can_move
from gateway.contract import Json

FOLDERS: Final = ("work", "artifacts", "drafts", "reports", "logs")


@dataclass(frozen=True, slots=True)
class Run:
    """A run. All methods block; call them in a thread, not on the event loop."""

    run_id: str
    folder: Path

    @classmethod
    def create(cls, run_id: str, folder: Path, config: Json, span: Span) -> "Run":
        run = cls(run_id, folder)
        for name in FOLDERS:
            (folder / name).mkdir(parents=True, mode=0o700)
        write_atomic(folder / "run_config.yaml", yaml.safe_dump(config, sort_keys=True).encode())
        run.record([NewEvent("RUN_CREATED", {key: config[key] for key in ("product_slug", "required_sections")}, span)])
        return run

    @property
    def config(self) -> Json:
        return yaml.safe_load((self.folder / "run_config.yaml").read_bytes())

    def events(self) -> list[Json]:
        return events.read_chain(self._journal.read_bytes())

    def snapshot(self) -> Json:
        return snapshot.fold(self.events())

    def state(self) -> State:
        return State(self.snapshot()["run_state"])

    def record(self, new_events: Sequence[NewEvent]) -> Json:
        """Append events to the journal and update the snapshot file. Returns the new snapshot."""
        with self._lock():
            return self._append(self._read(), new_events)

    def record_unless_cancelled(self, new_events: Sequence[NewEvent]) -> Json:
        """Like `record`, but raises `CANCELLED` if the run was cancelled in the meantime."""
        with self._lock():
            recorded = self._read()
            if snapshot.fold(recorded)["run_state"] == State.CANCELLED:
                raise cancelled(self.run_id)
            return self._append(recorded, new_events)

    def move(
        self,
        new: State,
        span: Span,
        *,
        rewind: str | None = None,
        extra_events: Sequence[NewEvent] = (),
        failure: Json | None = None,
    ) -> Json:
        """Change the state. `extra_events` are recorded before the change. Raises `ILLEGAL_STATE`.

        `failure` is the reason that is recorded with FAILED.
        """
        with self._lock():
            recorded = self._read()
            old = State(snapshot.fold(recorded)["run_state"])
            if not can_move(old, new, rewind=rewind is not None):
                payload: Json = {"old_state": old, "new_state": new}
                self._append(recorded, [NewEvent("INVALID_STATE_TRANSITION", payload, span)])
                if old is State.CANCELLED:
                    raise cancelled(self.run_id)
                raise illegal_state(self.run_id, old, f"A run in {old} cannot move to {new}.", requested_state=new)
            change: Json = {"old_state": old, "new_state": new}
            if rewind is not None:
                change["reason"] = rewind
            return self._append(
                recorded,
                [
                    *extra_events,
                    NewEvent("RUN_STATE_CHANGED", change, span),
                    *_terminal_events(new, span, failure or {}),
                ],
            )

    def cancel(self, span: Span) -> Json:
        """Cancel the run. Idempotent. Raises `ILLEGAL_STATE` if the run ended in another state."""
        with self._lock():
            recorded = self._read()
            state = State(snapshot.fold(recorded)["run_state"])
            if state is State.CANCELLED:
                return snapshot.fold(recorded)
            if state in TERMINAL:
                raise illegal_state(self.run_id, state, f"The run has already ended with state {state}.")
            change = NewEvent("RUN_STATE_CHANGED", {"old_state": state, "new_state": State.CANCELLED}, span)
            return self._append(recorded, [change])

    # ---- the journal ----

    @property
    def _journal(self) -> Path:
        return self.folder / "events.ndjson"

    def _read(self) -> list[Json]:
        return self.events() if self._journal.exists() else []

    def _append(self, recorded: list[Json], new_events: Sequence[NewEvent]) -> Json:
        previous = recorded[-1]["event_hash"] if recorded else events.GENESIS
        added = events.chain(self.run_id, new_events, previous)
        with self._journal.open("ab") as file:
            file.truncate(_complete_length(self._journal))
            file.write(b"".join(_encode_line(event) for event in added))
            file.flush()
            os.fsync(file.fileno())
        after = snapshot.fold([*recorded, *added])
        write_atomic(self.folder / "snapshot.json", pretty_json(after))
        return after

    @contextmanager
    def _lock(self) -> Generator[None]:
        """Exclude all other writers, including other processes."""
        with (self.folder / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _terminal_events(state: State, span: Span, failure: Json) -> list[NewEvent]:
    if state is State.DONE:
        return [NewEvent("RUN_COMPLETED", {}, span)]
    return [NewEvent("RUN_FAILED", failure, span)] if state is State.FAILED else []


def _complete_length(journal: Path) -> int:
    """Return the journal's length without an incomplete last line, which a crash can leave."""
    data = journal.read_bytes() if journal.exists() else b""
    return data.rfind(b"\n") + 1


def _encode_line(event: Json) -> bytes:
    return canonical_json(event) + b"\n"


def new_run_id(stamp: str, token: str) -> str:
    """Build a run id: `r_`, the UTC time in seconds, eight hex digits."""
    return f"r_{stamp[:19].replace(':', '-')}Z_{token}"


def work_seconds(recorded: Sequence[Json]) -> float:
    """Return the seconds during which at least one work item ran. Unfinished items do not count."""
    started: dict[str, datetime] = {}
    spans: list[tuple[datetime, datetime]] = []
    for event in recorded:
        if event["type"] == "WORK_ITEM_STARTED":
            started[event["payload"]["work_item_id"]] = datetime.fromisoformat(event["ts"])
        elif event["type"] in ("WORK_ITEM_FINISHED", "WORK_ITEM_FAILED"):
            end = datetime.fromisoformat(event["ts"])
            spans.append((started.pop(event["payload"]["work_item_id"], end), end))
    spent, counted = 0.0, datetime.min.replace(tzinfo=UTC)
    for start, end in sorted(spans):
        # Sections are drafted concurrently; count overlapping time once.
        spent += max(0.0, (end - max(start, counted)).total_seconds())
        counted = max(counted, end)
    return spent


def start_and_end(recorded: Sequence[Json]) -> tuple[str, str | None]:
    """Return the start time of a run, and its end time or None."""
    ended = [event["ts"] for event in recorded if event["payload"].get("new_state") in TERMINAL]
    return recorded[0]["ts"], ended[-1] if ended else None
