"""The journal: tamper detection, crash recovery and snapshots."""

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.launch import json_schemas
from backends.launch.events import NewEvent, Span, read_chain
from backends.launch.run import Run, start_and_end
from backends.launch.snapshot import fold
from backends.launch.states import State
from gateway.errors import Fault

CONFIG = {"product_slug": "3d", "required_sections": ["docs", "kb"]}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create("r_2026-01-01T00-00-00Z_abcdef01", tmp_path / "run", CONFIG, Span())


def test_every_journal_line_matches_the_event_schema_and_links_to_its_predecessor(run: Run) -> None:
    run.move(State.CLONED_INPUTS, Span())
    events = run.events()
    assert [event["type"] for event in events] == ["RUN_CREATED", "RUN_STATE_CHANGED"]
    assert not [problem for event in events for problem in json_schemas.problems("event", event)]
    assert events[1]["prev_hash"] == events[0]["event_hash"]


@pytest.mark.parametrize(
    ("old", "new"), [(b'"docs"', b'"blog"'), (b"RUN_CREATED", b"RUN_CHANGED"), (b'"payload":{', b'"payload":{"x":1,')]
)
def test_modified_line_breaks_the_chain(run: Run, old: bytes, new: bytes) -> None:
    journal = run.folder / "events.ndjson"
    assert old in journal.read_bytes()
    journal.write_bytes(journal.read_bytes().replace(old, new))
    with pytest.raises(Fault) as broken:
        run.events()
    assert broken.value.code == "EVENT_CHAIN_BROKEN"


def test_removed_line_breaks_the_chain(run: Run) -> None:
    run.move(State.CLONED_INPUTS, Span())
    run.move(State.INGESTED, Span())
    lines = (run.folder / "events.ndjson").read_bytes().splitlines(keepends=True)
    with pytest.raises(Fault):
        read_chain(lines[0] + lines[2])


def test_incomplete_last_line_is_ignored(run: Run) -> None:
    journal = run.folder / "events.ndjson"
    journal.write_bytes(journal.read_bytes() + b'{"event_id":"evt-2026')
    assert len(run.events()) == 1
    run.move(State.CLONED_INPUTS, Span())
    assert [event["type"] for event in run.events()] == ["RUN_CREATED", "RUN_STATE_CHANGED"]


def test_snapshot_is_computed_from_events_only(run: Run) -> None:
    item = {"work_item_id": "x", "worker": "W1", "attempt": 1, "scope_key": "run", "inputs": {}, "outputs": []}
    run.record(
        [NewEvent("WORK_ITEM_QUEUED", item, Span()), NewEvent("WORK_ITEM_STARTED", {"work_item_id": "x"}, Span())]
    )
    run.move(State.CLONED_INPUTS, Span())
    stored = json.loads((run.folder / "snapshot.json").read_bytes())
    (run.folder / "snapshot.json").unlink()
    assert fold(run.events()) == stored == run.snapshot()
    assert not json_schemas.problems("snapshot", stored)
    assert stored["work_items"][0]["status"] == "running"


def test_end_time_is_that_of_the_terminal_state_despite_later_events(run: Run) -> None:
    assert start_and_end(run.events())[1] is None
    run.cancel(Span())
    ended = start_and_end(run.events())[1]
    run.record([NewEvent("MCP_TOOL_FAILED", {}, Span())])
    assert ended is not None
    assert start_and_end(run.events())[1] == ended


def test_cancel_is_idempotent(run: Run) -> None:
    run.cancel(Span())
    run.cancel(Span())
    assert [event["type"] for event in run.events()].count("RUN_STATE_CHANGED") == 1


def test_cancelled_run_records_no_further_work_events(run: Run) -> None:
    run.cancel(Span())
    with pytest.raises(Fault) as refused:
        run.record_unless_cancelled([NewEvent("WORK_ITEM_FINISHED", {}, Span())])
    assert refused.value.code == "CANCELLED"


def test_concurrent_writers_produce_one_valid_chain(run: Run) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: run.record([NewEvent("NOTE", {"number": number}, Span())]), range(40)))
    numbers = [event["payload"]["number"] for event in run.events()[1:]]
    assert sorted(numbers) == list(range(40))


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40))
def test_run_config_round_trips(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = {**CONFIG, "product_name": name}
        assert Run.create("r_config_00000000", Path(folder) / "run", config, Span()).config == config
