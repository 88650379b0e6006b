"""Where calls of tools come in: the rules that hold for every tool."""

from collections.abc import Iterator
from typing import Any, cast

from backends.knowledge import ingest, provenance
from backends.knowledge.call_context import Library, Visit
from backends.knowledge.tools import TOOLS
from gateway.contract import Json
from gateway.errors import Fault, Kind, UnknownName


class Desk:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._tools = {tool.name: tool for tool in TOOLS}
        self._resumed: set[str] = set()

    async def call(self, visit: Visit, name: str, arguments: Json) -> Json:
        tool = self._tools.get(name)
        if tool is None:
            raise UnknownName(f"Unknown tool: {name[:128]}")
        for path, text in _texts("arguments", arguments):
            if "\0" in text:
                # No database of ours keeps a NUL inside a text.
                details = {"validation_path": path, "validation_rule": "pattern"}
                raise Fault(Kind.INVALID_INPUT, f"{path}: must not hold a NUL character.", details=details)
        if tool.effect:
            provenance.check_confidence(arguments, self._library.options.min_confidence)
        await self._resume(visit)
        return (await tool.run(visit, arguments)).as_result()

    async def _resume(self, visit: Visit) -> None:
        """With the first call of each tenant."""
        if visit.caller.tenant not in self._resumed:
            self._resumed.add(visit.caller.tenant)
            await ingest.resume(visit)


def _texts(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, held in cast("Json", value).items():
            yield from _texts(f"{path}.{name}", held)
    elif isinstance(value, list):
        for place, held in enumerate(cast("list[Any]", value)):
            yield from _texts(f"{path}.{place}", held)
