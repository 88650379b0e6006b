"""Routing of requests to the protocol eras, and requests that neither era accepts."""

import json

import pytest

from gateway.contract import MODERN, Json
from tests.gateway.fakes import HANDSHAKE, FakeBackend, Rig

LIST = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).encode()


@pytest.mark.parametrize(
    ("version", "era"),
    [
        (None, "legacy"),
        *((each, "legacy") for each in HANDSHAKE),
        (MODERN, "modern"),
        ("2099-01-01", "modern"),
        ("", "modern"),
    ],
)
async def test_version_header_alone_selects_the_era(version: str | None, era: str) -> None:
    async with Rig(FakeBackend()) as rig:
        response = await rig.request(LIST, {"mcp-protocol-version": version, "mcp-method": "tools/list"})
    message = response.json["error"]["message"]
    assert response.status == 400
    assert ("Mcp-Session-Id" in message) is (era == "legacy")


@pytest.mark.parametrize("version", [None, *HANDSHAKE, MODERN])
@pytest.mark.parametrize("verb", ["PUT", "PATCH", "HEAD", "OPTIONS"])
async def test_other_http_methods_are_not_allowed(version: str | None, verb: str) -> None:
    async with Rig(FakeBackend()) as rig:
        response = await rig.request(verb=verb, headers={"mcp-protocol-version": version})
    assert response.status == 405
    assert response.headers["allow"] == ("POST" if version == MODERN else "GET, POST, DELETE")


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
async def test_modern_era_rejects_get_and_delete(verb: str) -> None:
    async with Rig(FakeBackend()) as rig:
        response = await rig.request(verb=verb, headers={"mcp-protocol-version": MODERN})
    assert (response.status, response.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "",
        "text/plain",
        "application/json-seq",
        "text/json",
        "application/json; charset=utf-7",
        'application/json; x=1; charset="latin1"',
    ],
)
@pytest.mark.parametrize("version", [None, MODERN])
async def test_content_type_other_than_json_is_rejected(version: str | None, kind: str | None) -> None:
    async with Rig(FakeBackend()) as rig:
        response = await rig.request(LIST, {"mcp-protocol-version": version, "content-type": kind})
    assert response.status == 415


@pytest.mark.parametrize(
    "kind",
    ["application/json", "APPLICATION/JSON", "application/json; charset=utf-8", 'application/json;charset="UTF-8"'],
)
async def test_json_content_type_is_accepted_in_any_case_and_with_parameters(kind: str) -> None:
    async with Rig(FakeBackend()) as rig:
        assert (await rig.modern("tools/list", headers={"content-type": kind})).status == 200


@pytest.mark.parametrize(
    ("accept", "modern", "legacy"),
    [
        ("application/json, text/event-stream", True, True),
        ("text/event-stream,application/json;q=0.5", True, True),
        ("*/*", True, True),
        (None, True, True),
        ("application/json", False, True),
        ("text/event-stream", False, False),
        ("text/html", False, False),
    ],
)
async def test_accept_header_must_allow_the_response_types(accept: str | None, modern: bool, legacy: bool) -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        new = await rig.modern("tools/list", headers={"accept": accept})
        old = await rig.legacy(session, "tools/list", headers={"accept": accept})
    assert (new.status == 200, old.status == 200) == (modern, legacy)
    assert {new.status, old.status} <= {200, 406}


async def test_get_without_accept_event_stream_is_rejected() -> None:
    async with Rig(FakeBackend()) as rig:
        headers: Json = {"mcp-session-id": await rig.session(), "accept": "application/json"}
        assert (await rig.request(verb="GET", headers=headers)).status == 406


async def test_every_refusal_is_a_json_rpc_error() -> None:
    async with Rig(FakeBackend()) as rig:
        for headers, verb in (
            ({"content-type": "x"}, "POST"),
            ({"accept": "x"}, "POST"),
            ({}, "PUT"),
            ({"accept": "x"}, "GET"),
        ):
            response = await rig.request(LIST, headers, verb=verb)
            assert response.json["error"]["code"] == -32600
            assert response.json["id"] is None
