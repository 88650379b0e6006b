"""Every fault kind has the error number and data of the Gox contract, in both eras."""

from typing import Any

import pytest
from mcp import MCPError

from tests.conftest import MODERN

# kind, code, category, handshake number, 2026-07-28 number
FAULTS = [
    ("invalid_input", "VALIDATION_ERROR", "client", -32602, -32602),
    ("too_large", "VALIDATION_ERROR", "client", -32602, -32602),
    ("not_found", "NOT_FOUND", "client", -32044, 404),
    ("denied", "ACCESS_DENIED", "policy", -32043, 403),
    ("approval_required", "ACCESS_DENIED", "policy", -32043, 403),
    ("illegal_state", "ACCESS_DENIED", "client", -32043, 409),
    ("rate_limited", "ACCESS_DENIED", "policy", -32043, 429),
    ("unsupported", "UNIMPLEMENTED", "runtime", -32041, 501),
    ("unavailable", "INTERNAL_ERROR", "platform", -32603, 503),
    ("timeout", "INTERNAL_ERROR", "runtime", -32603, 504),
    ("internal", "INTERNAL_ERROR", "runtime", -32603, -32603),
]


async def test_every_fault_kind_has_its_number_code_and_data(gateway: Any, era: str) -> None:
    async with gateway.client(era) as client:
        for kind, code, category, handshake, modern in FAULTS:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("sandbox_fail", {"kind": kind})
            error = caught.value.error
            assert error.code == (modern if era == MODERN else handshake), kind
            assert {"code": code, "category": category, "details": {"requested": kind}}.items() <= error.data.items()
            assert isinstance(error.data["retryable"], bool)
            assert error.data["correlation_id"]


async def test_unexpected_exception_is_an_internal_error_without_details(gateway: Any) -> None:
    answer = await gateway.call("sandbox_fail", {"kind": "defect"})
    assert (answer["error"]["code"], answer["error"]["data"]["code"]) == (-32603, "INTERNAL_ERROR")
    assert "passwd" not in str(answer)


@pytest.mark.parametrize(
    ("arguments", "path", "rule"),
    [
        ({}, "input.kind", "required"),
        ({"kind": 5}, "input.kind", "type"),
        ({"kind": "x", "more": 1}, "input.more", "additionalProperties"),
    ],
)
async def test_a_schema_error_names_its_path_and_rule(gateway: Any, arguments: Any, path: str, rule: str) -> None:
    data = (await gateway.call("sandbox_fail", arguments))["error"]["data"]
    assert (data["code"], data["validation_path"], data["validation_rule"]) == ("VALIDATION_ERROR", path, rule)


async def test_arguments_over_the_size_limit_are_rejected_with_both_sizes(gateway: Any) -> None:
    answer = await gateway.call("sandbox_write", {"value": "x" * 1_100_000})
    data = answer["error"]["data"]
    assert answer["error"]["code"] == -32602
    assert data["payload_bytes"] > data["max_bytes"] == 1_048_576
