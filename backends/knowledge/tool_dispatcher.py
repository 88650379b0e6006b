"""Dispatches tool calls and applies the checks that all tools share."""

from collections.abc import Iterator
from typing import Any, cast

from backends.knowledge import ingest, provenance
from backends.knowledge.call_context import CallContext, MemoryService
from backends.knowledge.tools import TOOLS
from gateway.contract import Json
from gateway.errors import Fault, Kind, UnknownName


class ToolDispatcher:
    """Runs tools by name. The first call of each tenant resumes the tenant's unfinished ingestions."""

    def __init__(self, service: MemoryService) -> None:
        self._service = service
        self._tools = {tool.name: tool for tool in TOOLS}
        self._resumed: set[str] = set()

    async def call(self, context: CallContext, name: str, arguments: Json) -> Json:
        tool = self._tools.get(name)
        if tool is None:
            raise UnknownName(f"Unknown tool: {name[:128]}")
        for path, text in _texts("arguments", arguments):
            if "\0" in text:
                # PostgreSQL and SQLite cannot store a NUL character inside a text.
                details = {"validation_path": path, "validation_rule": "pattern"}
                raise Fault(Kind.INVALID_INPUT, f"{path}: must not contain a NUL character.", details=details)
        if tool.effect:
            provenance.check_confidence(arguments, self._service.options.min_confidence)
        await self._resume(context)
        return (await tool.run(context, arguments)).as_result()

    async def _resume(self, context: CallContext) -> None:
        """Resume unfinished ingestions on the first call of each tenant."""
        if context.caller.tenant not in self._resumed:
            self._resumed.add(context.caller.tenant)
            await ingest.resume(context)


def _texts(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, item in cast("Json", value).items():
            yield from _texts(f"{path}.{name}", item)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _texts(f"{path}.{index}", item)
