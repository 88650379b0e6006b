"""Telemetry of tool calls and steps: kept with the run first, then sent, so that a dead endpoint loses nothing."""

import asyncio
import fcntl
import json
import logging
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from backends.launch.events import Span, now
from backends.launch.outbound import Outward
from backends.launch.run import Run
from gateway.contract import Host, Json
from gateway.errors import Fault

log = logging.getLogger("gatehouse.launch")

OUTBOX: Final = "telemetry_outbox.jsonl"
_CAP: Final = 10 * 1024 * 1024
_DELAYS: Final = (1.0, 2.0, 4.0)


class Telemetry:
    def __init__(self, home: Host, outward: Outward, delays: Sequence[float] = _DELAYS) -> None:
        self._home = home
        self._outward = outward
        self._delays = delays

    async def tool(self, folder: Path, tool: str, span: Span, about: Json) -> None:
        """One tool call: `status`, `duration_ms`, `run_id` if it has one, and names, never values, of its arguments."""
        run_id = about.pop("run_id", None) or "none"
        await asyncio.to_thread(_append, folder / OUTBOX, _record("mcp_tool_call", tool, run_id, span, about))

    async def work(self, run: Run, span: Span, node: str, target: str) -> None:
        about: Json = {"status": "success", "target": target}
        await asyncio.to_thread(_keep, run, [_record("orchestrator_node", node, run.run_id, span.child(), about)])

    async def worked(self, run: Run, known: int) -> None:
        """A record for each work item that ended since the journal had `known` events, with the item's own span."""
        events = await asyncio.to_thread(run.events)
        began = {_item_of(event): event["ts"] for event in events if event["type"] == "WORK_ITEM_STARTED"}
        ended = [event for event in events[known:] if event["type"] in _ENDINGS]
        await asyncio.to_thread(_keep, run, [_of_item(run.run_id, event, began) for event in ended])

    async def flush(self, run: Run) -> None:
        """Send what is kept, in the background."""
        if self._home.options.telemetry == "http":
            self._home.spawn(self.deliver(run))

    async def deliver(self, run: Run) -> None:
        """Send what is kept with the run; what cannot be sent stays."""
        outbox = run.folder / OUTBOX
        about = (await asyncio.to_thread(lambda: run.config))["telemetry"]
        try:
            url = f"{about['endpoint_url'].rstrip('/')}/api/v1/runs"
            headers = self._outward.bearer(about.get("auth_token_env"), url)
        except Fault as fault:
            log.warning("telemetry of %s is not sent: %s", run.run_id, fault.message)
            return
        for record in await asyncio.to_thread(_records, outbox):
            if not await self._post(url, headers, record):
                return
            await asyncio.to_thread(_forget, outbox, record["event_id"])

    async def _post(self, url: str, headers: Json, record: Json) -> bool:
        for delay in (*self._delays, None):
            try:
                response = await self._outward.client(url).post(url, json=record, headers=headers, timeout=10)
            except (httpx.HTTPError, Fault) as exc:
                log.info("telemetry endpoint: %s", type(exc).__name__)
            else:
                if response.status_code < 500:
                    # A record that the endpoint will never take is not kept for ever.
                    return True
            if delay is not None:
                await asyncio.sleep(delay)
        return False


_ENDINGS: Final = {"WORK_ITEM_FINISHED": "success", "WORK_ITEM_FAILED": "failure"}


def _item_of(event: Json) -> str:
    return event["payload"]["work_item_id"]


def _of_item(run_id: str, event: Json, began: Json) -> Json:
    _, worker, attempt, scope = _item_of(event).split(":", 3)
    about: Json = {"status": _ENDINGS[event["type"]], "scope_key": scope, "attempt": int(attempt)}
    if (error := event["payload"].get("error")) is not None:
        about["error_summary"] = error["code"]
    span = Span(event["trace_id"], event["span_id"], event.get("parent_span_id"))
    record = _record("worker", worker, run_id, span, about)
    return {**record, "start_time": began.get(_item_of(event), event["ts"]), "end_time": event["ts"]}


def _keep(run: Run, records: list[Json]) -> None:
    """With what the run's settings say of it, for those who look at many."""
    if not records:
        return
    config = run.config
    asked = config["telemetry"]
    told: Json = {
        "product": config["product_slug"],
        "product_family": config["family"],
        "platform": config["target_platform"],
        "git_repo": config["github_repo_url"],
    }
    labels: Json = {"project": asked["project"], "run_tags": asked.get("run_tags", [])}
    for record in records:
        context = {**record["context_json"], **labels}
        _append(run.folder / OUTBOX, {**record, **told, "context_json": context})


def _record(job_type: str, name: str, run_id: str, span: Span, about: Json) -> Json:
    stamp = now()
    context: Json = {"trace_id": span.trace_id, "span_id": span.span_id, "name": name, **about}
    if span.parent_span_id:
        context["parent_span_id"] = span.parent_span_id
    return {
        "event_id": str(uuid.uuid4()),
        "run_id": run_id,
        "agent_name": "gatehouse-launch",
        "job_type": job_type,
        "start_time": about.get("started_at", stamp),
        "end_time": stamp,
        "status": about.get("status", "success"),
        "context_json": context,
    }


def _append(path: Path, record: Json) -> None:
    line = json.dumps(record, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if file.tell() + len(line) <= _CAP:
            file.write(line)


def _records(path: Path) -> list[Json]:
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [record for line in lines if (record := _parsed(line)) is not None]


def _forget(path: Path, event_id: str) -> None:
    """Take one record out, under the lock that those who append hold too."""
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        kept = [line for line in file.read().splitlines(keepends=True) if event_id.encode() not in line]
        file.seek(0)
        file.write(b"".join(kept))
        file.truncate()
        os.fsync(file.fileno())


def _parsed(line: bytes) -> Json | None:
    try:
        record: Any = json.loads(line)
    except ValueError:
        return None
    return record
