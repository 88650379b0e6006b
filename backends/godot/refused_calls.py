"""Calls that the gateway refused before they reached us belong into their project's log all the same."""

import asyncio
from typing import Final

from backends.godot.envelope import WORDS
from backends.godot.paths import PROJECT_FILE
from backends.godot.services import Desk
from gateway.contract import RefusedCall
from gateway.errors import Fault, Kind

_MOST: Final = 64


class Refusals:
    """Noted behind the answer's back, so many at a time: the gateway's own audit has every one of them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._waiting = 0

    def told(self, refusal: RefusedCall) -> None:
        # Whoever calls too often must not push everything else out of a log of bounded size.
        if refusal.fault.kind is not Kind.RATE_LIMITED and self._waiting < _MOST:
            self._waiting += 1
            self._desk.home.spawn(self._note(refusal))

    async def _note(self, refusal: RefusedCall) -> None:
        try:
            await asyncio.to_thread(self._write, refusal)
        finally:
            self._waiting -= 1

    def _write(self, refusal: RefusedCall) -> None:
        here, fault, given = refusal.call, refusal.fault, refusal.arguments.get("projectPath")
        if not isinstance(given, str):
            return
        try:
            project = self._desk.project(here.caller, given)
        except Fault:
            return  # not a project of the caller's tenant: it is none of its business
        if (project.root / PROJECT_FILE).is_file():
            end = {"ok": False, "summary": fault.message, "error": {"code": fault.code or WORDS[fault.kind]}}
            self._desk.audit.write(project, here.correlation_id, refusal.tool, refusal.arguments, end)
