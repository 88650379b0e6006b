"""The journal: a chain that shows every change, survives a crash, and is all that a snapshot needs."""

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.launch import json_schemas
from backends.launch.events import News, Span, read_chain
from backends.launch.run import Run, times
from backends.launch.snapshot import fold
from backends.launch.states import State
from gateway.errors import Fault

CONFIG = {"product_slug": "3d", "required_sections": ["docs", "kb"]}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create("r_2026-01-01T00-00-00Z_abcdef01", tmp_path / "run", CONFIG, Span())


def test_every_line_is_an_event_by_its_schema_and_bound_to_the_one_before(run: Run) -> None:
    run.move(State.CLONED_INPUTS, Span())
    events = run.events()
    assert [event["type"] for event in events] == ["RUN_CREATED", "RUN_STATE_CHANGED"]
    assert not [problem for event in events for problem in json_schemas.problems("event", event)]
    assert events[1]["prev_hash"] == events[0]["event_hash"]


@pytest.mark.parametrize(
    ("old", "new"), [(b'"docs"', b'"blog"'), (b"RUN_CREATED", b"RUN_CHANGED"), (b'"payload":{', b'"payload":{"x":1,')]
)
def test_a_changed_line_breaks_the_chain(run: Run, old: bytes, new: bytes) -> None:
    journal = run.folder / "events.ndjson"
    assert old in journal.read_bytes()
    journal.write_bytes(journal.read_bytes().replace(old, new))
    with pytest.raises(Fault) as broken:
        run.events()
    assert broken.value.code == "EVENT_CHAIN_BROKEN"


def test_a_line_taken_out_breaks_the_chain(run: Run) -> None:
    run.move(State.CLONED_INPUTS, Span())
    run.move(State.INGESTED, Span())
    lines = (run.folder / "events.ndjson").read_bytes().splitlines(keepends=True)
    with pytest.raises(Fault):
        read_chain(lines[0] + lines[2])


def test_a_last_line_that_a_crash_cut_short_never_happened(run: Run) -> None:
    journal = run.folder / "events.ndjson"
    journal.write_bytes(journal.read_bytes() + b'{"event_id":"evt-2026')
    assert len(run.events()) == 1
    run.move(State.CLONED_INPUTS, Span())
    assert [event["type"] for event in run.events()] == ["RUN_CREATED", "RUN_STATE_CHANGED"]


def test_the_snapshot_is_what_the_events_say_and_nothing_else(run: Run) -> None:
    item = {"work_item_id": "x", "worker": "W1", "attempt": 1, "scope_key": "run", "inputs": {}, "outputs": []}
    run.record([News("WORK_ITEM_QUEUED", item, Span()), News("WORK_ITEM_STARTED", {"work_item_id": "x"}, Span())])
    run.move(State.CLONED_INPUTS, Span())
    kept = json.loads((run.folder / "snapshot.json").read_bytes())
    (run.folder / "snapshot.json").unlink()
    assert fold(run.events()) == kept == run.snapshot()
    assert not json_schemas.problems("snapshot", kept)
    assert kept["work_items"][0]["status"] == "running"


def test_a_run_has_ended_when_its_state_did_whatever_is_noted_later(run: Run) -> None:
    assert times(run.events())[1] is None
    run.cancel(Span())
    ended = times(run.events())[1]
    run.record([News("MCP_TOOL_FAILED", {}, Span())])
    assert ended is not None
    assert times(run.events())[1] == ended


def test_cancelling_twice_is_cancelling_once(run: Run) -> None:
    run.cancel(Span())
    run.cancel(Span())
    assert [event["type"] for event in run.events()].count("RUN_STATE_CHANGED") == 1


def test_a_cancelled_run_takes_no_more_news_of_its_work(run: Run) -> None:
    run.cancel(Span())
    with pytest.raises(Fault) as refused:
        run.record_if_alive([News("WORK_ITEM_FINISHED", {}, Span())])
    assert refused.value.code == "CANCELLED"


def test_writers_of_many_threads_keep_one_chain(run: Run) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: run.record([News("NOTE", {"number": number}, Span())]), range(40)))
    numbers = [event["payload"]["number"] for event in run.events()[1:]]
    assert sorted(numbers) == list(range(40))


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40))
def test_a_run_keeps_its_config_to_the_letter(name: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        config = {**CONFIG, "product_name": name}
        assert Run.create("r_config_00000000", Path(place) / "run", config, Span()).config == config
