"""What the tools do. Each answers its success payload without `ok`, or raises."""

import asyncio
import secrets
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.launch import artifacts, ledger, shapes
from backends.launch.canon import canonical, digest
from backends.launch.conductor import Conductor
from backends.launch.events import News, Span, now
from backends.launch.job import Job, Progress, read_report
from backends.launch.ledger import Entry
from backends.launch.mending import fix_next
from backends.launch.options import Options
from backends.launch.outward import Outward
from backends.launch.publishing import Publishing
from backends.launch.quickstart import github, product_url
from backends.launch.quickstart.derived import run_config
from backends.launch.quickstart.inference import infer
from backends.launch.quickstart.vocabulary import NAMES, shown_family
from backends.launch.run import Run, new_run_id, times
from backends.launch.states import TERMINAL, VALIDATABLE, State
from backends.launch.words import RUN_ID, illegal_state, run_not_found
from backends.launch.workers.scout import HEAD
from gateway.contract import Caller, Home, Json
from gateway.errors import Fault, Kind

_FINAL: Final = frozenset(state.value for state in TERMINAL)


@dataclass(frozen=True, slots=True)
class Ask:
    """One call of a tool."""

    caller: Caller
    arguments: Json
    span: Span
    progress: Progress

    @property
    def run_id(self) -> str:
        return self.arguments["run_id"]


class Launches:
    def __init__(self, home: Home, conductor: Conductor, outward: Outward) -> None:
        self._home = home
        self._options: Options = home.options
        self._conductor = conductor
        self._outward = outward
        self._publishing = Publishing(home, outward)

    # ---- starting ----

    async def start_run(self, ask: Ask) -> Json:
        return await self._start(ask, ask.arguments["run_config"])

    async def start_from_product_url(self, ask: Ask) -> Json:
        product = product_url.parse(ask.arguments["url"])
        words = {"family": product.family, "platform": product.platform}
        repo = self._options.product_repo_url.format(
            **words, Family=shown_family(product.family), Platform=NAMES[product.platform]
        )
        config = run_config(self._options, product.family, product.platform, product.locale, repo, HEAD)
        derived = {
            "site": product.site,
            "product_slug": product.family,
            "platform": product.platform,
            "locale": product.locale,
        }
        return {**await self._start(ask, config), "derived_config": derived}

    async def start_from_github(self, ask: Ask) -> Json:
        url = ask.arguments["github_repo_url"]
        found = await github.look_up(url, self._options, self._outward, self._home.folder(ask.caller))
        inferred = infer(found.evidence)
        sure = inferred.sure(self._options.confidence)
        missing = [name for name in ("family", "target_platform") if name not in sure]
        if missing:
            suggested = {name: inferred.suggested()[name] for name in missing}
            raise Fault(
                Kind.INVALID_INPUT,
                "Could not unambiguously infer required fields",
                details={"missing_fields": missing, "suggested_values": suggested},
            )
        config = run_config(self._options, sure["family"], sure["target_platform"], "en", found.url, found.sha)
        names = (
            "family",
            "target_platform",
            "locales",
            "layout_mode",
            "allow_inference",
            "github_repo_url",
            "github_ref",
        )
        derived = {name: config[name] for name in names}
        return {**await self._start(ask, config), "derived_config": derived}

    async def _start(self, ask: Ask, config: Json) -> Json:
        config = _completed(config, self._options)
        key, hashed = ask.arguments.get("idempotency_key"), digest(canonical(config))
        store = self._home.store(ask.caller)
        if key is not None and (known := await ledger.by_key(store, key)) is not None:
            return await self._same(ask.caller, known, hashed)
        stamp = now()
        run_id = new_run_id(stamp, secrets.token_hex(4))
        run = await asyncio.to_thread(Run.create, run_id, self._folder(ask.caller, run_id), config, ask.span)
        entry = Entry(run_id, key, hashed, config["product_slug"], State.CREATED, stamp, None)
        if not await ledger.add(store, entry):
            # Another start with this key was faster: ours never was.
            await asyncio.to_thread(shutil.rmtree, run.folder)
            known = await ledger.by_key(store, str(key))
            assert known is not None
            return await self._same(ask.caller, known, hashed)
        self._conductor.start(ask.caller, run, ask.span)
        return {"run_id": run_id, "state": State.CREATED}

    async def _same(self, caller: Caller, known: Entry, hashed: str) -> Json:
        if known.config_hash != hashed:
            raise Fault(
                Kind.INVALID_INPUT,
                "The idempotency key belongs to a run with another run_config.",
                details={"run_id": known.run_id},
            )
        return {"run_id": known.run_id, "state": await asyncio.to_thread(self._run(caller, known.run_id).state)}

    # ---- looking ----

    async def get_status(self, ask: Ask) -> Json:
        run = await self._known(ask)
        return {"run_id": run.run_id, "status": await asyncio.to_thread(status, run)}

    async def get_artifact(self, ask: Ask) -> Json:
        run = await self._known(ask)
        return {
            "run_id": run.run_id,
            "artifact": await asyncio.to_thread(artifacts.read, run, ask.arguments["artifact_name"]),
        }

    async def list_runs(self, ask: Ask) -> Json:
        wanted: Json = ask.arguments.get("filter", {})
        found = await ledger.entries(self._home.store(ask.caller), wanted.get("product_slug"))
        shown = [await self._listed(ask.caller, entry) for entry in found]
        return {"runs": [each for each in shown if each["state"] == wanted.get("state", each["state"])]}

    async def _listed(self, caller: Caller, entry: Entry) -> Json:
        shown = {
            name: getattr(entry, name) for name in ("run_id", "product_slug", "state", "started_at", "finished_at")
        }
        if entry.state not in _FINAL:
            # The journal is the truth; the index may be a crash behind it.
            known = await asyncio.to_thread(self._run(caller, entry.run_id).events)
            shown["state"] = await asyncio.to_thread(self._run(caller, entry.run_id).state)
            shown["finished_at"] = times(known)[1]
        return shown

    async def telemetry(self, ask: Ask) -> Json:
        run = await self._known(ask)
        events = await asyncio.to_thread(run.events)
        kinds = Counter(event["type"] for event in events)
        summary = {
            "total_events": len(events),
            "event_types": dict(sorted(kinds.items())),
            "first_event": events[0]["ts"],
            "last_event": events[-1]["ts"],
        }
        return {"run_id": run.run_id, "events": events, "summary": summary}

    # ---- moving ----

    async def validate(self, ask: Ask) -> Json:
        run = await self._known(ask)
        await asyncio.to_thread(_validatable, run)

        async def work(job: Job) -> Json:
            state = await asyncio.to_thread(_validatable, run)
            report = await job.validate()
            if state is State.READY_FOR_PR and not report["ok"]:
                await job.rewind(State.VALIDATING, "VALIDATION_REWIND")
            if state in (State.LINKING, State.FIXING):
                await job.move(State.VALIDATING)
            if state is not State.READY_FOR_PR or not report["ok"]:
                await job.settle(report)
            return report

        report = await self._conductor.together(ask.caller, run, ask.span, ask.progress, work)
        return {"run_id": run.run_id, "validation_report": report}

    async def fix_next(self, ask: Ask) -> Json:
        run = await self._known(ask)
        fixed = await self._conductor.together(ask.caller, run, ask.span, ask.progress, fix_next)
        return {"run_id": run.run_id, **fixed}

    async def resume(self, ask: Ask) -> Json:
        run = await self._known(ask)
        state = await asyncio.to_thread(run.state)
        if state in TERMINAL:
            raise illegal_state(run.run_id, state, f"The run has ended as {state}.")
        await self._conductor.resume(ask.caller, run, ask.span, ask.progress)
        return {"run_id": run.run_id, "status": await asyncio.to_thread(status, run)}

    async def cancel(self, ask: Ask) -> Json:
        run = await self._known(ask)
        await asyncio.to_thread(run.cancel, ask.span)
        self._conductor.stop(ask.caller, run)
        await self._conductor.index(ask.caller, run)
        return {"run_id": run.run_id, "cancelled": True, "state": State.CANCELLED}

    async def open_pr(self, ask: Ask) -> Json:
        run = await self._known(ask)
        await asyncio.to_thread(_ready, run)

        async def work(job: Job) -> Json:
            await asyncio.to_thread(_ready, run)
            return await self._publishing.open_pr(job, self._home.folder(ask.caller))

        pull = await self._conductor.together(ask.caller, run, ask.span, ask.progress, work)
        return {"run_id": run.run_id, **pull}

    # ---- where runs are ----

    async def known(self, caller: Caller, run_id: str) -> Run:
        """Raises `RUN_NOT_FOUND`; an id that could not be one never reaches a file or a table."""
        if RUN_ID.fullmatch(run_id) is None or await ledger.by_id(self._home.store(caller), run_id) is None:
            raise run_not_found(run_id)
        return self._run(caller, run_id)

    async def note(self, run: Run, news: News) -> None:
        """A line in the run's journal."""
        await asyncio.to_thread(run.record, [news])

    async def _known(self, ask: Ask) -> Run:
        return await self.known(ask.caller, ask.run_id)

    def _run(self, caller: Caller, run_id: str) -> Run:
        return Run(run_id, self._folder(caller, run_id))

    def _folder(self, caller: Caller, run_id: str) -> Path:
        return self._home.folder(caller) / "runs" / run_id


