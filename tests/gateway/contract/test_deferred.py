"""Values that are built at their first use."""

import asyncio
import sys
import threading
from pathlib import Path

import pytest

from gateway.contract.deferred import Deferred


async def test_value_is_built_once_for_concurrent_uses() -> None:
    built: list[object] = []

    def build() -> object:
        built.append(object())
        return built[-1]

    deferred = Deferred(build)
    assert deferred.built is None
    values = await asyncio.gather(*(deferred.get() for _ in range(5)))
    assert len(built) == 1
    assert all(value is deferred.built for value in values)


async def test_modules_are_imported_in_another_thread_before_the_value_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deferred_part.py").write_text("import threading\nTHREAD = threading.get_ident()\n")
    monkeypatch.syspath_prepend(tmp_path)
    imported_by = await Deferred(lambda: sys.modules["deferred_part"].THREAD, "deferred_part").get()
    assert imported_by != threading.get_ident()


async def test_cancelled_use_does_not_cancel_the_others() -> None:
    deferred = Deferred(lambda: "value")
    first, second = (asyncio.ensure_future(deferred.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "value"
