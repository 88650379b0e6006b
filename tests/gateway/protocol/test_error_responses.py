"""The error model: every error kind, in both eras and for every method."""

from typing import Any

import pytest

from gateway.contract import MODERN, Call, ClientProfile, Json, Manifest
from gateway.errors import TABLE, Fault, ForeignError, Kind, UnknownName
from gateway.protocol.responses import ERROR_META, RpcError, render_error
from tests.gateway.fakes import ECHO, HANDSHAKE, FakeBackend, Rig, a_call, a_route

# kind, plain HTTP, handshake era, 2026-07-28, retryable
MODEL = [
    (Kind.INVALID_INPUT, 400, -32602, -32602, False),
    (Kind.TOO_LARGE, 413, -32602, -32602, False),
    (Kind.UNAUTHENTICATED, 401, -32043, 401, False),
    (Kind.DENIED, 403, -32043, 403, False),
    (Kind.APPROVAL_REQUIRED, 403, -32043, 403, False),
    (Kind.NOT_FOUND, 404, -32044, 404, False),
    (Kind.ILLEGAL_STATE, 409, -32043, 409, False),
    (Kind.RATE_LIMITED, 429, -32043, 429, True),
    (Kind.UNSUPPORTED, 501, -32041, 501, False),
    (Kind.UNAVAILABLE, 503, -32603, 503, True),
    (Kind.TIMEOUT, 504, -32603, 504, True),
    (Kind.CANCELLED, 499, -32800, 499, False),
    (Kind.INTERNAL, 500, -32603, -32603, False),
]
VERSIONS = (*HANDSHAKE, MODERN)
PROTOCOL = Manifest(error_style="protocol", effects={"echo": 0})
# The codes that 2026-07-28 maps to another HTTP status; all other errors have status 200.
STATUS = {-32602: 400}


def failing(kind: Kind, manifest: Manifest | None = None, **more: Any) -> FakeBackend:
    async def answer(call: Call) -> Json:
        raise Fault(kind, "In words.", details={"a": 1})

    items = {"prompts": ({"name": "ask"},), "resources": ({"uri": "own:a", "name": "a"},)}
    manifest = manifest or Manifest(effects={"echo": 0}, uri_prefixes=("own:",))
    return FakeBackend(answer=answer, manifest=manifest, **items, **more)


async def send_request(rig: Rig, version: str, method: str, params: Json) -> Any:
    if version == MODERN:
        return await rig.modern(method, params)
    return await rig.legacy(await rig.session(version), method, params)


def test_error_table_matches_the_documented_model() -> None:
    assert [(kind, row.http, row.handshake, row.modern, row.retryable) for kind, row in TABLE.items()] == MODEL
    assert set(TABLE) == set(Kind)


def test_no_modern_code_is_in_the_reserved_range() -> None:
    assert not [row for row in TABLE.values() if -32099 <= row.modern <= -32020]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("kind", "handshake", "modern", "retryable"), [(m[0], *m[2:]) for m in MODEL])
async def test_a_fault_of_a_protocol_backend_is_a_json_rpc_error(
    version: str, kind: Kind, handshake: int, modern: int, retryable: bool
) -> None:
    code = modern if version == MODERN else handshake
    async with Rig(failing(kind, PROTOCOL)) as rig:
        response = await send_request(rig, version, "tools/call", {"name": "lab_echo"})
    error = response.json["error"]
    assert (error["code"], error["message"]) == (code, "In words.")
    assert response.status == (STATUS.get(code, 200) if version == MODERN else 200)
    assert error["data"] == {
        "kind": kind.value,
        "code": kind.value.upper(),
        "category": TABLE[kind].category,
        "message": "In words.",
        "retryable": retryable,
        "correlation_id": response.headers["x-correlation-id"],
        "origin": "lab",
        "stage": "dispatch",
        "details": {"a": 1},
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", list(Kind))
async def test_a_fault_of_any_other_backend_is_a_result_with_is_error(version: str, kind: Kind) -> None:
    async with Rig(failing(kind)) as rig:
        response = await send_request(rig, version, "tools/call", {"name": "lab_echo"})
    result = response.json["result"]
    assert (response.status, result["isError"], result["content"]) == (
        200,
        True,
        [{"type": "text", "text": "In words."}],
    )
    if version >= "2025-06-18":
        assert result["structuredContent"]["ok"] is False
        assert result["structuredContent"]["error"]["kind"] == kind.value
    else:
        assert "structuredContent" not in result


@pytest.mark.parametrize("version", [HANDSHAKE[-1], MODERN])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": "lab_ask"}),
        ("resources/read", {"uri": "own:a"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "lab_ask"}, "argument": {}}),
    ],
)
async def test_failure_of_a_method_other_than_tools_call_is_a_json_rpc_error(
    version: str, method: str, params: Json
) -> None:
    async with Rig(failing(Kind.ILLEGAL_STATE)) as rig:
        response = await send_request(rig, version, method, params)
    assert response.json["error"]["code"] == (409 if version == MODERN else -32043)
    assert response.json["error"]["data"]["kind"] == "illegal_state"