def status(run: Run) -> Json:
    snapshot = run.snapshot()
    index = snapshot["artifacts_index"]
    issues = [issue for issue in snapshot["issues"] if issue["status"] != "RESOLVED"]
    return {
        "run_id": run.run_id,
        "state": snapshot["run_state"],
        "section_states": snapshot["section_states"],
        "open_issues": [
            {"issue_id": each["issue_id"], "severity": each["severity"], "gate": each["gate"], "title": each["message"]}
            for each in issues
        ],
        "artifacts": [
            {"name": name, "sha256": index[name]["sha256"]}
            for name in sorted(index)
            if index[name]["path"].startswith(("artifacts/", "reports/"))
        ],
    }


def _completed(config: Json, options: Options) -> Json:
    """The config as the run keeps it. Raises `SCHEMA_VALIDATION_FAILED`."""
    wrong = shapes.problems("run_config", config)
    both = {"locale", "locales"} <= config.keys()
    if not wrong and both and config["locales"] != [config["locale"]]:
        wrong = [{"path": "locales", "message": "locale and locales differ"}]
    if wrong:
        raise Fault(
            Kind.INVALID_INPUT,
            "The run_config is not what its schema says.",
            code="SCHEMA_VALIDATION_FAILED",
            details={"errors": wrong},
        )
    return {"site_repo_url": options.site_repo_url, **config}


def _validatable(run: Run) -> State:
    state = run.state()
    if state not in VALIDATABLE or not (run.folder / "work" / "site").is_dir():
        raise illegal_state(run.run_id, state, f"A run in {state} has nothing to validate.")
    return state


def _ready(run: Run) -> None:
    state, report = run.state(), read_report(run)
    if state is not State.READY_FOR_PR or report is None or not report["ok"]:
        raise illegal_state(
            run.run_id, state, "Only a run that is READY_FOR_PR, with a report that is ok, has a pull request."
        )
