"""Dispatches tool calls and applies the checks that all tools share."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, cast

from backends.knowledge import ingest, provenance
from backends.knowledge.call_context import CallContext, MemoryService
from backends.knowledge.dry_run import preview
from backends.knowledge.idempotency import IdempotencyKey
from backends.knowledge.tool import Tool
from backends.knowledge.tool_handlers import FINISHERS, HANDLERS
from backends.knowledge.tool_results import ToolResult
from backends.knowledge.tools import TOOLS
from gateway.contract import Json, read_flag
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
        if tool.effect and read_flag(context.meta, "dryRun"):
            async with context.preview() as (inner, unit):
                result = preview(await HANDLERS[name](inner, arguments), unit.recorded)
            return result.as_result()
        result = await self._run(tool, context, arguments)
        if (finish := FINISHERS.get(name)) is not None:
            result = await finish(context, arguments, result)
        return result.as_result()

    async def _run(self, tool: Tool, context: CallContext, arguments: Json) -> ToolResult:
        run = HANDLERS[tool.name]
        if not tool.effect:
            return await run(context, arguments)
        if (word := context.meta.get("idempotencyKey")) is None:
            return await run(context, arguments)
        key = IdempotencyKey(context.caller.principal, tool.name, word, arguments)
        async with context.share_unit() as (inner, unit):
            if (known := await key.find_answer(unit)) is not None:
                return ToolResult(**known)
            result = await run(inner, arguments)
            await key.save_answer(unit, asdict(result))
        return result

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
