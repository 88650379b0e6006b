"""One run on disk: its folder, its journal, and the only way in which its state changes."""

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
from backends.launch.events import News, Span
from backends.launch.serialization import canonical, pretty, write_whole
from backends.launch.states import TERMINAL, State, may_move
from gateway.contract import Json

FOLDERS: Final = ("work", "artifacts", "drafts", "reports", "logs")


@dataclass(frozen=True, slots=True)
class Run:
    """Blocking: on the event loop, call its methods in a thread."""

    run_id: str
    folder: Path

    @classmethod
    def create(cls, run_id: str, folder: Path, config: Json, span: Span) -> "Run":
        run = cls(run_id, folder)
        for name in FOLDERS:
            (folder / name).mkdir(parents=True, mode=0o700)
        write_whole(folder / "run_config.yaml", yaml.safe_dump(config, sort_keys=True).encode())
        run.record([News("RUN_CREATED", {key: config[key] for key in ("product_slug", "required_sections")}, span)])
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

    def record(self, news: Sequence[News]) -> Json:
        """Append to the journal, then let the snapshot follow. Answers the new snapshot."""
        with self._locked():
            return self._append(self._read(), news)

    def record_if_alive(self, news: Sequence[News]) -> Json:
        """As `record`, but a run that was cancelled meanwhile takes no more news of its work."""
        with self._locked():
            known = self._read()
            if snapshot.fold(known)["run_state"] == State.CANCELLED:
                raise cancelled(self.run_id)
            return self._append(known, news)

    def move(self, new: State, span: Span, *, rewind: str | None = None, news: Sequence[News] = ()) -> Json:
        """Change the state, or raise `ILLEGAL_STATE`. `news` are written with the change, before it."""
        with self._locked():
            known = self._read()
            old = State(snapshot.fold(known)["run_state"])
            if not may_move(old, new, rewind=rewind is not None):
                payload: Json = {"old_state": old, "new_state": new}
                self._append(known, [News("INVALID_STATE_TRANSITION", payload, span)])
                if old is State.CANCELLED:
                    raise cancelled(self.run_id)
                raise illegal_state(self.run_id, old, f"A run in {old} cannot go to {new}.", requested_state=new)
            change: Json = {"old_state": old, "new_state": new}
            if rewind is not None:
                change["reason"] = rewind
            return self._append(known, [*news, News("RUN_STATE_CHANGED", change, span), *_ending(new, span)])

    def cancel(self, span: Span) -> Json:
        """Again and again, if need be; a run that ended otherwise cannot be cancelled."""
        with self._locked():
            known = self._read()
            state = State(snapshot.fold(known)["run_state"])
            if state is State.CANCELLED:
                return snapshot.fold(known)
            if state in TERMINAL:
                raise illegal_state(self.run_id, state, f"The run has ended as {state}.")
            change = News("RUN_STATE_CHANGED", {"old_state": state, "new_state": State.CANCELLED}, span)
            return self._append(known, [change])

    # ---- the journal ----

    @property
    def _journal(self) -> Path:
        return self.folder / "events.ndjson"

    def _read(self) -> list[Json]:
        return self.events() if self._journal.exists() else []

    def _append(self, known: list[Json], news: Sequence[News]) -> Json:
        previous = known[-1]["event_hash"] if known else events.GENESIS
        added = events.chained(self.run_id, news, previous)
        with self._journal.open("ab") as file:
            file.truncate(_whole_lines(self._journal))
            file.write(b"".join(_line(event) for event in added))
            file.flush()
            os.fsync(file.fileno())
        after = snapshot.fold([*known, *added])
        write_whole(self.folder / "snapshot.json", pretty(after))
        return after

    @contextmanager
    def _locked(self) -> Generator[None]:
        """One writer at a time, among all processes."""
        with (self.folder / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _ending(state: State, span: Span) -> list[News]:
    if state is State.DONE:
        return [News("RUN_COMPLETED", {}, span)]
    return [News("RUN_FAILED", {}, span)] if state is State.FAILED else []


def _whole_lines(journal: Path) -> int:
    """Its length without a last line that a crash cut short."""
    data = journal.read_bytes() if journal.exists() else b""
    return data.rfind(b"\n") + 1


def _line(event: Json) -> bytes:
    return canonical(event) + b"\n"


def new_run_id(stamp: str, token: str) -> str:
    """`r_`, the UTC second, eight hex digits."""
    return f"r_{stamp[:19].replace(':', '-')}Z_{token}"


def at_work(known: Sequence[Json]) -> float:
    """Seconds in which at least one work item was being done, of those that came to an end."""
    began: dict[str, datetime] = {}
    spans: list[tuple[datetime, datetime]] = []
    for event in known:
        if event["type"] == "WORK_ITEM_STARTED":
            began[event["payload"]["work_item_id"]] = datetime.fromisoformat(event["ts"])
        elif event["type"] in ("WORK_ITEM_FINISHED", "WORK_ITEM_FAILED"):
            end = datetime.fromisoformat(event["ts"])
            spans.append((began.pop(event["payload"]["work_item_id"], end), end))
    spent, counted = 0.0, datetime.min.replace(tzinfo=UTC)
    for start, end in sorted(spans):
        # Sections are drafted side by side: what two of them share is counted once.
        spent += max(0.0, (end - max(start, counted)).total_seconds())
        counted = max(counted, end)
    return spent


def times(known: Sequence[Json]) -> tuple[str, str | None]:
    """When a run began, and when it ended if it has."""
    ended = [event["ts"] for event in known if event["payload"].get("new_state") in TERMINAL]
    return known[0]["ts"], ended[-1] if ended else None
