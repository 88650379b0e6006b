from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.shared.uri_template import UriTemplate
from pydantic import AnyUrl

from gateway.catalogue.names import NAMESPACE
from gateway.catalogue.uris import rewrite_links, rewrite_meta, unwrap, wrap, wrap_template

fuzzed = settings(deadline=None)
namespaces = st.from_regex(NAMESPACE, fullmatch=True)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
uris = st.builds(
    "{}{}".format, st.sampled_from(["file:///", "https://x/", "ui://", "gatehouse://ns/", "u:", ""]), texts
)


def marked(uri: str) -> str:
    return f"<{uri}>"


@pytest.mark.parametrize(
    ("uri", "uri_prefixes", "expected"),
    [
        ("knowledge://entries", ("knowledge://",), "knowledge://entries"),
        ("knowledge://entries", (), "gatehouse://ns/knowledge%3A%2F%2Fentries"),
        ("knowledge://entries", ("knowledge://graph/", "gox://"), "gatehouse://ns/knowledge%3A%2F%2Fentries"),
        ("file:///a b%20c?d#é", (), "gatehouse://ns/file%3A%2F%2F%2Fa%20b%2520c%3Fd%23%C3%A9"),
        ("ui://widget/app.html?x#y", (), "ui://ns/widget/app.html?x#y"),
        ("ui://other/app.html", ("ui://",), "ui://ns/other/app.html"),
        ("gatehouse://other/x", ("gatehouse://",), "gatehouse://ns/gatehouse%3A%2F%2Fother%2Fx"),
    ],
)
def test_uri_with_owned_prefix_is_unchanged_and_any_other_is_wrapped(
    uri: str, uri_prefixes: tuple[str, ...], expected: str
) -> None:
    assert wrap("ns", uri, uri_prefixes) == expected
    assert unwrap(expected) == (None if expected == uri else ("ns", uri))


@fuzzed
@given(namespaces, uris)
def test_unwrapping_restores_the_original_uri(namespace: str, uri: str) -> None:
    assert unwrap(wrap(namespace, uri, ())) == (namespace, uri)


@fuzzed
@given(namespaces, namespaces, uris)
def test_backend_cannot_create_a_uri_of_another(mine: str, other: str, rest: str) -> None:
    for uri in (f"gatehouse://{other}/{rest}", f"ui://{other}/{rest}", f"ui://../{other}/{rest}"):
        for uri_prefixes in ((), ("gatehouse://", "ui://")):
            parts = unwrap(wrap(mine, uri, uri_prefixes))
            assert parts is not None
            assert parts[0] == mine


@fuzzed
@given(namespaces, uris)
def test_wrapped_uri_is_unchanged_by_a_client_that_parses_urls(namespace: str, uri: str) -> None:
    expected = wrap(namespace, uri, ())
    if expected.startswith("gatehouse://"):
        assert expected.isascii()
        assert urlsplit(expected).netloc == namespace
        if not uri.strip("."):
            return  # such a client parses dots alone as a path
        assert unwrap(str(AnyUrl(expected))) == (namespace, uri)


@pytest.mark.parametrize(
    "uri",
    ["", "file:///x", "gatehouse://", "gatehouse://ns", "gatehouse:///x", "gatehouse://NS/x", "gatehouse://n_s/x",
     "gatehouse://ns:1/x", "gatehouse://u@ns/x", "GATEHOUSE://ns/x", "ui://", "ui://ns", "xgatehouse://ns/x",
     "gatehouse://ns/%FF", "gatehouse://ns/%ED%A0%80"],
)  # fmt: skip
def test_uri_without_wrapping_has_no_namespace(uri: str) -> None:
    assert unwrap(uri) is None


def test_lone_surrogate_in_a_uri_is_replaced() -> None:
    assert wrap("ns", "x:\ud800", ()) == "gatehouse://ns/x%3A%3F"


# ---- templates, expanded with the SDK as a client does


VALUES = ["1", "a/b", "a b", "ü", "100%", "%2F", "a:b?c#d&e=f", "..", "{x}", "+"]
TEMPLATES = [
    "test://template/{id}/data",
    "file:///{+id}",
    "file:///{id}",
    "repo://{owner}/{name}/contents{/id}",
    "knowledge://entries{?id,limit}",
    "x://a{#id}",
    "x://a{.id}",
    "x://a{;id}",
    "x://a%20b/{id}",
    "notes/{id}",
    "ui://widget/{id}",
    "{+id}://x",
]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("value", VALUES)
def test_expansion_of_a_wrapped_template_unwraps_to_the_backends_expansion(template: str, value: str) -> None:
    values = {"id": value, "owner": "o/o", "name": value, "limit": "5"}
    expected = wrap_template("ns", template, ())
    expanded = UriTemplate.parse(expected).expand(values)
    assert unwrap(expanded) == ("ns", UriTemplate.parse(template).expand(values))


