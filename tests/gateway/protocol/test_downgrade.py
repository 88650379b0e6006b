"""Conversion of results of the newest revision for clients of each earlier one."""

from typing import Any

import pytest

from gateway.contract import Json
from gateway.protocol.downgrade import downgrade
from tests.gateway.fakes import HANDSHAKE

TEXT: Json = {"type": "text", "text": "x"}
LINK: Json = {"type": "resource_link", "uri": "x:y", "name": "Y"}
AUDIO: Json = {"type": "audio", "mimeType": "audio/wav", "data": "AA=="}


def downgraded(version: str, **result: Any) -> Json:
    return downgrade(result, version, "cid")


@pytest.mark.parametrize("version", HANDSHAKE)
def test_members_of_the_newest_revision_are_removed(version: str) -> None:
    result = downgraded(version, resultType="complete", ttlMs=1, cacheScope="private", content=[TEXT], isError=False)
    assert result == {"content": [TEXT], "isError": False, "_meta": {"correlation_id": "cid"}}


@pytest.mark.parametrize("version", HANDSHAKE)
def test_server_info_of_a_backend_is_removed(version: str) -> None:
    result = downgraded(version, content=[], _meta={"io.modelcontextprotocol/serverInfo": {"name": "x"}, "own": 1})
    assert result["_meta"] == {"own": 1, "correlation_id": "cid"}


@pytest.mark.parametrize("version", HANDSHAKE)
def test_original_result_is_not_changed(version: str) -> None:
    before: Json = {"content": [LINK], "structuredContent": {"a": 1}, "_meta": {"own": 1}, "resultType": "complete"}
    expected = {key: list(value) if isinstance(value, list) else value for key, value in before.items()}
    assert downgrade(before, version, "cid")["_meta"] == {"own": 1, "correlation_id": "cid"}
    assert before == expected


@pytest.mark.parametrize(
    ("version", "structured", "expected"),
    [
        ("2024-11-05", {"a": 1}, False),
        ("2025-03-26", {"a": 1}, False),
        ("2025-06-18", {"a": 1}, True),
        ("2025-11-25", {"a": None}, True),
        ("2025-11-25", [1], False),
        ("2025-11-25", "x", False),
        ("2025-11-25", 0, False),
    ],
)
def test_structured_content_is_kept_only_if_supported_and_an_object(
    version: str, structured: Any, expected: bool
) -> None:
    assert ("structuredContent" in downgraded(version, content=[TEXT], structuredContent=structured)) is expected


@pytest.mark.parametrize(
    ("version", "kinds"),
    [
        ("2024-11-05", ["text", "text", "text"]),
        ("2025-03-26", ["text", "text", "audio"]),
        ("2025-06-18", ["text", "resource_link", "audio"]),
        ("2025-11-25", ["text", "resource_link", "audio"]),
    ],
)
def test_unsupported_content_blocks_become_text(version: str, kinds: list[str]) -> None:
    blocks = downgraded(version, content=[TEXT, LINK, AUDIO])["content"]
    assert [each["type"] for each in blocks] == kinds
    assert "x:y" in str(blocks[1])


def test_unknown_fields_and_malformed_blocks_are_kept() -> None:
    result = downgraded("2024-11-05", content=[7, None, {"type": "hologram"}], custom={"a": 1})
    assert (result["content"], result["custom"]) == ([7, None, {"type": "hologram"}], {"a": 1})


@pytest.mark.parametrize("block", [LINK, AUDIO])
def test_prompt_messages_are_downgraded(block: Json) -> None:
    result = downgraded("2024-11-05", messages=[{"role": "user", "content": block}])
    assert result["messages"][0]["content"]["type"] == "text"
