"""Tasks: calls that outlive the connection of their client. The types that stages, upstreams and `gateway.tasks` share.

A stage that must wait for a person returns `await call.task.hold(...)`: the client gets a task, and the call runs again
through all stages once `WaitingTasks.release` names it.
"""

from typing import Any, Final, Literal, Protocol

from gateway.contract.caller import Json
from gateway.errors import Fault

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The extension of revision 2026-07-28."""
HANDSHAKE_TASKS_SINCE: Final = "2025-11-25"
"""The only handshake-era revision with tasks; they are experimental there."""
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
"""The `_meta` key that names the task of a message in 2025-11-25."""
TaskSupport = Literal["forbidden", "optional", "required"]
"""Whether a call of a tool may become a task; `required`: its server runs it only as a task."""


def declares_tasks(capabilities: Json) -> bool:
    """Whether a client's capabilities, or a server's, contain the tasks extension."""
    extensions: Any = capabilities.get("extensions")
    return isinstance(extensions, dict) and TASKS_EXTENSION in extensions


class TaskControl(Protocol):
    """The task that a call is or may become; None as `Call.task` if its client cannot use tasks."""

    @property
    def is_detached(self) -> bool:
        """Whether the client has the task id, so that the call goes on without its connection."""
        ...

    @property
    def timeout(self) -> float:
        """Timeout of the call in seconds; 0 keeps that of its tool."""
        ...

    async def create(self) -> None:
        """Store the task if the client asked for one. Called when the policies have allowed the call."""
        ...

    async def mark_sent(self) -> None:
        """Store that the backend is about to get the call.

        Raises `Fault` if another replica has taken the task over, so that the call is not sent twice.
        """
        ...

    async def hold(self, *, key: str, message: str, seconds: float) -> Json:
        """Store the call as a waiting task and return the result for the client.

        `key` names it for `WaitingTasks`; it is unique within the tenant. `message` is the status message that the
        client sees. Without a release within `seconds`, the task fails with `timeout`.
        """
        ...


class WaitingTasks(Protocol):
    """Ends the wait of tasks that a stage holds. Any replica may call it, and any replica may run the call."""

    async def release(self, tenant: str, key: str) -> bool:
        """Run the call through all stages again. Returns False if no task waits under this key."""
        ...

    async def reject(self, tenant: str, key: str, fault: Fault) -> bool:
        """End the task as failed with this fault. Returns False if no task waits under this key."""
        ...
