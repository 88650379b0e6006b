"""The arguments and context of one tool call, passed to every tool handler."""

from dataclasses import dataclass

from backends.launch.events import Span
from backends.launch.job import Progress
from gateway.contract import Caller, Json


@dataclass(frozen=True, slots=True)
class ToolCall:
    caller: Caller
    arguments: Json
    span: Span
    progress: Progress

    @property
    def run_id(self) -> str:
        return self.arguments["run_id"]
