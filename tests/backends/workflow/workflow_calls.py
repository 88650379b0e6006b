"""Helper functions that build workflow definitions and call the workflow tools."""

from typing import Any

Json = dict[str, Any]


def step(action: str, arguments: Json | None = None, **more: Any) -> Json:
    return {"actionId": action, **({"input": arguments} if arguments is not None else {}), **more}


def workflow(*steps: Json, name: str = "build") -> Json:
    return {"id": name, "steps": list(steps)}


async def run(gateway: Any, *steps: Json, wait: int = 20_000, meta: Json | None = None, **control: Any) -> Json:
    """Start a run and return its final snapshot, or the first one with `wait=0`."""
    arguments = {"definition": workflow(*steps), "waitMs": wait, **control}
    return structured(await gateway.call("workflow.run", arguments, meta))


async def wait_for_end(gateway: Any, run_id: str) -> Json:
    return structured(await gateway.call("workflow.status", {"runId": run_id, "waitMs": 20_000}))


async def read_log(gateway: Any, run_id: str, **more: Any) -> list[Json]:
    return structured(await gateway.call("workflow.logs", {"runId": run_id, **more}))["logs"]


async def log_messages(gateway: Any, run_id: str, **more: Any) -> list[str]:
    return [line["message"] for line in await read_log(gateway, run_id, **more)]


def structured(answer: Json) -> Json:
    assert "result" in answer, answer
    return answer["result"]["structuredContent"]


def error_of(answer: Json) -> tuple[int, str, str]:
    """Return the number, code and message of an error answer."""
    error = answer["error"]
    return error["code"], error["data"]["code"], error["message"]
