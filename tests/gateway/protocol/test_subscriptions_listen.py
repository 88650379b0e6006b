"""`subscriptions/listen`: acknowledgement, notifications and end."""

import asyncio
from typing import Any

import pytest

from gateway.contract import Json, ListChange
from gateway.state.tenants import Tenant
from tests.gateway.fakes import ALICE, FakeBackend, FakeResponseWriter, Rig, until

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
ALL: Json = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


def backend() -> FakeBackend:
    return FakeBackend(resources=({"uri": "x:a", "name": "a"}, {"uri": "x:b", "name": "b"}))


async def uris(rig: Rig) -> list[str]:
    return [each["uri"] for each in (await rig.modern("resources/list")).json["result"]["resources"]]


async def start_listening(rig: Rig, requested: Json, **more: Any) -> tuple[FakeResponseWriter, "asyncio.Task[None]"]:
    response, task = rig.begin_modern("subscriptions/listen", {"notifications": requested}, id="L1", **more)
    await until(lambda: response.messages)
    return response, task


async def test_the_first_frame_acknowledges_exactly_what_was_granted() -> None:
    async with Rig(backend()) as rig:
        a, _ = await uris(rig)
        requested = {
            "toolsListChanged": True,
            "promptsListChanged": False,
            "resourceSubscriptions": [a, "gatehouse://no/x"],
        }
        response, _ = await start_listening(rig, requested)
    assert response.messages == [
        {
            "jsonrpc": "2.0",
            "method": ACKNOWLEDGED,
            "params": {
                "_meta": {SUBSCRIPTION: "L1"},
                "notifications": {"toolsListChanged": True, "resourceSubscriptions": [a]},
            },
        }
    ]


async def test_notifications_have_the_id_of_the_subscription() -> None:
    fake = backend()
    async with Rig(fake) as rig:
        a, _ = await uris(rig)
        response, _ = await start_listening(rig, {**ALL, "resourceSubscriptions": [a]})
        assert fake.subscriptions[-1] == {"x:a"}
        rig.subscriptions.publish("lab", ListChange("tools"))
        fake.emit_change(ListChange("resource", "x:b"))
        fake.emit_change(ListChange("resource", "x:a"))
        await until(lambda: len(response.messages) == 3)
    assert [(each["method"], each["params"]) for each in response.messages[1:]] == [
        ("notifications/tools/list_changed", {"_meta": {SUBSCRIPTION: "L1"}}),
        ("notifications/resources/updated", {"uri": a, "_meta": {SUBSCRIPTION: "L1"}}),
    ]


async def test_unrequested_or_hidden_changes_are_not_sent() -> None:
    async with Rig(backend()) as rig:
        response, _ = await start_listening(rig, {"promptsListChanged": True})
        rig.subscriptions.publish("lab", ListChange("tools"))
        rig.subscriptions.publish("hidden", ListChange("prompts"))
        rig.subscriptions.publish("lab", ListChange("prompts"))
        await until(lambda: len(response.messages) == 2)
    assert response.messages[1]["method"] == "notifications/prompts/list_changed"


async def test_disconnect_ends_the_subscription_and_its_upstream_subscriptions() -> None:
    fake = backend()
    async with Rig(fake) as rig:
        response, task = await start_listening(rig, {"resourceSubscriptions": await uris(rig)})
        response.disconnect()
        await asyncio.wait_for(task, 5)
        assert fake.subscriptions[-1] == frozenset()
        assert (rig.subscriptions._listeners, rig.subscriptions._interests) == (set(), {})


async def test_server_stop_ends_the_subscription_with_a_result() -> None:
    async with Rig(backend()) as rig:
        response, task = await start_listening(rig, ALL)
        rig.subscriptions.close()
        await asyncio.wait_for(task, 5)
    assert response.messages[-1]["id"] == "L1"
    assert response.messages[-1]["result"]["resultType"] == "complete"
    assert response.messages[-1]["result"]["_meta"][SUBSCRIPTION] == "L1"
    assert response.closed


@pytest.mark.parametrize("requested", [None, [], "tools", 7])
async def test_filter_that_is_not_an_object_is_rejected(requested: Any) -> None:
    async with Rig(backend()) as rig:
        response = await rig.modern("subscriptions/listen", {"notifications": requested})
    assert (response.status, response.json["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize("flag", [1, "true", None, False, {}])
async def test_only_true_enables_a_notification(flag: Any) -> None:
    async with Rig(backend()) as rig:
        response, _ = await start_listening(rig, {"toolsListChanged": flag})
    assert response.messages[0]["params"]["notifications"] == {}


@pytest.mark.parametrize("value", [7, True, {"a": 1}])
async def test_resource_subscriptions_that_are_not_a_list_are_rejected(value: Any) -> None:
    async with Rig(backend()) as rig:
        response, _ = rig.begin_modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": value}})
        await until(lambda: response.status)
    assert (response.status, response.json["error"]["code"]) == (400, -32602) if not response.opened else False


async def test_suspended_tenant_gets_no_more_updates() -> None:
    fake = backend()
    async with Rig(fake) as rig:
        response, _ = await start_listening(rig, {"resourceSubscriptions": await uris(rig)})
        rig.tenants["acme"] = Tenant("acme", suspended=True)
        view = rig.catalogue.view(ALICE, "/mcp")
        assert view is not None
        assert view.namespaces == {}
        fake.emit_change(ListChange("resource", "x:a"))
        for _ in range(5):
            await asyncio.sleep(0)
    assert len(response.messages) == 1
