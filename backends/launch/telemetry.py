"""Telemetry of tool calls, steps and work items: written to an outbox file first, then delivered.

Records stay in the outbox while the endpoint is unreachable.
"""

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
from backends.launch.outbound import OutboundClients
from backends.launch.run import Run
from gateway.contract import Host, Json
from gateway.errors import Fault

log = logging.getLogger("gatehouse.launch")

OUTBOX: Final = "telemetry_outbox.jsonl"
_MAX_OUTBOX_BYTES: Final = 10 * 1024 * 1024
_DELAYS: Final = (1.0, 2.0, 4.0)


class Telemetry:
    """Writes telemetry records to outbox files and delivers the outbox of a run to its endpoint."""

    def __init__(self, host: Host, outbound: OutboundClients, delays: Sequence[float] = _DELAYS) -> None:
        self._host = host
        self._outbound = outbound
        self._delays = delays

    async def record_tool_call(self, folder: Path, tool: str, span: Span, fields: Json) -> None:
        """Record one tool call with `status`, `duration_ms` and an optional `run_id`.

        `fields` contains the names of the arguments, never their values.
        """
        run_id = fields.pop("run_id", None) or "none"
        await asyncio.to_thread(_append, folder / OUTBOX, _build_record("mcp_tool_call", tool, run_id, span, fields))

    async def record_step(self, run: Run, span: Span, node: str, target: str) -> None:
        fields: Json = {"status": "success", "target": target}
        await asyncio.to_thread(
            _store, run, [_build_record("orchestrator_node", node, run.run_id, span.child(), fields)]
        )

    async def record_work_items(self, run: Run, known_count: int) -> None:
        """Record every work item that ended after the first `known_count` events, with the item's own span."""
        events = await asyncio.to_thread(run.events)
        started_at = {_work_item_id(event): event["ts"] for event in events if event["type"] == "WORK_ITEM_STARTED"}
        ended = [event for event in events[known_count:] if event["type"] in _STATUS_BY_TYPE]
        await asyncio.to_thread(_store, run, [_work_item_record(run.run_id, event, started_at) for event in ended])

    async def flush(self, run: Run) -> None:
        """Start delivery of the run's outbox in the background, if an endpoint is configured."""
        if self._host.options.telemetry == "http":
            self._host.spawn(self.deliver(run))

    async def deliver(self, run: Run) -> None:
        """Send the records of the run's outbox. Stops at the first failure; unsent records stay."""
        outbox = run.folder / OUTBOX
        settings = (await asyncio.to_thread(lambda: run.config))["telemetry"]
        try:
            url = f"{settings['endpoint_url'].rstrip('/')}/api/v1/runs"
            headers = self._outbound.bearer_header(settings.get("auth_token_env"), url)
        except Fault as fault:
            log.warning("launch run %s: telemetry not sent: %s", run.run_id, fault.message)
            return
        for record in await asyncio.to_thread(_records, outbox):
            if not await self._post(url, headers, record):
                return
            await asyncio.to_thread(_remove, outbox, record["event_id"])

    async def _post(self, url: str, headers: Json, record: Json) -> bool:
        for delay in (*self._delays, None):
            try:
                response = await self._outbound.client(url).post(url, json=record, headers=headers, timeout=10)
            except (httpx.HTTPError, Fault) as exc:
                log.info("launch telemetry: request to the endpoint failed: %s", type(exc).__name__)
            else:
                if response.status_code < 500:
                    # A 4xx response also counts as delivered: the endpoint would reject the record again.
                    return True
            if delay is not None:
                await asyncio.sleep(delay)
        return False


_STATUS_BY_TYPE: Final = {"WORK_ITEM_FINISHED": "success", "WORK_ITEM_FAILED": "failure"}


def _work_item_id(event: Json) -> str:
    return event["payload"]["work_item_id"]


def _work_item_record(run_id: str, event: Json, started_at: Json) -> Json:
    _, worker, attempt, scope = _work_item_id(event).split(":", 3)
    fields: Json = {"status": _STATUS_BY_TYPE[event["type"]], "scope_key": scope, "attempt": int(attempt)}
    if (error := event["payload"].get("error")) is not None:
        fields["error_summary"] = error["code"]
    span = Span(event["trace_id"], event["span_id"], event.get("parent_span_id"))
    record = _build_record("worker", worker, run_id, span, fields)
    return {**record, "start_time": started_at.get(_work_item_id(event), event["ts"]), "end_time": event["ts"]}


def _store(run: Run, records: list[Json]) -> None:
    """Append records to the run's outbox, with the product and project fields of the run's settings."""
    if not records:
        return
    config = run.config
    settings = config["telemetry"]
    product_fields: Json = {
        "product": config["product_slug"],
        "product_family": config["family"],
        "platform": config["target_platform"],
        "git_repo": config["github_repo_url"],
    }
    labels: Json = {"project": settings["project"], "run_tags": settings.get("run_tags", [])}
    for record in records:
        context = {**record["context_json"], **labels}
        _append(run.folder / OUTBOX, {**record, **product_fields, "context_json": context})


def _build_record(job_type: str, name: str, run_id: str, span: Span, fields: Json) -> Json:
    stamp = now()
    context: Json = {"trace_id": span.trace_id, "span_id": span.span_id, "name": name, **fields}
    if span.parent_span_id:
        context["parent_span_id"] = span.parent_span_id
    return {
        "event_id": str(uuid.uuid4()),
        "run_id": run_id,
        "agent_name": "gatehouse-launch",
        "job_type": job_type,
        "start_time": fields.get("started_at", stamp),
        "end_time": stamp,
        "status": fields.get("status", "success"),
        "context_json": context,
    }


def _append(path: Path, record: Json) -> None:
    line = json.dumps(record, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if file.tell() + len(line) <= _MAX_OUTBOX_BYTES:
            file.write(line)


def _records(path: Path) -> list[Json]:
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [record for line in lines if (record := _parse(line)) is not None]


def _remove(path: Path, event_id: str) -> None:
    """Remove one record. Holds the same lock as `_append`."""
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        remaining = [line for line in file.read().splitlines(keepends=True) if event_id.encode() not in line]
        file.seek(0)
        file.write(b"".join(remaining))
        file.truncate()
        os.fsync(file.fileno())


def _parse(line: bytes) -> Json | None:
    try:
        record: Any = json.loads(line)
    except ValueError:
        return None
    return record
