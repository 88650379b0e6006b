"""`subscriptions/listen`: acknowledged, told, and ended."""

import asyncio
from typing import Any

import pytest

from gateway.contract import Json, ListChange
from gateway.state.tenants import Tenant
from tests.gateway.fakes import ALICE, FakeBackend, Paper, Rig, until

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
ALL: Json = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


def backend() -> FakeBackend:
    return FakeBackend(resources=({"uri": "x:a", "name": "a"}, {"uri": "x:b", "name": "b"}))


async def uris(rig: Rig) -> list[str]:
    return [each["uri"] for each in (await rig.modern("resources/list")).json["result"]["resources"]]


async def listening(rig: Rig, wanted: Json, **more: Any) -> tuple[Paper, "asyncio.Task[None]"]:
    paper, task = rig.begin_modern("subscriptions/listen", {"notifications": wanted}, id="L1", **more)
    await until(lambda: paper.messages)
    return paper, task


async def test_the_first_frame_acknowledges_exactly_what_was_granted() -> None:
    async with Rig(backend()) as rig:
        a, _ = await uris(rig)
        wanted = {
            "toolsListChanged": True,
            "promptsListChanged": False,
            "resourceSubscriptions": [a, "gatehouse://no/x"],
        }
        paper, _ = await listening(rig, wanted)
    assert paper.messages == [
        {
            "jsonrpc": "2.0",
            "method": ACKNOWLEDGED,
            "params": {
                "_meta": {SUBSCRIPTION: "L1"},
                "notifications": {"toolsListChanged": True, "resourceSubscriptions": [a]},
            },
        }
    ]


async def test_what_changes_is_told_with_the_id_of_the_subscription() -> None:
    served = backend()
    async with Rig(served) as rig:
        a, _ = await uris(rig)
        paper, _ = await listening(rig, {**ALL, "resourceSubscriptions": [a]})
        assert served.watches[-1] == {"x:a"}
        rig.hub.changed("lab", ListChange("tools"))
        served.say(ListChange("resource", "x:b"))
        served.say(ListChange("resource", "x:a"))
        await until(lambda: len(paper.messages) == 3)
    assert [(each["method"], each["params"]) for each in paper.messages[1:]] == [
        ("notifications/tools/list_changed", {"_meta": {SUBSCRIPTION: "L1"}}),
        ("notifications/resources/updated", {"uri": a, "_meta": {SUBSCRIPTION: "L1"}}),
    ]


async def test_what_was_not_asked_for_or_is_not_in_view_is_not_told() -> None:
    async with Rig(backend()) as rig:
        paper, _ = await listening(rig, {"promptsListChanged": True})
        rig.hub.changed("lab", ListChange("tools"))
        rig.hub.changed("hidden", ListChange("prompts"))
        rig.hub.changed("lab", ListChange("prompts"))
        await until(lambda: len(paper.messages) == 2)
    assert paper.messages[1]["method"] == "notifications/prompts/list_changed"


async def test_leaving_ends_the_subscription_and_what_was_watched_for_it() -> None:
    served = backend()
    async with Rig(served) as rig:
        paper, task = await listening(rig, {"resourceSubscriptions": await uris(rig)})
        paper.leave()
        await asyncio.wait_for(task, 5)
        assert served.watches[-1] == frozenset()
        assert (rig.hub._ears, rig.hub._wants) == (set(), {})


async def test_a_stopping_server_ends_it_with_a_result() -> None:
    async with Rig(backend()) as rig:
        paper, task = await listening(rig, ALL)
        rig.hub.close()
        await asyncio.wait_for(task, 5)
    assert paper.messages[-1]["id"] == "L1"
    assert paper.messages[-1]["result"]["resultType"] == "complete"
    assert paper.messages[-1]["result"]["_meta"][SUBSCRIPTION] == "L1"
    assert paper.closed


@pytest.mark.parametrize("wanted", [None, [], "tools", 7])
async def test_a_filter_that_is_no_object_is_refused(wanted: Any) -> None:
    async with Rig(backend()) as rig:
        paper = await rig.modern("subscriptions/listen", {"notifications": wanted})
    assert (paper.status, paper.json["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize("flag", [1, "true", None, False, {}])
async def test_only_true_switches_a_notification_on(flag: Any) -> None:
    async with Rig(backend()) as rig:
        paper, _ = await listening(rig, {"toolsListChanged": flag})
    assert paper.messages[0]["params"]["notifications"] == {}


@pytest.mark.parametrize("asked", [7, True, {"a": 1}])
async def test_subscriptions_that_are_no_list_are_the_clients_mistake(asked: Any) -> None:
    async with Rig(backend()) as rig:
        paper, _ = rig.begin_modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": asked}})
        await until(lambda: paper.status)
    assert (paper.status, paper.json["error"]["code"]) == (400, -32602) if not paper.opened else False


async def test_a_tenant_that_was_suspended_hears_no_more_of_its_resources() -> None:
    served = backend()
    async with Rig(served) as rig:
        paper, _ = await listening(rig, {"resourceSubscriptions": await uris(rig)})
        rig.tenants["acme"] = Tenant("acme", suspended=True)
        assert rig.catalogue.view(ALICE, "/mcp").namespaces == {}
        served.say(ListChange("resource", "x:a"))
        for _ in range(5):
            await asyncio.sleep(0)
    assert len(paper.messages) == 1
