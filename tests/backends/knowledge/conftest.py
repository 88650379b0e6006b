"""A gateway with the knowledge backend alone, and a caller whose every answer is held to the listed schemas."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs
import pytest

Json = dict[str, Any]
SETTINGS: Json = {
    "backends": {"knowledge": {"module": "backends.knowledge"}},
    "limits": {"calls": "1000000/minute"},
}


@dataclass(frozen=True)
class Memory:
    """One caller's hand on the memory."""

    gateway: Any
    schemas: dict[str, Any] = field(default_factory=dict)

    async def result(self, tool: str, **arguments: Any) -> Json:
        """The whole result of a call."""
        answer = await self.gateway.call(f"knowledge_{tool}", arguments)
        assert "result" in answer, answer
        result = answer["result"]
        await self._check(tool, result["structuredContent"])
        return result

    async def __call__(self, tool: str, **arguments: Any) -> Json:
        """What a call that succeeds answers, structured."""
        result = await self.result(tool, **arguments)
        assert not result["isError"], result
        (text, resource) = result["content"]
        assert text["type"] == "text"
        assert text["text"]
        assert json.loads(resource["resource"]["text"]) == result["structuredContent"]
        return result["structuredContent"]

    async def error(self, tool: str, **arguments: Any) -> Json:
        """The error object of a call that fails."""
        result = await self.result(tool, **arguments)
        assert result["isError"], result
        assert result["content"][0]["text"] == result["structuredContent"]["error"]["message"]
        return result["structuredContent"]["error"]

    async def read(self, uri: str) -> Json:
        answer = (await self.gateway.post("resources/read", {"uri": uri})).json()
        assert "result" in answer, answer
        (content,) = answer["result"]["contents"]
        assert content["mimeType"] == "application/json"
        body = json.loads(content["text"])
        assert set(body) == {"resource_uri", "as_of_tx_id", "items", "next_cursor"}
        assert body["resource_uri"] == uri == content["uri"]
        return body

    async def pages(self, tool: str, **arguments: Any) -> list[list[Json]]:
        """Every page of a search, to its end."""
        page = await self(tool, **arguments)
        found = [page["items"]]
        while page["next_cursor"] is not None:
            page = await self(tool, cursor=page["next_cursor"], **arguments)
            found.append(page["items"])
        return found

    async def contents(self, **arguments: Any) -> list[str]:
        return [item["content"] for item in (await self("query", **arguments))["items"]]

    async def as_tenant(self, tenant: str, subject: str = "carol") -> "Memory":
        key = await self.gateway.new_key(tenant, subject)
        return Memory(self.gateway.as_(key), self.schemas)

    async def as_subject(self, subject: str) -> "Memory":
        return await self.as_tenant("default", subject)

    async def _check(self, tool: str, structured: Json) -> None:
        if not self.schemas:
            listed = (await self.gateway.post("tools/list")).json()["result"]["tools"]
            self.schemas.update({each["name"]: jsonschema_rs.validator_for(each["outputSchema"]) for each in listed})
        self.schemas[f"knowledge_{tool}"].validate(structured)


@pytest.fixture
async def memory(start: Any) -> AsyncIterator[Memory]:
    async with start(**SETTINGS, tenants={"default": {}, "other": {}}) as gateway:
        yield Memory(gateway)


@pytest.fixture
def settings() -> Json:
    return SETTINGS
