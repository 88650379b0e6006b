"""Ranking by meaning with the local model of the extra `semantic`, if it is installed."""

import asyncio
import importlib
import logging
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, Final

from gateway.contract.embedder_packages import choose_model

log = logging.getLogger("gatehouse.catalogue")

MAX_VECTORS: Final = 20_000
FIRST_SECONDS: Final = 3.0
"""How long a search waits for the vectors of new items. Later searches use those that are ready."""
_BATCH: Final = 32


class MeaningRanker:
    """Ranks texts by their similarity to a query. Vectors are computed in one thread and cached by text."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._thread = ThreadPoolExecutor(1, "tool-search")
        self._embedder: Any = None
        self._numpy: Any = None
        self._vectors: OrderedDict[bytes, Any] = OrderedDict()
        self._preparing: dict[bytes, asyncio.Future[None]] = {}

    @classmethod
    def create(cls) -> "MeaningRanker | None":
        """None if no extra with a model is installed."""
        model = choose_model(None)
        return None if model is None else cls(model)

    async def search(self, query: str, texts: list[str], limit: int) -> list[int]:
        """The numbers of the most similar texts, best first; empty while their vectors are not ready."""
        keys = [sha256(text.encode(errors="replace")).digest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._vectors}
        if missing and not await self._prepare(missing):
            return []
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._nearest, query, keys, limit)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _prepare(self, missing: dict[bytes, str]) -> bool:
        loop = asyncio.get_running_loop()
        group = sha256(b"".join(missing)).digest()
        running = self._preparing.get(group)
        if running is None:
            running = loop.run_in_executor(self._thread, self._embed, missing)
            self._preparing[group] = running
            running.add_done_callback(lambda done: self._finish(group, done))
        done, _ = await asyncio.wait({running}, timeout=FIRST_SECONDS)
        return bool(done) and not running.cancelled() and running.exception() is None

    def _finish(self, group: bytes, done: "asyncio.Future[None]") -> None:
        self._preparing.pop(group, None)
        if not done.cancelled() and (failure := done.exception()) is not None:
            log.warning("tool search: the model cannot be used, words alone rank: %s", failure)

    def _embed(self, missing: dict[bytes, str]) -> None:
        if self._embedder is None:
            self._numpy = importlib.import_module("numpy")
            self._embedder = importlib.import_module("gateway.contract.embedder").load(self._model)
        keys = list(missing)
        for start in range(0, len(keys), _BATCH):
            batch = keys[start : start + _BATCH]
            vectors = self._embedder.embed([missing[key] for key in batch])
            self._vectors.update(zip(batch, vectors, strict=True))
        while len(self._vectors) > MAX_VECTORS:
            self._vectors.popitem(last=False)

    def _nearest(self, query: str, keys: list[bytes], limit: int) -> list[int]:
        known = [number for number, key in enumerate(keys) if key in self._vectors]
        if not known:
            return []
        table = self._numpy.stack([self._vectors[keys[number]] for number in known])
        similar = table @ self._embedder.embed([query])[0]
        order = self._numpy.argsort(-similar, kind="stable")[:limit]
        return [known[each] for each in order if similar[each] >= self._embedder.min_similarity]
