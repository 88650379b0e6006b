"""The worker process of a run: reads work items as lines of JSON and writes one line with the outcome of each.

Items run one after the other. Items with a `pool_size` run concurrently in a process pool of that size.
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

from backends.launch.workers.context import WorkerContext
from gateway.contract import Json
from gateway.errors import Fault

MODULES: Final = {
    "scout": "backends.launch.workers.scout",
    "facts": "backends.launch.workers.facts",
    "snippets": "backends.launch.workers.snippets",
    "plan": "backends.launch.workers.plan",
    "draft": "backends.launch.workers.draft",
    "model_draft": "backends.launch.workers.model_draft",
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
    # Redirect stdout to stderr: output of libraries must not mix with the outcomes.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    runner = _ItemRunner(output)
    with Path(".worker").open("a") as lock_file:
        # Wait for a previous worker process, whose gateway may have been killed. Pool processes inherit this lock.
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        for line in sys.stdin:
            runner.submit(json.loads(line))


class _ItemRunner:
    """Runs items in this process or in the pool and writes their outcomes."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._write_lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, item: Json) -> None:
        if not item["pool_size"]:
            self._write(item["number"], _run_item(item))
            return
        if self._pool is None:
            # The pool forks all processes at once, while this process has a single thread.
            init_arguments = (os.getpid(), self._output.fileno())
            self._pool = ProcessPoolExecutor(item["pool_size"], get_context("fork"), _init_pool_process, init_arguments)
        self._pool.submit(_run_item, item).add_done_callback(partial(self._done, item["number"]))

    def _done(self, number: int, work: "Future[Json]") -> None:
        if work.exception() is not None:
            # A pool process was killed and its item is in an unknown state, so this process exits too.
            log.error("launch worker: a pool process ended before its work item was done; exiting")
            os._exit(1)
        self._write(number, work.result())

    def _write(self, number: int, outcome: Json) -> None:
        with self._write_lock:
            self._output.write(json.dumps({"number": number, **outcome}) + "\n")
            self._output.flush()


def _init_pool_process(parent_pid: int, output_fd: int) -> None:
    """Exit together with the parent, and close the inherited output so that the gateway sees its end of file."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)
    os.close(output_fd)


def _run_item(item: Json) -> Json:
    folder = Path.cwd()
    config = yaml.safe_load((folder / "run_config.yaml").read_bytes())
    # Limits every file, including the packs that git fetches.
    largest = 4 * item["limits"]["max_repo_bytes"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    context = WorkerContext(item["run_id"], folder, config, item["limits"], item["scope"])
    context.result.update(item.get("parameters", {}))
    try:
        importlib.import_module(MODULES[item["worker"]]).run(context)
    except Fault as fault:
        return {**_outcome(context), "fault": _encode_fault(fault)}
    except Exception as exc:
        log.exception("launch worker: item %s failed with an unexpected error", item["worker"])
        return {**_outcome(context), "crash": type(exc).__name__}
    return _outcome(context)


def _outcome(context: WorkerContext) -> Json:
    return {"written": context.written, "events": context.events, "result": context.result}


def _encode_fault(fault: Fault) -> Json:
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