@pytest.mark.parametrize(
    ("version", "method", "params", "code", "noun"),
    [
        (MODERN, "tools/call", {"name": "no"}, -32602, "tool"),
        (HANDSHAKE[0], "tools/call", {"name": "no"}, -32602, "tool"),
        (MODERN, "prompts/get", {"name": "no"}, -32602, "prompt"),
        (HANDSHAKE[-1], "prompts/get", {"name": "no"}, -32602, "prompt"),
        (MODERN, "resources/read", {"uri": "no:x"}, -32602, "resource"),
        (HANDSHAKE[-1], "resources/read", {"uri": "no:x"}, -32002, "resource"),
    ],
)
async def test_unknown_name_gets_the_error_code_of_the_protocol(
    version: str, method: str, params: Json, code: int, noun: str
) -> None:
    async with Rig(failing(Kind.INTERNAL)) as rig:
        response = await send_request(rig, version, method, params)
    error = response.json["error"]
    assert (error["code"], error["data"]["kind"], error["data"]["stage"]) == (code, "not_found", "resolve")
    assert error["message"] == f"Unknown {noun}: {next(iter(params.values()))}"
    assert error["data"]["origin"] == "gateway"
    if noun == "resource":
        assert error["data"]["uri"] == "no:x"


# ---- render_error -----------------------------------------------------------------------------------------------


def test_manifest_codes_and_render_error_apply_to_gateway_faults() -> None:
    manifest = Manifest(
        codes={Kind.DENIED: "ACCESS_DENIED"},
        render_error=lambda error, tool, arguments: {"summary": error["code"], "tool": tool, "for": arguments},
    )
    call = a_call(params={"arguments": {"x": 1}}, route=a_route(FakeBackend(manifest=manifest)))
    result = render_error(Fault(Kind.DENIED, "No."), call)
    assert isinstance(result, dict)
    assert result["structuredContent"] == {"summary": "ACCESS_DENIED", "tool": "echo", "for": {"x": 1}}


def test_code_of_the_fault_takes_precedence_over_manifest_codes() -> None:
    call = a_call(route=a_route(FakeBackend(manifest=Manifest(error_style="protocol", codes={Kind.DENIED: "D"}))))
    rendered = render_error(Fault(Kind.DENIED, "No.", code="SPECIAL"), call)
    assert isinstance(rendered, RpcError)
    assert rendered.data["code"] == "SPECIAL"


def test_a_tool_with_an_output_schema_has_its_error_in_text_and_meta() -> None:
    call = a_call(route=a_route(definition={**ECHO, "outputSchema": {"type": "object"}}))
    result = render_error(Fault(Kind.DENIED, "No."), call)
    assert isinstance(result, dict)
    assert "structuredContent" not in result
    assert result["_meta"][ERROR_META]["kind"] == "denied"


def test_validation_and_size_details_are_top_level_members() -> None:
    facts = {"validation_path": "input.a", "validation_rule": "type", "payload_bytes": 9, "max_bytes": 1, "more": 2}
    rendered = render_error(
        Fault(Kind.TOO_LARGE, "Big.", details=facts, suggested_fix="Less.", retry_after=3), a_call(route=None)
    )
    assert isinstance(rendered, RpcError)
    assert {key: rendered.data[key] for key in facts if key != "more"} == {
        key: facts[key] for key in facts if key != "more"
    }
    assert (rendered.data["suggested_fix"], rendered.data["retry_after"], rendered.data["details"]) == (
        "Less.",
        3,
        {"more": 2},
    )


@pytest.mark.parametrize(
    ("version", "code", "data", "rendered"),
    [
        (MODERN, -32002, {"uri": "x:y"}, (-32602, {"uri": "x:y"})),
        (HANDSHAKE[0], -32002, {"uri": "x:y"}, (-32002, {"uri": "x:y"})),
        (HANDSHAKE[0], -32602, {"uri": "x:y"}, (-32002, {"uri": "x:y"})),
        (HANDSHAKE[0], -32602, "other", (-32602, "other")),
        (MODERN, 7, [1], (7, [1])),
        (MODERN, -32603, None, (-32603, None)),
    ],
)
def test_foreign_error_is_unchanged_except_the_code_of_an_unknown_resource(
    version: str, code: int, data: Any, rendered: tuple[int, Any]
) -> None:
    error = render_error(ForeignError(code, "Its words.", data), a_call(client=ClientProfile(version, {})))
    assert isinstance(error, RpcError)
    assert ((error.code, error.data), error.message) == (rendered, "Its words.")


def test_unknown_resource_error_of_an_old_backend_names_the_uri_for_a_modern_client() -> None:
    call = a_call("resources/read", {"uri": "x:y"}, route=a_route(definition={"name": "x:y", "uri": "x:y"}))
    error = render_error(ForeignError(-32002, "Resource not found"), call)
    assert isinstance(error, RpcError)
    assert error.data == {"uri": "x:y"}


def test_unknown_resource_error_repeats_the_uri_next_to_the_error_object() -> None:
    for version, code in ((MODERN, -32602), (HANDSHAKE[0], -32002)):
        error = render_error(
            UnknownName("No.", uri="x:y"), a_call("resources/read", {}, client=ClientProfile(version, {}))
        )
        assert isinstance(error, RpcError)
        assert (error.code, error.data["uri"], error.data["code"]) == (code, "x:y", "NOT_FOUND")
