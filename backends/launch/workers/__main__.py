"""The child: takes work items as lines of JSON, and answers each with a line when it is done.

Items are done one after the other; those that may stand beside each other (`hands`) by so many processes of their own.
"""

import ctypes
import fcntl
import importlib
import json
import logging
import os
import resource
import signal
import sys
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final, TextIO

import yaml

from backends.launch.workers.context import Bench
from gateway.contract import Json
from gateway.errors import Fault

MODULES: Final = {
    "scout": "backends.launch.workers.scout",
    "facts": "backends.launch.workers.facts",
    "snippets": "backends.launch.workers.snippets",
    "plan": "backends.launch.workers.plan",
    "draft": "backends.launch.workers.draft",
    "link": "backends.launch.workers.link",
    "validate": "backends.launch.gates.runner",
    "fix": "backends.launch.workers.fix",
    "publish": "backends.launch.workers.publish",
}

_PDEATHSIG: Final = 1

log = logging.getLogger("gatehouse.launch")


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Nothing that a library prints may look like an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    desk = _Desk(answers)
    with Path(".worker").open("a") as turn:
        # A child whose gateway was killed may still be writing: it is waited for, and its hands, who hold this too.
        fcntl.flock(turn, fcntl.LOCK_EX)
        for line in sys.stdin:
            desk.take(json.loads(line))


class _Desk:
    def __init__(self, answers: TextIO) -> None:
        self._answers = answers
        self._turn = threading.Lock()
        self._hands: ProcessPoolExecutor | None = None

    def take(self, item: Json) -> None:
        if not item["hands"]:
            self._answer(item["number"], _do(item))
            return
        if self._hands is None:
            # All are forked here and now, while this process has one thread: a hand is there in no time.
            given = (os.getpid(), self._answers.fileno())
            self._hands = ProcessPoolExecutor(item["hands"], get_context("fork"), _become_a_hand, given)
        self._hands.submit(_do, item).add_done_callback(partial(self._done, item["number"]))

    def _done(self, number: int, work: "Future[Json]") -> None:
        if work.exception() is not None:
            # A hand was killed. What it left undone nobody knows, so this child ends with it.
            log.error("a hand ended before its work did")
            os._exit(1)
        self._answer(number, work.result())

    def _answer(self, number: int, outcome: Json) -> None:
        with self._turn:
            self._answers.write(json.dumps({"number": number, **outcome}) + "\n")
            self._answers.flush()


def _become_a_hand(child: int, answers: int) -> None:
    """End with the child, and keep nobody waiting for answers of it."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != child:
        os._exit(1)
    os.close(answers)


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


if __name__ == "__main__":
    main()
