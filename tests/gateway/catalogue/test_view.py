"""Views: names, lists, pages, and the difference between hidden and denied tools."""

import json
from typing import Any

import pytest

from gateway.catalogue.list_format import ListFormat
from gateway.catalogue.snapshot import take_snapshot
from gateway.catalogue.view import MAX_INSTRUCTIONS, View
from gateway.contract import MODERN, BackendLists, Json, Manifest, Route
from gateway.errors import Fault, Kind
from gateway.state.tenants import Tenant
from tests.gateway.fakes import FakeBackend, Rig

CHOICE: Json = {"type": "object", "oneOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": 2}}}]}


def tool(name: str, **more: Any) -> Json:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def make_view(
    *backends: FakeBackend, mode: Any = "underscore", can_see: Any = None, can_list: Any = None, **format_options: Any
) -> View:
    allow_all = lambda route: True  # noqa: E731
    snapshots = [take_snapshot(each, each.lists) for each in backends]
    return View(snapshots, mode, ListFormat(**format_options), can_see or allow_all, can_list or allow_all)


def page(view: View, method: str = "tools/list", cursor: str | None = None, version: str = MODERN) -> Json:
    return json.loads(view.page(method, cursor, version))


def names(view: View) -> list[str]:
    return [each["name"] for each in page(view)["tools"]]


# ---- names


@pytest.mark.parametrize(
    ("mode", "listed"),
    [("underscore", ["lab_echo", "lab_scan"]), ("dotted", ["lab.echo", "lab.scan"]), ("bare", ["echo", "lab_scan"])],
)
def test_each_mode_lists_its_names_and_accepts_those_of_the_other_modes(mode: str, listed: list[str]) -> None:
    view = make_view(FakeBackend(tools=(tool("echo"), tool("lab_scan"))), mode=mode)
    assert names(view) == listed
    for name in ("lab_echo", "lab.echo", *(["echo"] if mode == "bare" else [])):
        assert view.tools[name].name == "echo"
    assert view.tools["lab.scan"].name == "lab_scan"
    assert view.tools.get("scan") is None


def test_canonical_id_and_effect_are_added_to_the_meta_of_every_tool() -> None:
    view = make_view(FakeBackend(tools=(tool("echo", _meta={"own": 1}),)))
    assert page(view)["tools"][0]["_meta"] == {"own": 1, "gatehouse/id": "lab.echo", "gatehouse/effect": 0}


def test_schemas_are_flattened_in_underscore_mode_only() -> None:
    backend = FakeBackend(tools=(tool("echo", inputSchema=CHOICE),))
    listed = {
        mode: page(make_view(backend, mode=mode))["tools"][0]["inputSchema"]
        for mode in ("underscore", "dotted", "bare")
    }
    assert "oneOf" not in listed["underscore"]
    assert listed["dotted"] == listed["bare"] == CHOICE
    with pytest.raises(Fault):
        make_view(backend).tools["lab_echo"].check({"a": 3})  # type: ignore[misc]


def test_items_are_listed_in_the_order_of_the_backends() -> None:
    backends = [FakeBackend("b", tools=(tool("z"), tool("a"))), FakeBackend("a", tools=(tool("m"),))]
    assert names(make_view(*backends)) == ["b_z", "b_a", "a_m"]
    assert make_view(*backends).page("tools/list", None, MODERN) == make_view(*backends).page(
        "tools/list", None, MODERN
    )


def test_all_fields_of_a_tool_are_listed_except_execution() -> None:
    item = tool("echo", title="T", icons=[{"src": "x"}], custom=1, execution={"taskSupport": "required"})
    view = page(make_view(FakeBackend(tools=(item,))))["tools"][0]
    assert {key: view[key] for key in ("title", "icons", "custom")} == {
        "title": "T",
        "icons": [{"src": "x"}],
        "custom": 1,
    }
    assert "execution" not in view


# ---- resources and prompts


