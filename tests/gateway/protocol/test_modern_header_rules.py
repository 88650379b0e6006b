"""The modern era: the checks of a request before it becomes a call."""

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


VALID_HEADERS = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "lab_echo"}


@pytest.mark.parametrize(
    ("sent", "headers", "status", "code"),
    [
        (b"{", VALID_HEADERS, 400, -32700),
        (b"[]", VALID_HEADERS, 400, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', VALID_HEADERS, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', VALID_HEADERS, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', VALID_HEADERS, 400, -32602),
        (body(meta={f"{META}protocolVersion": MODERN}), VALID_HEADERS, 400, -32602),
        (body(meta={f"{META}clientCapabilities": {}}), VALID_HEADERS, 400, -32602),
        (
            body(meta={f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": []}, name="lab_echo"),
            VALID_HEADERS, 400, -32602,
        ),
        (body(name="lab_echo"), {**VALID_HEADERS, "mcp-method": None}, 400, -32020),
        (body(name="lab_echo"), {**VALID_HEADERS, "mcp-method": "TOOLS/CALL"}, 400, -32020),
        (body(name="lab_echo"), {**VALID_HEADERS, "mcp-name": None}, 400, -32020),
        (body(name="lab_echo"), {**VALID_HEADERS, "mcp-name": "lab_other"}, 400, -32020),
        (body(name="lab_echo"), {**VALID_HEADERS, "mcp-protocol-version": "2099-01-01"}, 400, -32020),
        (
            body(name="lab_echo", meta={f"{META}protocolVersion": "2099-01-01", f"{META}clientCapabilities": {}}),
            {**VALID_HEADERS, "mcp-protocol-version": "2099-01-01"}, 400, -32022,
        ),
        (body("initialize"), {**VALID_HEADERS, "mcp-method": "initialize"}, 404, -32601),
        (body("ping"), {**VALID_HEADERS, "mcp-method": "ping"}, 404, -32601),
        (body("logging/setLevel"), {**VALID_HEADERS, "mcp-method": "logging/setLevel"}, 404, -32601),
        (body("resources/subscribe", uri="x:y"), {**VALID_HEADERS, "mcp-method": "resources/subscribe"}, 404, -32601),
        (body(name="nowhere"), {**VALID_HEADERS, "mcp-name": "nowhere"}, 400, -32602),
    ],
)  # fmt: skip
async def test_each_failed_check_has_its_own_code_and_status(
    sent: bytes, headers: Json, status: int, code: int
) -> None:
    async with Rig(FakeBackend()) as rig:
        response = await rig.request(sent, headers)
    assert (response.status, response.json["error"]["code"]) == (status, code)
    assert response.headers["content-type"] == "application/json"


async def test_first_failed_check_determines_the_error() -> None:
    """The request fails every check; correcting one problem at a time yields the error of the next check."""
    async with Rig(FakeBackend()) as rig:
        headers = {"mcp-protocol-version": "2099-01-01", "mcp-method": "ping", "mcp-name": "no"}
        other = {f"{META}protocolVersion": "2099-01-01", f"{META}clientCapabilities": 7, f"{META}logLevel": "loud"}
        codes = [
            (await rig.request(b"{", headers, duplicate="mcp-method")).json["error"]["code"],
            (await rig.request(body("no/such", meta={}), headers, duplicate="mcp-method")).json["error"]["code"],
            (await rig.request(body("no/such", meta={}), headers)).json["error"]["code"],
            (await rig.request(body("no/such", meta=other), headers)).json["error"]["code"],
            (await rig.request(body("no/such", meta=other), {**headers, "mcp-method": "no/such"})).json["error"][
                "code"
            ],
        ]
        headers |= {"mcp-protocol-version": MODERN, "mcp-method": "no/such"}
        for fix in ({"protocolVersion": MODERN}, {"clientCapabilities": {}}, {"logLevel": "error"}):
            other |= {META + key: value for key, value in fix.items()}
            codes.append((await rig.request(body("no/such", meta=other), headers)).json["error"]["code"])
    assert codes == [-32700, -32020, -32602, -32020, -32022, -32602, -32602, -32601]


async def test_unsupported_version_error_lists_the_supported_versions() -> None:
    async with Rig() as rig:
        meta = {f"{META}protocolVersion": "2099-01-01", f"{META}clientCapabilities": {}}
        sent = body("tools/list", meta=meta)
        response = await rig.request(sent, {"mcp-protocol-version": "2099-01-01", "mcp-method": "tools/list"})
    assert response.json["error"]["data"] == {"supported": [MODERN], "requested": "2099-01-01"}


async def test_every_refusal_has_the_id_of_the_request() -> None:
    async with Rig() as rig:
        for method, headers in (("no/such", {}), ("tools/list", {"mcp-method": "x"})):
            assert (await rig.modern(method, id="seven", headers=headers)).json["id"] == "seven"


async def test_unknown_endpoint_is_not_found() -> None:
    async with Rig(FakeBackend()) as rig:
        response = await rig.modern("tools/list", path="/mcp/nowhere")
    assert (response.status, response.json["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize("level", ["loud", 7, ["info"], ""])
async def test_unknown_log_level_is_rejected(level: Any) -> None:
    async with Rig(FakeBackend()) as rig:
        response = await rig.modern("tools/list", meta={f"{META}logLevel": level})
    assert (response.status, response.json["error"]["code"]) == (400, -32602)


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
async def test_mirrored_argument_must_equal_its_header(arguments: Json, header: str | None, code: int | None) -> None:
    async with Rig(FakeBackend(tools=(MIRRORED,))) as rig:
        params = {"name": "lab_echo", "arguments": arguments}
        response = await rig.modern("tools/call", params, headers={"mcp-param-region": header})
    assert response.json.get("error", {}).get("code") == code
    assert response.status == (200 if code is None else 400)
