"""A caller's view: names, lists, pages, what is hidden and what is only denied."""

import json
from typing import Any

import pytest

from gateway.catalogue.snapshot import take
from gateway.catalogue.view import MAX_INSTRUCTIONS, ListFormat, View
from gateway.contract import MODERN, BackendLists, Json, Manifest, Route
from gateway.errors import Fault, Kind
from gateway.state.tenants import Tenant
from tests.gateway.fakes import FakeBackend, Rig

CHOICE: Json = {"type": "object", "oneOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": 2}}}]}


def tool(name: str, **more: Any) -> Json:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def view(*backends: FakeBackend, mode: Any = "underscore", sees: Any = None, lists: Any = None, **naming: Any) -> View:
    everything = lambda route: True  # noqa: E731
    snapshots = [take(each, each.offered) for each in backends]
    return View(snapshots, mode, ListFormat(**naming), sees or everything, lists or everything)


def page(shown: View, method: str = "tools/list", cursor: str | None = None, version: str = MODERN) -> Json:
    return json.loads(shown.page(method, cursor, version))


def names(shown: View) -> list[str]:
    return [each["name"] for each in page(shown)["tools"]]


# ---- names


@pytest.mark.parametrize(
    ("mode", "listed"),
    [("underscore", ["lab_echo", "lab_scan"]), ("dotted", ["lab.echo", "lab.scan"]), ("bare", ["echo", "lab_scan"])],
)
def test_each_mode_lists_its_own_names_and_takes_the_others(mode: str, listed: list[str]) -> None:
    shown = view(FakeBackend(tools=(tool("echo"), tool("lab_scan"))), mode=mode)
    assert names(shown) == listed
    for name in ("lab_echo", "lab.echo", *(["echo"] if mode == "bare" else [])):
        assert shown.tools[name].name == "echo"
    assert shown.tools["lab.scan"].name == "lab_scan"
    assert shown.tools.get("scan") is None


def test_the_canonical_id_is_in_every_tools_meta_beside_its_own() -> None:
    shown = view(FakeBackend(tools=(tool("echo", _meta={"own": 1}),)))
    assert page(shown)["tools"][0]["_meta"] == {"own": 1, "gatehouse/id": "lab.echo"}


def test_a_choice_at_the_root_is_listed_flat_only_where_names_have_underscores() -> None:
    backend = FakeBackend(tools=(tool("echo", inputSchema=CHOICE),))
    listed = {
        mode: page(view(backend, mode=mode))["tools"][0]["inputSchema"] for mode in ("underscore", "dotted", "bare")
    }
    assert "oneOf" not in listed["underscore"]
    assert listed["dotted"] == listed["bare"] == CHOICE
    with pytest.raises(Fault):
        view(backend).tools["lab_echo"].check({"a": 3})  # type: ignore[misc]


def test_the_order_is_that_of_the_backends_and_always_the_same() -> None:
    backends = [FakeBackend("b", tools=(tool("z"), tool("a"))), FakeBackend("a", tools=(tool("m"),))]
    assert names(view(*backends)) == ["b_z", "b_a", "a_m"]
    assert view(*backends).page("tools/list", None, MODERN) == view(*backends).page("tools/list", None, MODERN)


def test_what_a_backend_lists_is_shown_field_for_field_but_for_tasks() -> None:
    item = tool("echo", title="T", icons=[{"src": "x"}], custom=1, execution={"taskSupport": "required"})
    shown = page(view(FakeBackend(tools=(item,))))["tools"][0]
    assert {key: shown[key] for key in ("title", "icons", "custom")} == {
        "title": "T",
        "icons": [{"src": "x"}],
        "custom": 1,
    }
    assert "execution" not in shown


# ---- resources and prompts


