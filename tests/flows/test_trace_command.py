"""`gatehouse trace` on the traces of a real gateway."""

import json
from pathlib import Path

from tests.flows.process import CORE, run, serving, until, write_settings

BACKENDS = {**CORE, "strict": {"module": "tests.flows.fixtures.strict"}}


def test_trace_draws_a_failed_call_with_stages_and_outcome(tmp_path: Path) -> None:
    write_settings(tmp_path, backends=BACKENDS)
    with serving(tmp_path) as served:
        id = served.call("core_ping", {"odd": 1})["error"]["data"]["correlation_id"]
        done = until(lambda: (found := run(tmp_path, "trace", id)).returncode == 0 and found, "the span")
        assert "server   tools/call core.ping" in done.stdout
        assert "█" in done.stdout
        assert "outcome=invalid_input" in done.stdout
        assert "validate" in done.stdout
        (span,) = json.loads(run(tmp_path, "trace", id, "--json").stdout)
        assert span["correlation_id"] == id
        unknown = run(tmp_path, "trace", "unknown-id")
        assert unknown.returncode == 1
        assert "no trace with the ID unknown-id is stored on this machine" in unknown.stderr
