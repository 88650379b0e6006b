"""A task client of 2025-11-25, with the Python SDK 1.x: `python task_client_v1.py URL KEY NAMES`.

NAMES is a JSON object of the tools to call: `long` ends, `endless` does not, `asking` elicits, `sync` is no task.
Prints what it saw as one JSON object. Run it with that SDK's Python.
"""

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.exceptions import McpError

url, key, names = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
seen: dict[str, Any] = {"asked": [], "notified": []}


async def elicit(context: Any, params: Any) -> types.ElicitResult:
    seen["asked"].append(params.message)
    return types.ElicitResult(action="accept", content={"sure": True, "name": "Ada"})


async def on_message(message: Any) -> None:
    if isinstance(message, types.ServerNotification) and isinstance(message.root, types.TaskStatusNotification):
        seen["notified"].append([message.root.params.taskId, message.root.params.status])


async def main() -> None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        streamablehttp_client(url, headers=headers) as (read, write, _),
        ClientSession(read, write, elicitation_callback=elicit, message_handler=on_message) as session,
    ):
        initialized = await session.initialize()
        tasks = initialized.capabilities.tasks
        seen["capability"] = tasks.model_dump(exclude_none=True) if tasks else None
        tools = (await session.list_tools()).tools
        seen["support"] = {tool.name: tool.execution.taskSupport if tool.execution else None for tool in tools}
        experimental = session.experimental
        long_name, long_arguments = names["long"]
        created = await experimental.call_tool_as_task(long_name, long_arguments, ttl=120_000)
        id = created.task.taskId
        seen["id"], seen["created"] = id, created.task.status
        seen["statuses"] = [status.status async for status in experimental.poll_task(id)]
        result = await experimental.get_task_result(id, types.CallToolResult)
        seen["result"] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        seen["listed"] = [task.taskId for task in (await experimental.list_tasks()).tasks]
        if "endless" in names:
            endless = await experimental.call_tool_as_task(*names["endless"])
            cancelled = await experimental.cancel_task(endless.task.taskId)
            seen["cancelled"] = cancelled.status
        if "asking" in names:
            asking = await experimental.call_tool_as_task(*names["asking"])
            answered = await experimental.get_task_result(asking.task.taskId, types.CallToolResult)
            seen["answered"] = answered.content[0].text
        if "sync" in names:
            plain = await session.call_tool(*names["sync"])
            seen["sync"] = plain.content[0].text
        try:
            await experimental.get_task("no-such-task")
        except McpError as error:
            seen["unknown"] = error.error.code


asyncio.run(main())
print(json.dumps(seen))
