"""How runs begin: from a run_config, a product's page or a GitHub repository; one run for one idempotency key."""

import asyncio
import secrets
import shutil
from weakref import WeakValueDictionary

from backends.launch import json_schemas, run_index
from backends.launch.events import now
from backends.launch.options import Options
from backends.launch.outbound import Outward
from backends.launch.quickstart import github, product_url
from backends.launch.quickstart.config import run_config
from backends.launch.quickstart.inference import infer
from backends.launch.quickstart.vocabulary import NAMES, shown_family
from backends.launch.run import Run, new_run_id
from backends.launch.run_index import Entry
from backends.launch.run_scheduler import Conductor
from backends.launch.run_store import Shelf
from backends.launch.serialization import canonical, digest
from backends.launch.states import State
from backends.launch.tool_call import Ask
from backends.launch.workers.scout import HEAD
from gateway.contract import Caller, Host, Json
from gateway.errors import Fault, Kind


class Starting:
    def __init__(self, home: Host, shelf: Shelf, conductor: Conductor, outward: Outward) -> None:
        self._home = home
        self._options: Options = home.options
        self._shelf = shelf
        self._conductor = conductor
        self._outward = outward
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

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
        key = ask.arguments.get("idempotency_key")
        if key is None:
            return await self._new(ask, config, None)
        # One at a time here; between processes the ledger decides.
        turn = self._turns.setdefault(f"{ask.caller.tenant}:{key}", asyncio.Lock())
        async with turn:
            known = await run_index.by_key(self._home.store(ask.caller), key)
            return await (self._new(ask, config, key) if known is None else self._same(ask.caller, known, config))

    async def _new(self, ask: Ask, config: Json, key: str | None) -> Json:
        stamp, store = now(), self._home.store(ask.caller)
        if (found := await run_index.open_runs(store)) >= (most := self._options.max_open_runs):
            raise Fault(
                Kind.RATE_LIMITED,
                f"{found} runs have not ended, and there may be {most}.",
                details={"open_runs": found, "max_open_runs": most},
                suggested_fix="Cancel those that are no longer wanted, or open their pull requests.",
            )
        run_id = new_run_id(stamp, secrets.token_hex(4))
        run = await asyncio.to_thread(Run.create, run_id, self._shelf.folder(ask.caller, run_id), config, ask.span)
        entry = Entry(run_id, key, _hashed(config), config["product_slug"], State.CREATED, stamp, None)
        if not await run_index.add(store, entry):
            # Another process was faster with this key: ours never was.
            await asyncio.to_thread(shutil.rmtree, run.folder)
            known = await run_index.by_key(store, str(key))
            assert known is not None
            return await self._same(ask.caller, known, config)
        self._conductor.start(ask.caller, run, ask.span)
        return {"run_id": run_id, "state": State.CREATED}

    async def _same(self, caller: Caller, known: Entry, config: Json) -> Json:
        if known.config_hash != _hashed(config):
            raise Fault(
                Kind.INVALID_INPUT,
                "The idempotency key belongs to a run with another run_config.",
                details={"run_id": known.run_id},
            )
        return {"run_id": known.run_id, "state": await asyncio.to_thread(self._shelf.run(caller, known.run_id).state)}


def _completed(config: Json, options: Options) -> Json:
    """The config as the run keeps it. Raises `SCHEMA_VALIDATION_FAILED`."""
    wrong = json_schemas.problems("run_config", config)
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


def _hashed(config: Json) -> str:
    return digest(canonical(config))