@fuzzed
@given(namespaces, st.sampled_from(TEMPLATES), texts)
def test_any_value_in_a_wrapped_template_expands_as_in_the_original_template(
    namespace: str, template: str, value: str
) -> None:
    values = {"id": value, "owner": value, "name": value, "limit": value}
    expanded = UriTemplate.parse(wrap_template(namespace, template, ())).expand(values)
    assert unwrap(expanded) == (namespace, UriTemplate.parse(template).expand(values))


@pytest.mark.parametrize("template", TEMPLATES)
def test_unwrapping_restores_the_original_template(template: str) -> None:
    assert unwrap(wrap_template("ns", template, ())) == ("ns", template)


def test_template_with_owned_prefix_is_unchanged() -> None:
    assert wrap_template("ns", "gox://runs/{runId}", ("gox://",)) == "gox://runs/{runId}"


# ---- links


LINKED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"content": [{"type": "text", "text": "t"}, {"type": "resource_link", "uri": "a:b", "name": "n"}], "x": 1},
        {"content": [{"type": "text", "text": "t"}, {"type": "resource_link", "uri": "<a:b>", "name": "n"}], "x": 1},
    ),
    (
        {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "t"}, "_meta": {}}]},
        {"content": [{"type": "resource", "resource": {"uri": "<a:b>", "text": "t"}, "_meta": {}}]},
    ),
    (
        {"contents": [{"uri": "a:b", "text": "t"}, {"uri": "c:d", "blob": ""}]},
        {"contents": [{"uri": "<a:b>", "text": "t"}, {"uri": "<c:d>", "blob": ""}]},
    ),
    (
        {"messages": [{"role": "user", "content": {"type": "resource", "resource": {"uri": "a:b"}}}]},
        {"messages": [{"role": "user", "content": {"type": "resource", "resource": {"uri": "<a:b>"}}}]},
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "resource_link", "uri": "a:b"}, {"type": "text"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "resource_link", "uri": "<a:b>"}, {"type": "text"}]}]},
    ),
]


@pytest.mark.parametrize(("result", "expected"), LINKED)
def test_links_in_a_result_are_wrapped_without_modifying_the_result(
    result: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = repr(result)
    assert rewrite_links(result, marked) == expected
    assert repr(result) == before


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"content": [{"type": "text", "text": "a:b", "uri": "a:b"}], "structuredContent": {"uri": "a:b"}},
        {"content": [{"type": "resource_link", "uri": 1}, {"type": "resource"}, {"type": "resource", "resource": 1}]},
        {"content": "a:b", "contents": {"uri": "a:b"}, "messages": None},
        {"content": [None, 1, "x", [1]], "messages": [None, {}, {"content": None}, {"content": [1]}]},
    ],
)
def test_result_without_links_is_returned_unchanged(result: dict[str, Any]) -> None:
    assert rewrite_links(result, marked) is result


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({"ui": {"resourceUri": "ui://a", "x": 1}}, {"ui": {"resourceUri": "<ui://a>", "x": 1}}),
        ({"ui/resourceUri": "ui://a", "x": 1}, {"ui/resourceUri": "<ui://a>", "x": 1}),
        (
            {"ui/resourceUri": "ui://a", "ui": {"resourceUri": "ui://b"}},
            {"ui/resourceUri": "<ui://a>", "ui": {"resourceUri": "<ui://b>"}},
        ),
    ],
)  # fmt: skip
def test_ui_resource_of_a_tool_is_wrapped(meta: dict[str, Any], expected: dict[str, Any]) -> None:
    assert rewrite_meta({"name": "t", "_meta": meta}, marked) == {"name": "t", "_meta": expected}


@pytest.mark.parametrize(
    "definition", [{"name": "t"}, {"_meta": {}}, {"_meta": {"ui": {}}}, {"_meta": {"ui": 1}}, {"_meta": 1}]
)
def test_tool_without_ui_resource_is_returned_unchanged(definition: dict[str, Any]) -> None:
    assert rewrite_meta(definition, marked) is definition