def test_a_resource_keeps_its_uri_only_where_its_backend_owns_it() -> None:
    items = ({"uri": "own://a", "name": "a"}, {"uri": "file:///b", "name": "b"}, {"uri": "ui://c", "name": "c"})
    backend = FakeBackend(resources=items, manifest=Manifest(uri_prefixes=("own://",)))
    shown = view(backend)
    uris = [each["uri"] for each in page(shown, "resources/list")["resources"]]
    assert uris == ["own://a", "gatehouse://lab/file%3A%2F%2F%2Fb", "ui://lab/c"]
    assert [shown.resource(uri).name for uri in uris] == ["own://a", "file:///b", "ui://c"]  # type: ignore[union-attr]
    bare = view(backend, mode="bare")
    assert [each["uri"] for each in page(bare, "resources/list")["resources"]] == [each["uri"] for each in items]


def test_a_resource_that_is_not_listed_may_still_be_its_backends() -> None:
    backend = FakeBackend(manifest=Manifest(uri_prefixes=("own://",)))
    shown = view(backend, FakeBackend("tools", capabilities={"tools": {}}))
    assert shown.resource("own://deep/x").name == "own://deep/x"  # type: ignore[union-attr]
    assert shown.resource("gatehouse://lab/x%3Ay").name == "x:y"  # type: ignore[union-attr]
    for unknown in ("other://x", "gatehouse://nobody/x%3Ay", "gatehouse://tools/x%3Ay", ""):
        assert shown.resource(unknown) is None


def test_links_in_results_are_renamed_as_the_view_shows_them() -> None:
    route = view(FakeBackend()).tools["lab_echo"]
    assert route.rewrite is not None
    result = route.rewrite({"content": [{"type": "resource_link", "uri": "x:y", "name": "y"}]})
    assert result["content"][0]["uri"] == "gatehouse://lab/x%3Ay"
    assert view(FakeBackend(), mode="bare").tools["echo"].rewrite is None


def test_a_completion_is_put_to_the_backend_in_its_own_words() -> None:
    backend = FakeBackend(prompts=({"name": "ask"},), templates=({"uriTemplate": "x:{id}", "name": "t"},))
    shown = view(backend)
    template = page(shown, "resources/templates/list")["resourceTemplates"][0]["uriTemplate"]
    found = shown.completable({"type": "ref/prompt", "name": "lab_ask"})
    assert found is not None
    assert found[1] == {"type": "ref/prompt", "name": "ask"}
    found = shown.completable({"type": "ref/resource", "uri": template})
    assert found is not None
    assert found[1] == {"type": "ref/resource", "uri": "x:{id}"}
    assert shown.completable({"type": "ref/prompt", "name": "no"}) is None
    assert shown.completable({}) is None


# ---- pages


def walk(shown: View) -> list[list[str]]:
    pages: list[list[str]] = []
    cursor: str | None = None
    while True:
        result = page(shown, cursor=cursor)
        pages.append([each["name"] for each in result["tools"]])
        if (cursor := result.get("nextCursor")) is None:
            return pages


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (3, [3]), (4, [3, 1]), (6, [3, 3]), (7, [3, 3, 1])])
def test_pages_hold_every_item_once(count: int, sizes: list[int]) -> None:
    pages = walk(view(FakeBackend(tools=tuple(tool(f"t{number}") for number in range(count))), page_size=3))
    assert [len(each) for each in pages] == sizes
    assert [name for each in pages for name in each] == [f"lab_t{number}" for number in range(count)]


@pytest.mark.parametrize(
    "cursor", ["", "x", "cGFnZTow", "cGFnZTotMQ==", "cGFnZTo5OTk=", "cGFnZTp4", "\u0661", "A" * 9999, "aG9sZTox"]
)
def test_a_cursor_that_we_did_not_give_is_refused(cursor: str) -> None:
    shown = view(FakeBackend(tools=tuple(tool(f"t{number}") for number in range(9))), page_size=3)
    with pytest.raises(Fault) as refused:
        shown.page("tools/list", cursor, MODERN)
    assert refused.value.kind is Kind.INVALID_INPUT


def test_a_page_is_encoded_once_for_each_era() -> None:
    shown = view(FakeBackend())
    assert shown.page("tools/list", None, MODERN) is shown.page("tools/list", None, MODERN)
    assert shown.page("tools/list", None, "2024-11-05") is shown.page("tools/list", None, "2025-11-25")


