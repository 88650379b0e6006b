"""The child: takes work items as lines of JSON, does them one after the other, and answers each with a line."""

import fcntl
import importlib
import json
import logging
import os
import resource
import sys
from pathlib import Path
from typing import Final, TextIO

import yaml

from backends.launch.workers.bench import Bench
from gateway.contract import Json
from gateway.errors import Fault

MODULES: Final = {
    "scout": "backends.launch.workers.scout",
    "facts": "backends.launch.workers.facts",
    "snippets": "backends.launch.workers.snippets",
    "plan": "backends.launch.workers.plan",
    "draft": "backends.launch.workers.draft",
    "link": "backends.launch.workers.link",
    "validate": "backends.launch.gates.judge",
    "fix": "backends.launch.workers.fix",
    "publish": "backends.launch.workers.publish",
}

log = logging.getLogger("gatehouse.launch")


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Nothing that a library prints may look like an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with Path(".worker").open("a") as turn:
        # A child whose gateway was killed may still be writing: it is waited for.
        fcntl.flock(turn, fcntl.LOCK_EX)
        for line in sys.stdin:
            _answer(answers, _do(json.loads(line)))


def _do(item: Json) -> Json:
    folder = Path.cwd()
    config = yaml.safe_load((folder / "run_config.yaml").read_bytes())
    # No file, so no pack that git fetches either, grows past this.
    largest = 4 * item["limits"]["max_repo_bytes"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    bench = Bench(item["run_id"], folder, config, item["limits"], item["scope"])
    bench.result.update(item.get("given", {}))
    try:
        importlib.import_module(MODULES[item["worker"]]).run(bench)
    except Fault as fault:
        return {**_left(bench), "fault": _shown(fault)}
    except Exception as exc:
        log.exception("work item %s failed", item["worker"])
        return {**_left(bench), "crash": type(exc).__name__}
    return _left(bench)


def _left(bench: Bench) -> Json:
    return {"written": bench.written, "news": bench.news, "result": bench.result}


def _shown(fault: Fault) -> Json:
    return {
        "kind": fault.kind,
        "code": fault.code,
        "message": fault.message,
        "details": fault.details,
        "retryable": fault.retryable,
        "suggested_fix": fault.suggested_fix,
    }


def _answer(answers: TextIO, answer: Json) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
