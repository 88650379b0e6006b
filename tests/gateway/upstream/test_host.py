"""What a module gets of the house."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.contract import Caller, CurrentCall, Json, NullWire, TracePosition
from gateway.errors import Fault, Kind
from gateway.telemetry.work_span import FinishedWork
from gateway.upstream.host import CURRENT_CALL, HostServices, ModuleHost
from tests.gateway.fakes import ALICE

OTHER = Caller("other", "alice")


class Shelf:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Path | None]] = []

    def store(self, tenant: str, name: str, migrations: Path | None) -> Any:
        self.asked.append((tenant, name, migrations))
        return object()

    async def tenants(self, name: str) -> tuple[str, ...]:
        return ("acme", name)


def home(
    folder: Path, opened: asyncio.Event | None = None, worked: list[FinishedWork] | None = None, **more: Any
) -> tuple[ModuleHost, Shelf]:
    shelf = Shelf()
    nothing: Any = object()

    async def invoke(caller: Caller, tool: str, arguments: Json, meta: Json) -> Json:
        return {"for": caller.subject, "tool": tool, "arguments": arguments, "meta": meta}

    async def good(caller: Caller) -> bool:
        return caller.tenant == "acme"

    spawned: list[Any] = []
    house = HostServices(
        stores=shelf, files=folder, bus=nothing, http=nothing, loopback=True, bridge=lambda namespace: nothing,
        invoke=invoke, has_tool=lambda caller, tool: True, is_authorized=good, spawn=spawned.append,
        ready=(opened or asyncio.Event()).wait, record_work=worked.append if worked is not None else lambda done: None,
    )  # fmt: skip
    given: Json = {"namespace": "lab", "options": None, "bridge": nothing, "store_name": "gox", "migrations": None}
    return ModuleHost(services=house, **{**given, **more}), shelf


def test_each_tenant_has_a_folder_of_its_own_that_is_there_and_private(tmp_path: Path) -> None:
    made, _ = home(tmp_path)
    mine, theirs = made.folder(ALICE), made.folder(OTHER)
    assert mine.is_dir()
    assert theirs.is_dir()
    assert mine.stat().st_mode & 0o077 == 0
    assert not mine.is_relative_to(theirs)
    assert not theirs.is_relative_to(mine)
    assert made.folder(ALICE) == mine


def test_the_tenants_folder_above_is_private_too(tmp_path: Path) -> None:
    folder = home(tmp_path)[0].folder(ALICE)
    assert folder.parent.stat().st_mode & 0o077 == 0


def test_a_store_is_the_tenants_and_has_the_shared_name(tmp_path: Path) -> None:
    made, shelf = home(tmp_path, migrations=tmp_path)
    made.store(ALICE)
    made.store(OTHER)
    assert shelf.asked == [("acme", "gox", tmp_path), ("other", "gox", tmp_path)]


def test_outside_of_a_call_there_is_no_here(tmp_path: Path) -> None:
    made, _ = home(tmp_path)
    with pytest.raises(LookupError):
        made.current_call()
    here = CurrentCall(ALICE, "cid", 1.0, {})
    token = CURRENT_CALL.set(here)
    assert made.current_call() is here
    CURRENT_CALL.reset(token)


async def test_tenants_are_told_once_the_house_is_open(tmp_path: Path) -> None:
    opened = asyncio.Event()
    asking = asyncio.ensure_future(home(tmp_path, opened)[0].tenants())
    await asyncio.sleep(0)
    assert not asking.done()
    opened.set()
    assert await asking == ("acme", "gox")


async def test_another_tool_is_invoked_as_the_caller_that_is_given(tmp_path: Path) -> None:
    made, _ = home(tmp_path)
    assert await made.invoke(OTHER, "a.b", {"x": 1}, {"m": 2}) == {
        "for": "alice", "tool": "a.b", "arguments": {"x": 1}, "meta": {"m": 2},
    }  # fmt: skip
    assert await made.is_authorized(ALICE)
    assert not await made.is_authorized(OTHER)


async def test_on_a_call_of_the_house_nobody_hears_and_nobody_can_be_asked() -> None:
    wire = NullWire()
    await wire.notify("notifications/message", {})
    await wire.hang_up()
    assert wire.waited == 0.0
    with pytest.raises(Fault) as refused:
        await wire.ask({"a": {"method": "roots/list"}})
    assert refused.value.kind is Kind.UNSUPPORTED


# ---- pieces of work ----


def test_a_piece_of_work_stands_below_the_call_and_whatever_is_done_in_it_below_the_piece(tmp_path: Path) -> None:
    done: list[FinishedWork] = []
    made, _ = home(tmp_path, worked=done)
    call = TracePosition("a" * 32, "b" * 16, "c" * 16, True)
    token = CURRENT_CALL.set(CurrentCall(ALICE, "cid", 1.0, {}, call))
    try:
        outer = made.span("outer", {"number": 1})
        assert (outer.position.trace_id, outer.position.parent_id, outer.position.sampled) == (
            call.trace_id,
            "b" * 16,
            True,
        )
        with outer:
            assert made.current_call().position == outer.position
            with made.span("inner") as inner:
                assert inner.position.parent_id == outer.position.span_id
            assert made.current_call().position == outer.position
        assert made.current_call().position == call
        made.span("never begun")
    finally:
        CURRENT_CALL.reset(token)
    assert [(each.namespace, each.name, each.exc) for each in done] == [("lab", "inner", None), ("lab", "outer", None)]
    assert done[1].started <= done[0].started <= done[0].ended <= done[1].ended


def test_what_a_piece_of_work_raises_is_told_and_goes_on(tmp_path: Path) -> None:
    done: list[FinishedWork] = []
    made, _ = home(tmp_path, worked=done)
    with pytest.raises(LookupError):
        made.span("outside of a call")
    token = CURRENT_CALL.set(CurrentCall(ALICE, "cid", 1.0, {}))
    with pytest.raises(Fault), made.span("work"):
        raise Fault(Kind.TIMEOUT, "late")
    CURRENT_CALL.reset(token)
    (only,) = done
    assert isinstance(only.exc, Fault)
    assert not only.place.sampled
