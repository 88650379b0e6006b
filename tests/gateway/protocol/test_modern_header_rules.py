"""2026-07-28: the ladder that a request climbs before it is a call."""

import json
from typing import Any

import pytest

from gateway.contract import MODERN, Json
from tests.gateway.fakes import FakeBackend, Rig

META = "io.modelcontextprotocol/"
MIRRORED: Json = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
}


def body(method: str = "tools/call", *, id: Any = 1, meta: Any = None, **params: Any) -> bytes:
    envelope = {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {}}
    params["_meta"] = envelope if meta is None else meta
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


GOOD = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "lab_echo"}


@pytest.mark.parametrize(
    ("sent", "headers", "status", "code"),
    [
        (b"{", GOOD, 400, -32700),
        (b"[]", GOOD, 400, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', GOOD, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', GOOD, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', GOOD, 400, -32602),
        (body(meta={f"{META}protocolVersion": MODERN}), GOOD, 400, -32602),
        (body(meta={f"{META}clientCapabilities": {}}), GOOD, 400, -32602),
        (
            body(meta={f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": []}, name="lab_echo"),
            GOOD, 400, -32602,
        ),
        (body(name="lab_echo"), {**GOOD, "mcp-method": None}, 400, -32020),
        (body(name="lab_echo"), {**GOOD, "mcp-method": "TOOLS/CALL"}, 400, -32020),
        (body(name="lab_echo"), {**GOOD, "mcp-name": None}, 400, -32020),
        (body(name="lab_echo"), {**GOOD, "mcp-name": "lab_other"}, 400, -32020),
        (body(name="lab_echo"), {**GOOD, "mcp-protocol-version": "2099-01-01"}, 400, -32020),
        (
            body(name="lab_echo", meta={f"{META}protocolVersion": "2099-01-01", f"{META}clientCapabilities": {}}),
            {**GOOD, "mcp-protocol-version": "2099-01-01"}, 400, -32022,
        ),
        (body("initialize"), {**GOOD, "mcp-method": "initialize"}, 404, -32601),
        (body("ping"), {**GOOD, "mcp-method": "ping"}, 404, -32601),
        (body("logging/setLevel"), {**GOOD, "mcp-method": "logging/setLevel"}, 404, -32601),
        (body("resources/subscribe", uri="x:y"), {**GOOD, "mcp-method": "resources/subscribe"}, 404, -32601),
        (body(name="nowhere"), {**GOOD, "mcp-name": "nowhere"}, 400, -32602),
    ],
)  # fmt: skip
async def test_each_rung_answers_with_its_own_code_and_status(
    sent: bytes, headers: Json, status: int, code: int
) -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.request(sent, headers)
    assert (paper.status, paper.json["error"]["code"]) == (status, code)
    assert paper.headers["content-type"] == "application/json"


async def test_the_first_rung_that_fails_is_the_one_that_is_told() -> None:
    """Everything is wrong with it; mending one thing at a time brings the next rung's answer."""
    async with Rig(FakeBackend()) as rig:
        bad = {"mcp-protocol-version": "2099-01-01", "mcp-method": "ping", "mcp-name": "no"}
        other = {f"{META}protocolVersion": "2099-01-01", f"{META}clientCapabilities": 7, f"{META}logLevel": "loud"}
        seen = [
            (await rig.request(b"{", bad, duplicate="mcp-method")).json["error"]["code"],
            (await rig.request(body("no/such", meta={}), bad, duplicate="mcp-method")).json["error"]["code"],
            (await rig.request(body("no/such", meta={}), bad)).json["error"]["code"],
            (await rig.request(body("no/such", meta=other), bad)).json["error"]["code"],
            (await rig.request(body("no/such", meta=other), {**bad, "mcp-method": "no/such"})).json["error"]["code"],
        ]
        bad |= {"mcp-protocol-version": MODERN, "mcp-method": "no/such"}
        for mend in ({"protocolVersion": MODERN}, {"clientCapabilities": {}}, {"logLevel": "error"}):
            other |= {META + key: value for key, value in mend.items()}
            seen.append((await rig.request(body("no/such", meta=other), bad)).json["error"]["code"])
    assert seen == [-32700, -32020, -32602, -32020, -32022, -32602, -32602, -32601]


async def test_an_unsupported_version_is_told_which_are_supported() -> None:
    async with Rig() as rig:
        meta = {f"{META}protocolVersion": "2099-01-01", f"{META}clientCapabilities": {}}
        sent = body("tools/list", meta=meta)
        paper = await rig.request(sent, {"mcp-protocol-version": "2099-01-01", "mcp-method": "tools/list"})
    assert paper.json["error"]["data"] == {"supported": [MODERN], "requested": "2099-01-01"}


async def test_every_refusal_of_the_ladder_carries_the_id_of_the_request() -> None:
    async with Rig() as rig:
        for method, headers in (("no/such", {}), ("tools/list", {"mcp-method": "x"})):
            assert (await rig.modern(method, id="seven", headers=headers)).json["id"] == "seven"


async def test_an_endpoint_that_is_not_there_is_not_found() -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.modern("tools/list", path="/mcp/nowhere")
    assert (paper.status, paper.json["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize("level", ["loud", 7, ["info"], ""])
async def test_a_log_level_that_is_none_is_refused(level: Any) -> None:
    async with Rig(FakeBackend()) as rig:
        paper = await rig.modern("tools/list", meta={f"{META}logLevel": level})
    assert (paper.status, paper.json["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize(
    ("arguments", "header", "code"),
    [
        ({"region": "eu"}, "eu", None),
        ({"region": "eu"}, None, -32020),
        ({"region": "eu"}, "us", -32020),
        ({"region": "é"}, "=?base64?w6k=?=", None),
        ({}, "eu", -32020),
        ({}, None, None),
    ],
)
async def test_an_argument_that_is_mirrored_must_equal_its_header(
    arguments: Json, header: str | None, code: int | None
) -> None:
    async with Rig(FakeBackend(tools=(MIRRORED,))) as rig:
        params = {"name": "lab_echo", "arguments": arguments}
        paper = await rig.modern("tools/call", params, headers={"mcp-param-region": header})
    assert paper.json.get("error", {}).get("code") == code
    assert paper.status == (200 if code is None else 400)
