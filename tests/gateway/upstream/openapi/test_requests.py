"""How arguments are sent: the styles of the OpenAPI specification as tables, bodies, and values that are refused."""

from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Fault
from gateway.upstream.openapi.requests import ApiRequest, build_request
from tests.gateway.upstream.openapi.documents import operation, parameter

ARRAY = ["blue", "black", "brown"]
OBJECT = {"R": 100, "G": 200, "B": 150}


def build(location: str, value: Any, *, path: str = "/x", **more: Any) -> ApiRequest:
    _, op = operation(path, parameters=[parameter(location, {}, **more)])
    return build_request(op, {"p": value})


# The expected values are the table "Style Examples" of the OpenAPI specification.
@pytest.mark.parametrize(
    ("style", "explode", "value", "sent"),
    [
        ("form", False, "blue", "p=blue"),
        ("form", False, ARRAY, "p=blue,black,brown"),
        ("form", False, OBJECT, "p=R,100,G,200,B,150"),
        ("form", True, ARRAY, "p=blue&p=black&p=brown"),
        ("form", True, OBJECT, "R=100&G=200&B=150"),
        ("form", True, "", "p="),
        ("spaceDelimited", False, ARRAY, "p=blue%20black%20brown"),
        ("spaceDelimited", False, OBJECT, "p=R%20100%20G%20200%20B%20150"),
        ("spaceDelimited", True, ARRAY, "p=blue&p=black&p=brown"),
        ("pipeDelimited", False, ARRAY, "p=blue%7Cblack%7Cbrown"),
        ("deepObject", True, OBJECT, "p%5BR%5D=100&p%5BG%5D=200&p%5BB%5D=150"),
        ("deepObject", True, {"a": {"b": [1, True]}}, "p%5Ba%5D%5Bb%5D%5B0%5D=1&p%5Ba%5D%5Bb%5D%5B1%5D=true"),
        (None, None, ARRAY, "p=blue&p=black&p=brown"),
        (None, None, 1.5, "p=1.5"),
        (None, None, 10**30, f"p={10**30}"),
        (None, None, False, "p=false"),
        (None, None, [], ""),
    ],
)
def test_query_styles(style: str | None, explode: bool | None, value: Any, sent: str) -> None:
    more: dict[str, Any] = {key: each for key, each in (("style", style), ("explode", explode)) if each is not None}
    assert build("query", value, **more).path == (f"/x?{sent}" if sent else "/x")


@pytest.mark.parametrize(
    ("style", "explode", "value", "sent"),
    [
        ("simple", False, "blue", "blue"),
        ("simple", False, ARRAY, "blue,black,brown"),
        ("simple", False, OBJECT, "R,100,G,200,B,150"),
        ("simple", True, OBJECT, "R=100,G=200,B=150"),
        ("label", False, "blue", ".blue"),
        ("label", False, ARRAY, ".blue,black,brown"),
        ("label", True, ARRAY, ".blue.black.brown"),
        ("label", True, OBJECT, ".R=100.G=200.B=150"),
        ("matrix", False, "blue", ";p=blue"),
        ("matrix", False, ARRAY, ";p=blue,black,brown"),
        ("matrix", True, ARRAY, ";p=blue;p=black;p=brown"),
        ("matrix", False, OBJECT, ";p=R,100,G,200,B,150"),
        ("matrix", True, OBJECT, ";R=100;G=200;B=150"),
    ],
)
def test_path_styles(style: str, explode: bool, value: Any, sent: str) -> None:
    assert build("path", value, path="/x/{p}/y", style=style, explode=explode).path == f"/x/{sent}/y"


@pytest.mark.parametrize(
    ("explode", "value", "sent"),
    [(False, ARRAY, "blue,black,brown"), (False, OBJECT, "R,100,G,200,B,150"), (True, OBJECT, "R=100,G=200,B=150")],
)
def test_header_style(explode: bool, value: Any, sent: str) -> None:
    assert f"p: {sent}\r\n".encode() in build("header", value, explode=explode).headers


def test_parameter_with_a_media_type_is_sent_as_json() -> None:
    _, op = operation(parameters=[{"in": "query", "name": "p", "content": {"application/json": {"schema": {}}}}])
    assert build_request(op, {"p": {"a": [1]}}).path == "/x?p=%7B%22a%22%3A%5B1%5D%7D"


def test_allow_reserved_keeps_characters_that_cannot_add_a_parameter() -> None:
    assert build("query", "a/b:c&d=e#f+g%h", allowReserved=True).path == "/x?p=a/b:c%26d%3De%23f%2Bg%25h"


