"""The arguments and context of one tool call, passed to every tool handler."""

from dataclasses import dataclass

from backends.launch.events import Span
from backends.launch.job import Progress
from backends.launch.model_clients import SamplingClient
from gateway.contract import Caller, Json


@dataclass(frozen=True, slots=True)
class ToolCall:
    caller: Caller
    arguments: Json
    span: Span
    progress: Progress
    model: SamplingClient
    """The model of the calling client, which may not offer one."""

    @property
    def run_id(self) -> str:
        return self.arguments["run_id"]