def test_resource_keeps_its_uri_only_if_its_backend_owns_the_prefix() -> None:
    items = ({"uri": "own://a", "name": "a"}, {"uri": "file:///b", "name": "b"}, {"uri": "ui://c", "name": "c"})
    backend = FakeBackend(resources=items, manifest=Manifest(uri_prefixes=("own://",)))
    view = make_view(backend)
    uris = [each["uri"] for each in page(view, "resources/list")["resources"]]
    assert uris == ["own://a", "gatehouse://lab/file%3A%2F%2F%2Fb", "ui://lab/c"]
    assert [view.find_resource(uri).name for uri in uris] == ["own://a", "file:///b", "ui://c"]  # type: ignore[union-attr]
    bare = make_view(backend, mode="bare")
    assert [each["uri"] for each in page(bare, "resources/list")["resources"]] == [each["uri"] for each in items]


def test_unlisted_resource_is_routed_by_prefix_or_namespace() -> None:
    backend = FakeBackend(manifest=Manifest(uri_prefixes=("own://",)))
    view = make_view(backend, FakeBackend("tools", capabilities={"tools": {}}))
    assert view.find_resource("own://deep/x").name == "own://deep/x"  # type: ignore[union-attr]
    assert view.find_resource("gatehouse://lab/x%3Ay").name == "x:y"  # type: ignore[union-attr]
    for unknown in ("other://x", "gatehouse://unknown/x%3Ay", "gatehouse://tools/x%3Ay", ""):
        assert view.find_resource(unknown) is None


def test_links_in_results_are_rewritten_to_the_uris_of_the_view() -> None:
    route = make_view(FakeBackend()).tools["lab_echo"]
    assert route.rewrite is not None
    result = route.rewrite({"content": [{"type": "resource_link", "uri": "x:y", "name": "y"}]})
    assert result["content"][0]["uri"] == "gatehouse://lab/x%3Ay"
    assert make_view(FakeBackend(), mode="bare").tools["echo"].rewrite is None


def test_completion_reference_is_translated_to_the_backends_names() -> None:
    backend = FakeBackend(prompts=({"name": "ask"},), templates=({"uriTemplate": "x:{id}", "name": "t"},))
    view = make_view(backend)
    template = page(view, "resources/templates/list")["resourceTemplates"][0]["uriTemplate"]
    found = view.resolve_completion({"type": "ref/prompt", "name": "lab_ask"})
    assert found is not None
    assert found[1] == {"type": "ref/prompt", "name": "ask"}
    found = view.resolve_completion({"type": "ref/resource", "uri": template})
    assert found is not None
    assert found[1] == {"type": "ref/resource", "uri": "x:{id}"}
    assert view.resolve_completion({"type": "ref/prompt", "name": "no"}) is None
    assert view.resolve_completion({}) is None


# ---- pages


def walk(view: View) -> list[list[str]]:
    pages: list[list[str]] = []
    cursor: str | None = None
    while True:
        result = page(view, cursor=cursor)
        pages.append([each["name"] for each in result["tools"]])
        if (cursor := result.get("nextCursor")) is None:
            return pages


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (3, [3]), (4, [3, 1]), (6, [3, 3]), (7, [3, 3, 1])])
def test_pages_contain_every_item_once(count: int, sizes: list[int]) -> None:
    pages = walk(make_view(FakeBackend(tools=tuple(tool(f"t{number}") for number in range(count))), page_size=3))
    assert [len(each) for each in pages] == sizes
    assert [name for each in pages for name in each] == [f"lab_t{number}" for number in range(count)]


@pytest.mark.parametrize(
    "cursor", ["", "x", "cGFnZTow", "cGFnZTotMQ==", "cGFnZTo5OTk=", "cGFnZTp4", "\u0661", "A" * 9999, "aG9sZTox"]
)
def test_cursor_that_was_not_issued_is_rejected(cursor: str) -> None:
    view = make_view(FakeBackend(tools=tuple(tool(f"t{number}") for number in range(9))), page_size=3)
    with pytest.raises(Fault) as caught:
        view.page("tools/list", cursor, MODERN)
    assert caught.value.kind is Kind.INVALID_INPUT


