"""Where a tenant's runs are kept, and the check that every run id from outside goes through."""

from pathlib import Path

from backends.launch import run_index
from backends.launch.errors import RUN_ID, run_not_found
from backends.launch.run import Run
from gateway.contract import Caller, Host


class Shelf:
    def __init__(self, home: Host) -> None:
        self._home = home

    def folder(self, caller: Caller, run_id: str) -> Path:
        return self._home.folder(caller) / "runs" / run_id

    def run(self, caller: Caller, run_id: str) -> Run:
        """For an id of ours."""
        return Run(run_id, self.folder(caller, run_id))

    async def known(self, caller: Caller, run_id: str) -> Run:
        """Raises `RUN_NOT_FOUND`; an id that could not be one never reaches a file or a table."""
        if RUN_ID.fullmatch(run_id) is None or await run_index.by_id(self._home.store(caller), run_id) is None:
            raise run_not_found(run_id)
        return self.run(caller, run_id)