def test_absent_and_null_arguments_are_left_out() -> None:
    _, op = operation(parameters=[parameter("query", {}), {"in": "header", "name": "h", "schema": {}}])
    request = build_request(op, {"p": None})
    assert (request.path, request.body) == ("/x", None)
    assert b"h:" not in request.headers


def test_argument_names_are_unique_and_acceptable_to_model_providers() -> None:
    names = [("path", "id"), ("query", "id"), ("header", "id"), ("query", "filter[name]"), ("query", "body")]
    tool, op = operation("/x/{id}", parameters=[{"in": place, "name": name, "schema": {}} for place, name in names])
    assert list(tool["inputSchema"]["properties"]) == ["id", "query_id", "filter_name", "query_body", "header_id"]
    request = build_request(op, {"id": 1, "query_id": 2, "filter_name": 3, "query_body": 4, "header_id": 5})
    assert request.path == "/x/1?id=2&filter%5Bname%5D=3&body=4"


@given(st.text(min_size=1, max_size=40))
def test_path_value_stays_one_segment_or_is_refused(value: str) -> None:
    try:
        path = build("path", value, path="/x/{p}/y").path
    except Fault:
        return
    assert path.isascii()
    assert path.isprintable()
    assert path.count("/") == 3
    assert not {"?", "#", " "} & set(path)


@given(st.text(max_size=40), st.text(max_size=40))
def test_query_value_adds_no_other_parameter(first: str, second: str) -> None:
    path = build("query", [first, second]).path
    sent = parse_qsl(path.partition("?")[2], keep_blank_values=True)
    assert sent == [("p", first), ("p", second)]


def test_dot_segment_made_of_template_and_value_is_refused() -> None:
    with pytest.raises(Fault, match="must not be empty"):
        build("path", "", path="/files/.{p}")
    _, op = operation("/files/{a}{b}", parameters=[{"in": "path", "name": name, "schema": {}} for name in "ab"])
    with pytest.raises(Fault, match="dot segment"):
        build_request(op, {"a": ".", "b": "."})


def body_of(content: dict[str, Any], value: Any) -> ApiRequest:
    _, op = operation(method="post", requestBody={"content": content})
    return build_request(op, {"body": value})


def test_form_properties_follow_their_encoding() -> None:
    properties = {name: {} for name in ("a", "deep", "space", "plain", "list")}
    encoding = {"deep": {"style": "deepObject"}, "space": {"style": "spaceDelimited", "explode": False}}
    content = {"application/x-www-form-urlencoded": {"schema": {"properties": properties}, "encoding": encoding}}
    value = {"a": "x y", "deep": {"k": {"l": 1}}, "space": [1, 2], "plain": {"z": 1}, "list": [1, 2]}
    request = body_of(content, value)
    assert request.body == (b"a=x%20y&deep%5Bk%5D%5Bl%5D=1&space=1%202&plain=%7B%22z%22%3A1%7D&list=1&list=2")
    assert b"content-type: application/x-www-form-urlencoded\r\n" in request.headers


def test_binary_body_has_the_media_type_of_the_file() -> None:
    request = body_of({"application/octet-stream": {}}, {"blob": "AAEC", "mimeType": "image/gif"})
    assert request.body == b"\x00\x01\x02"
    assert b"content-type: image/gif\r\n" in request.headers


@pytest.mark.parametrize("mime", ["a\r\nx: y", " ", "a" * 200])
def test_media_type_of_a_file_cannot_add_a_header(mime: str) -> None:
    with pytest.raises(Fault, match="media type"):
        body_of({"application/octet-stream": {}}, {"blob": "AAEC", "mimeType": mime})


@pytest.mark.parametrize(
    ("types", "chosen"),
    [
        (["text/plain", "application/json"], "application/json"),
        (["application/json-patch+json", "application/merge-patch+json"], "application/merge-patch+json"),
        (["multipart/form-data", "application/x-www-form-urlencoded"], "application/x-www-form-urlencoded"),
        (["*/*"], "application/json"),
        (["application/vnd.x+json"], "application/vnd.x+json"),
        (["text/csv"], "text/csv"),
    ],
)
def test_one_media_type_is_chosen(types: list[str], chosen: str) -> None:
    request = body_of({each: {"schema": {"properties": {"a": {}}}} for each in types}, {"a": 1})
    assert f"content-type: {chosen}\r\n".encode() in request.headers


def test_writing_request_without_a_body_has_a_length() -> None:
    _, op = operation(method="post")
    assert build_request(op, {}).body == b""
