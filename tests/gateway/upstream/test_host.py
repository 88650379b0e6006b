"""The host API of a module: stores, folders, calls and work spans."""

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


class FakeStores:
    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Path | None]] = []

    def store(self, tenant: str, name: str, migrations: Path | None) -> Any:
        self.requests.append((tenant, name, migrations))
        return object()

    async def tenants(self, name: str) -> tuple[str, ...]:
        return ("acme", name)


def make_host(
    folder: Path, ready: asyncio.Event | None = None, finished: list[FinishedWork] | None = None, **overrides: Any
) -> tuple[ModuleHost, FakeStores]:
    stores = FakeStores()
    stub: Any = object()

    async def invoke(caller: Caller, tool: str, arguments: Json, meta: Json) -> Json:
        return {"for": caller.subject, "tool": tool, "arguments": arguments, "meta": meta}

    async def is_authorized(caller: Caller) -> bool:
        return caller.tenant == "acme"

    spawned: list[Any] = []
    services = HostServices(
        stores=stores, files=folder, bus=stub, http=stub, loopback=True, peers=lambda namespace, noun: stub,
        invoke=invoke, has_tool=lambda caller, tool: True, find_tool=lambda caller, tool: None,
        is_authorized=is_authorized, spawn=spawned.append,
        ready=(ready or asyncio.Event()).wait,
        record_work=finished.append if finished is not None else lambda work: None,
    )  # fmt: skip
    defaults: Json = {"namespace": "lab", "options": None, "peers": stub, "store_name": "gox", "migrations": None}
    return ModuleHost(services=services, **{**defaults, **overrides}), stores


def test_each_tenant_has_its_own_private_folder(tmp_path: Path) -> None:
    host, _ = make_host(tmp_path)
    own, other = host.folder(ALICE), host.folder(OTHER)
    assert own.is_dir()
    assert other.is_dir()
    assert own.stat().st_mode & 0o077 == 0
    assert not own.is_relative_to(other)
    assert not other.is_relative_to(own)
    assert host.folder(ALICE) == own


def test_parent_folder_of_a_tenant_is_private(tmp_path: Path) -> None:
    folder = make_host(tmp_path)[0].folder(ALICE)
    assert folder.parent.stat().st_mode & 0o077 == 0


def test_store_belongs_to_the_tenant_and_uses_the_manifest_name(tmp_path: Path) -> None:
    host, stores = make_host(tmp_path, migrations=tmp_path)
    host.store(ALICE)
    host.store(OTHER)
    assert stores.requests == [("acme", "gox", tmp_path), ("other", "gox", tmp_path)]


def test_current_call_raises_lookup_error_outside_of_a_call(tmp_path: Path) -> None:
    host, _ = make_host(tmp_path)
    with pytest.raises(LookupError):
        host.current_call()
    current = CurrentCall(ALICE, "cid", 1.0, {})
    token = CURRENT_CALL.set(current)
    assert host.current_call() is current
    CURRENT_CALL.reset(token)


async def test_tenants_returns_once_all_backends_are_loaded(tmp_path: Path) -> None:
    ready = asyncio.Event()
    pending = asyncio.ensure_future(make_host(tmp_path, ready)[0].tenants())
    await asyncio.sleep(0)
    assert not pending.done()
    ready.set()
    assert await pending == ("acme", "gox")


async def test_invoke_calls_a_tool_as_the_supplied_caller(tmp_path: Path) -> None:
    host, _ = make_host(tmp_path)
    assert await host.invoke(OTHER, "a.b", {"x": 1}, {"m": 2}) == {
        "for": "alice", "tool": "a.b", "arguments": {"x": 1}, "meta": {"m": 2},
    }  # fmt: skip
    assert await host.is_authorized(ALICE)
    assert not await host.is_authorized(OTHER)


async def test_null_wire_drops_notifications_and_rejects_requests() -> None:
    wire = NullWire()
    await wire.notify("notifications/message", {})
    await wire.end_response()
    assert wire.waited == 0.0
    with pytest.raises(Fault) as rejected:
        await wire.ask({"a": {"method": "roots/list"}})
    assert rejected.value.kind is Kind.UNSUPPORTED


# ---- work spans ----


def test_work_span_is_a_child_of_the_call_and_parent_of_nested_spans(tmp_path: Path) -> None:
    finished: list[FinishedWork] = []
    host, _ = make_host(tmp_path, finished=finished)
    call = TracePosition("a" * 32, "b" * 16, "c" * 16, True)
    token = CURRENT_CALL.set(CurrentCall(ALICE, "cid", 1.0, {}, call))
    try:
        outer = host.span("outer", {"number": 1})
        assert (outer.position.trace_id, outer.position.parent_id, outer.position.sampled) == (
            call.trace_id,
            "b" * 16,
            True,
        )
        with outer:
            assert host.current_call().position == outer.position
            with host.span("inner") as inner:
                assert inner.position.parent_id == outer.position.span_id
            assert host.current_call().position == outer.position
        assert host.current_call().position == call
        host.span("never begun")
    finally:
        CURRENT_CALL.reset(token)
    assert [(each.namespace, each.name, each.exc) for each in finished] == [
        ("lab", "inner", None),
        ("lab", "outer", None),
    ]
    assert finished[1].started <= finished[0].started <= finished[0].ended <= finished[1].ended


def test_work_span_records_an_exception_and_reraises_it(tmp_path: Path) -> None:
    finished: list[FinishedWork] = []
    host, _ = make_host(tmp_path, finished=finished)
    with pytest.raises(LookupError):
        host.span("outside of a call")
    token = CURRENT_CALL.set(CurrentCall(ALICE, "cid", 1.0, {}))
    with pytest.raises(Fault), host.span("work"):
        raise Fault(Kind.TIMEOUT, "late")
    CURRENT_CALL.reset(token)
    (work,) = finished
    assert isinstance(work.exc, Fault)
    assert not work.position.sampled