def test_an_output_schema_that_is_no_objects_is_left_out_for_the_handshake_era() -> None:
    items = (tool("a", outputSchema={"type": "array"}), tool("b", outputSchema={"type": "object"}))
    shown = view(FakeBackend(tools=items))
    assert ["outputSchema" in each for each in page(shown)["tools"]] == [True, True]
    assert ["outputSchema" in each for each in page(shown, version="2025-11-25")["tools"]] == [False, True]


# ---- what is in view


def test_what_is_not_seen_leads_nowhere_and_what_is_not_listed_leads_on() -> None:
    backend = FakeBackend(tools=(tool("open"), tool("quiet"), tool("hidden")))

    def sees(route: Route) -> bool:
        return route.name != "hidden"

    def lists(route: Route) -> bool:
        return route.name == "open"

    shown = view(backend, sees=sees, lists=lists)
    assert names(shown) == ["lab_open"]
    assert "lab_quiet" in shown.tools
    assert "lab_hidden" not in shown.tools
    assert "lab.hidden" not in shown.tools


async def test_read_only_mode_hides_a_writing_tool_but_its_call_is_told_why() -> None:
    backend = FakeBackend(tools=(tool("read"), tool("write")), manifest=Manifest(effects={"read": 0, "write": 2}))
    async with Rig(backend, tenant=Tenant("acme", read_only=True)) as rig:
        listed = (await rig.modern("tools/list")).json["result"]["tools"]
        assert [each["name"] for each in listed] == ["lab_read"]
        denied = (await rig.modern("tools/call", {"name": "lab_write"})).json["result"]
        assert denied["structuredContent"]["error"]["kind"] == "denied"
        assert denied["content"][0]["text"] == "This tenant is read-only."
        assert "isError" not in (await rig.modern("tools/call", {"name": "lab_read"})).json["result"]
        rig.tenants["acme"] = Tenant("acme")
        assert len((await rig.modern("tools/list")).json["result"]["tools"]) == 2
    assert [each.route.name for each in backend.calls] == ["read"]  # type: ignore[union-attr]


async def test_a_quarantined_tool_is_neither_listed_nor_called() -> None:
    backend = FakeBackend(tools=(tool("good"), tool("bad", description="a\u200bb")))
    async with Rig(backend) as rig:
        assert [each["name"] for each in (await rig.modern("tools/list")).json["result"]["tools"]] == ["lab_good"]
        refused = (await rig.modern("tools/call", {"name": "lab_bad"})).json["error"]
        unknown = (await rig.modern("tools/call", {"name": "lab_bod"})).json["error"]
    assert refused["code"] == unknown["code"] == -32602
    assert refused["message"].replace("bad", "bod") == unknown["message"]


# ---- what it says of itself


def test_capabilities_are_the_union_of_the_backends() -> None:
    one = FakeBackend("a", capabilities={"tools": {}, "extensions": {"x/y": {"a": 1}}})
    two = FakeBackend("b", capabilities={"resources": {"subscribe": True}, "extensions": {"x/z": {}}})
    three = FakeBackend("c", capabilities={"completions": {}, "resources": {}})
    assert view(one).capabilities() == {"logging": {}, "tools": {"listChanged": True}, "extensions": {"x/y": {"a": 1}}}
    assert view(one, two, three).capabilities() == {
        "logging": {},
        "tools": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
        "extensions": {"x/y": {"a": 1}, "x/z": {}},
    }
    assert view(three).capabilities()["resources"]["subscribe"] is False
    assert view().capabilities() == {"logging": {}}


def test_instructions_are_headed_by_namespace_and_bounded() -> None:
    one, two, silent = FakeBackend("a", instructions=" Do. "), FakeBackend("b", instructions="Be."), FakeBackend("c")
    assert view(one, silent, two).instructions() == "## a\nDo.\n\n## b\nBe."
    assert view(one, mode="bare").instructions() == "Do."
    assert len(view(FakeBackend(instructions="x" * 99_999)).instructions()) == MAX_INSTRUCTIONS


def test_an_offer_of_nothing_is_a_view_of_nothing() -> None:
    backend = FakeBackend()
    backend.offered = BackendLists()
    shown = view(backend)
    assert (names(shown), shown.resource("x:y"), shown.instructions()) == ([], None, "")