def test_page_is_encoded_once_per_era() -> None:
    view = make_view(FakeBackend())
    assert view.page("tools/list", None, MODERN) is view.page("tools/list", None, MODERN)
    assert view.page("tools/list", None, "2024-11-05") is view.page("tools/list", None, "2025-06-18")
    assert view.page("tools/list", None, "2025-11-25") is view.page("tools/list", None, "2025-11-25")


def test_output_schema_that_is_not_an_object_is_removed_for_the_handshake_era() -> None:
    items = (tool("a", outputSchema={"type": "array"}), tool("b", outputSchema={"type": "object"}))
    view = make_view(FakeBackend(tools=items))
    assert ["outputSchema" in each for each in page(view)["tools"]] == [True, True]
    assert ["outputSchema" in each for each in page(view, version="2025-11-25")["tools"]] == [False, True]


# ---- visibility


def test_invisible_name_is_unknown_and_unlisted_name_resolves() -> None:
    backend = FakeBackend(tools=(tool("open"), tool("quiet"), tool("hidden")))

    def can_see(route: Route) -> bool:
        return route.name != "hidden"

    def can_list(route: Route) -> bool:
        return route.name == "open"

    view = make_view(backend, can_see=can_see, can_list=can_list)
    assert names(view) == ["lab_open"]
    assert "lab_quiet" in view.tools
    assert "lab_hidden" not in view.tools
    assert "lab.hidden" not in view.tools


async def test_read_only_tenant_does_not_list_writing_tools_and_their_calls_are_denied_with_reason() -> None:
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


async def test_quarantined_tool_is_neither_listed_nor_callable() -> None:
    backend = FakeBackend(tools=(tool("good"), tool("bad", description="a\u200bb")))
    async with Rig(backend) as rig:
        assert [each["name"] for each in (await rig.modern("tools/list")).json["result"]["tools"]] == ["lab_good"]
        quarantined = (await rig.modern("tools/call", {"name": "lab_bad"})).json["error"]
        unknown = (await rig.modern("tools/call", {"name": "lab_bod"})).json["error"]
    assert quarantined["code"] == unknown["code"] == -32602
    assert quarantined["message"].replace("bad", "bod") == unknown["message"]


# ---- capabilities and instructions


def test_capabilities_are_the_union_of_the_backends() -> None:
    one = FakeBackend("a", capabilities={"tools": {}, "extensions": {"x/y": {"a": 1}}})
    two = FakeBackend("b", capabilities={"resources": {"subscribe": True}, "extensions": {"x/z": {}}})
    three = FakeBackend("c", capabilities={"completions": {}, "resources": {}})
    assert make_view(one).capabilities() == {
        "logging": {},
        "tools": {"listChanged": True},
        "extensions": {"x/y": {"a": 1}},
    }
    assert make_view(one, two, three).capabilities() == {
        "logging": {},
        "tools": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
        "extensions": {"x/y": {"a": 1}, "x/z": {}},
    }
    assert make_view(three).capabilities()["resources"]["subscribe"] is False
    assert make_view().capabilities() == {"logging": {}}


def test_instructions_have_namespace_headings_and_a_length_limit() -> None:
    one, two, silent = FakeBackend("a", instructions=" Do. "), FakeBackend("b", instructions="Be."), FakeBackend("c")
    assert make_view(one, silent, two).instructions() == "## a\nDo.\n\n## b\nBe."
    assert make_view(one, mode="bare").instructions() == "Do."
    assert len(make_view(FakeBackend(instructions="x" * 99_999)).instructions()) == MAX_INSTRUCTIONS


def test_view_of_empty_lists_is_empty() -> None:
    backend = FakeBackend()
    backend.lists = BackendLists()
    view = make_view(backend)
    assert (names(view), view.find_resource("x:y"), view.instructions()) == ([], None, "")
