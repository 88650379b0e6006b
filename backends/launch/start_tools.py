"""Handlers of the tools that start a run: from a run_config, a product page or a GitHub repository."""

import asyncio
import re
import secrets
import shutil
from weakref import WeakValueDictionary

from backends.launch import json_schemas, run_index
from backends.launch.events import now
from backends.launch.options import Options
from backends.launch.outbound import OutboundClients
from backends.launch.quickstart import github, product_url
from backends.launch.quickstart.config import build_run_config
from backends.launch.quickstart.inference import infer
from backends.launch.quickstart.vocabulary import PLATFORM_TITLES, family_title
from backends.launch.run import Run, new_run_id
from backends.launch.run_index import Entry
from backends.launch.run_scheduler import RunScheduler
from backends.launch.run_store import RunStore
from backends.launch.serialization import canonical_json, digest
from backends.launch.states import State
from backends.launch.tool_call import ToolCall
from backends.launch.workers.plan import locales
from backends.launch.workers.scout import HEAD
from gateway.contract import Caller, Host, Json
from gateway.errors import Fault, Kind


class StartTools:
    """Starts runs. Calls with the same idempotency key and config return the same run."""

    def __init__(self, host: Host, run_store: RunStore, scheduler: RunScheduler, outbound: OutboundClients) -> None:
        self._host = host
        self._options: Options = host.options
        self._run_store = run_store
        self._scheduler = scheduler
        self._outbound = outbound
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def start_run(self, call: ToolCall) -> Json:
        return await self._start(call, call.arguments["run_config"])

    async def start_from_product_url(self, call: ToolCall) -> Json:
        product = product_url.parse(call.arguments["url"])
        placeholders = {"family": product.family, "platform": product.platform}
        repo_url = self._options.product_repo_url.format(
            **placeholders, Family=family_title(product.family), Platform=PLATFORM_TITLES[product.platform]
        )
        config = build_run_config(self._options, product.family, product.platform, product.locale, repo_url, HEAD)
        derived = {
            "site": product.site,
            "product_slug": product.family,
            "platform": product.platform,
            "locale": product.locale,
        }
        return {**await self._start(call, config), "derived_config": derived}

    async def start_from_github(self, call: ToolCall) -> Json:
        url = call.arguments["github_repo_url"]
        found = await github.look_up(url, self._options, self._outbound, self._host.folder(call.caller))
        inferred = infer(found.evidence)
        confident = inferred.confident(self._options.confidence)
        missing = [name for name in ("family", "target_platform") if name not in confident]
        if missing:
            suggested = {name: inferred.suggestions()[name] for name in missing}
            raise Fault(
                Kind.INVALID_INPUT,
                "Could not unambiguously infer required fields",
                details={"missing_fields": missing, "suggested_values": suggested},
            )
        config = build_run_config(
            self._options,
            confident["family"],
            confident["target_platform"],
            "en",
            found.url,
            found.sha,
            _own_name(found),
        )
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
        return {**await self._start(call, config), "derived_config": derived}

    async def _start(self, call: ToolCall, config: Json) -> Json:
        config = _complete_config(config, self._options)
        key = call.arguments.get("idempotency_key")
        if key is None:
            return await self._create(call, config, None)
        # Serializes calls in this process; between processes the unique index decides.
        lock = self._locks.setdefault(f"{call.caller.tenant}:{key}", asyncio.Lock())
        async with lock:
            known = await run_index.by_key(self._host.store(call.caller), key)
            return await (
                self._create(call, config, key) if known is None else self._existing(call.caller, known, config)
            )

    async def _create(self, call: ToolCall, config: Json, key: str | None) -> Json:
        stamp, store = now(), self._host.store(call.caller)
        if (found := await run_index.count_open(store)) >= (limit := self._options.max_open_runs):
            raise Fault(
                Kind.RATE_LIMITED,
                f"The tenant has {found} unfinished runs; the limit is {limit}.",
                details={"open_runs": found, "max_open_runs": limit},
                suggested_fix="Cancel runs that are no longer needed, or open their pull requests.",
            )
        run_id = new_run_id(stamp, secrets.token_hex(4))
        run = await asyncio.to_thread(
            Run.create, run_id, self._run_store.folder(call.caller, run_id), config, call.span
        )
        entry = Entry(run_id, key, _config_hash(config), config["product_slug"], State.CREATED, stamp, None)
        if not await run_index.add(store, entry):
            # Another process has used this key first: delete our run and return the other one.
            await asyncio.to_thread(shutil.rmtree, run.folder)
            known = await run_index.by_key(store, str(key))
            assert known is not None
            return await self._existing(call.caller, known, config)
        self._scheduler.start(call.caller, run, call.span)
        return {"run_id": run_id, "state": State.CREATED}

    async def _existing(self, caller: Caller, known: Entry, config: Json) -> Json:
        if known.config_hash != _config_hash(config):
            raise Fault(
                Kind.INVALID_INPUT,
                "The idempotency key belongs to a run with another run_config.",
                details={"run_id": known.run_id},
            )
        return {
            "run_id": known.run_id,
            "state": await asyncio.to_thread(self._run_store.run(caller, known.run_id).state),
        }


def _complete_config(config: Json, options: Options) -> Json:
    """Validate the config and add the default site. Raises `SCHEMA_VALIDATION_FAILED`."""
    problems = json_schemas.problems("run_config", config)
    both = {"locale", "locales"} <= config.keys()
    if not problems and both and config["locales"] != [config["locale"]]:
        problems = [{"path": "locales", "message": "locale and locales differ"}]
    unknown = [each for each in locales(config) if each not in options.locales] if not problems else []
    if unknown:
        raise Fault(
            Kind.INVALID_INPUT,
            f"Pages cannot be written in {', '.join(unknown)}: facts are quoted in the language of the repository.",
            details={"locales": unknown, "available_locales": list(options.locales)},
            suggested_fix="Use one of available_locales, or add the locale to `locales` of the backend's options.",
        )
    if problems:
        raise Fault(
            Kind.INVALID_INPUT,
            "The run_config does not match its schema.",
            code="SCHEMA_VALIDATION_FAILED",
            details={"errors": problems},
        )
    return {"site_repo_url": options.site_repo_url, **config}


def _own_name(found: github.Repository) -> str:
    """Return the product's name as the README writes it: the repository's name with spaces."""
    name = re.sub(r"[-_]+", " ", found.evidence.name)
    mention = re.search(re.escape(name), found.evidence.readme, re.IGNORECASE)
    return mention[0] if mention else ""


def _config_hash(config: Json) -> str:
    return digest(canonical_json(config))
