"""What a tool is made of."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from backends.knowledge.call_context import Visit
from backends.knowledge.tool_results import Answer
from gateway.contract import Json


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    title: str
    description: str
    effect: int
    input: Json
    output: Json
    run: Callable[[Visit, Json], Awaitable[Answer]]
    destructive: bool = False

    def definition(self) -> Json:
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input,
            "outputSchema": self.output,
            "annotations": {
                "title": self.title,
                "readOnlyHint": self.effect == 0,
                "destructiveHint": self.destructive,
                "idempotentHint": self.effect <= 1,
                "openWorldHint": False,
            },
        }
