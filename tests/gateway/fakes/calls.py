"""Factories for calls and routes."""

from dataclasses import replace
from typing import Any

from gateway.contract import (
    MODERN,
    Call,
    ClientProfile,
    Json,
    Record,
    Route,
)
from tests.gateway.fakes.backend import FakeBackend, FakeWire
from tests.gateway.fakes.callers import ALICE, ECHO


def a_route(backend: Any = None, definition: Json | None = None, **more: Any) -> Route:
    backend = backend or FakeBackend()
    name = (definition or ECHO)["name"]
    more.setdefault("needs_approval", more.get("effect", 2) >= 3)
    route = Route(
        backend.namespace,
        name,
        f"{backend.namespace}.{name}",
        f"{backend.namespace}_{name}",
        backend,
        definition or ECHO,
    )
    return replace(route, **more)


def a_call(method: str = "tools/call", params: Json | None = None, **more: Any) -> Call:
    """A modern call of Alice; `more` overrides its fields."""
    fields: Json = {
        "client": ClientProfile(MODERN, {}),
        "wire": FakeWire(),
        "record": Record(),
        "caller": ALICE,
        "request_id": 1,
        "route": a_route() if method == "tools/call" else None,
        **more,
    }
    return Call(id="cid", method=method, params={"name": "lab_echo"} if params is None else params, **fields)
