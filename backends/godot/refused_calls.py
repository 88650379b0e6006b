"""Records calls that the gateway refused before they reached this backend in the project's audit log."""

import asyncio
from typing import Final

from backends.godot.envelope import CODES
from backends.godot.paths import PROJECT_FILE
from backends.godot.services import Services
from gateway.contract import RefusedCall
from gateway.errors import Fault, Kind

_MAX_PENDING: Final = 64


class RefusedCallAudit:
    """Writes refused calls in the background.

    At most `_MAX_PENDING` writes are pending; further calls are dropped, because the gateway's audit has all of them.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._pending = 0

    def record(self, refusal: RefusedCall) -> None:
        """Schedule the audit line of a refused call."""
        # The log has a bounded size: rate-limited calls would evict all other lines.
        if refusal.fault.kind is not Kind.RATE_LIMITED and self._pending < _MAX_PENDING:
            self._pending += 1
            self._services.host.spawn(self._write_in_thread(refusal))

    async def _write_in_thread(self, refusal: RefusedCall) -> None:
        try:
            await asyncio.to_thread(self._write, refusal)
        finally:
            self._pending -= 1

    def _write(self, refusal: RefusedCall) -> None:
        call, fault, project_path = refusal.call, refusal.fault, refusal.arguments.get("projectPath")
        if not isinstance(project_path, str):
            return
        try:
            project = self._services.project(call.caller, project_path)
        except Fault:
            return  # The project belongs to another tenant: do not write into its log.
        if (project.root / PROJECT_FILE).is_file():
            outcome = {"ok": False, "summary": fault.message, "error": {"code": fault.code or CODES[fault.kind]}}
            self._services.audit.write(project, call.correlation_id, refusal.tool, refusal.arguments, outcome)
