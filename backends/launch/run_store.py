"""Finds the runs of a tenant. All run ids from clients are checked here."""

from pathlib import Path

from backends.launch import run_index
from backends.launch.errors import RUN_ID, run_not_found
from backends.launch.run import Run
from gateway.contract import Caller, Host


class RunStore:
    """Maps run ids to runs in the tenant's folder."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def folder(self, caller: Caller, run_id: str) -> Path:
        return self._host.folder(caller) / "runs" / run_id

    def run(self, caller: Caller, run_id: str) -> Run:
        """Return the run for a trusted id, without a check that it exists."""
        return Run(run_id, self.folder(caller, run_id))

    async def get(self, caller: Caller, run_id: str) -> Run:
        """Return the run for an id from a client. Raises `RUN_NOT_FOUND`.

        A malformed id is rejected before any file or database access.
        """
        if RUN_ID.fullmatch(run_id) is None or await run_index.by_id(self._host.store(caller), run_id) is None:
            raise run_not_found(run_id)
        return self.run(caller, run_id)
