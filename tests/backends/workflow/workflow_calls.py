"""Short words for workflows and their answers."""

from typing import Any

Json = dict[str, Any]


def step(action: str, given: Json | None = None, **more: Any) -> Json:
    return {"actionId": action, **({"input": given} if given is not None else {}), **more}


def workflow(*steps: Json, name: str = "build") -> Json:
    return {"id": name, "steps": list(steps)}


async def run(gateway: Any, *steps: Json, wait: int = 20_000, meta: Json | None = None, **control: Any) -> Json:
    """The snapshot when the run has ended, or at once with `wait=0`."""
    arguments = {"definition": workflow(*steps), "waitMs": wait, **control}
    return told(await gateway.call("workflow.run", arguments, meta))


async def ended(gateway: Any, run_id: str) -> Json:
    return told(await gateway.call("workflow.status", {"runId": run_id, "waitMs": 20_000}))


async def lines(gateway: Any, run_id: str, **more: Any) -> list[Json]:
    return told(await gateway.call("workflow.logs", {"runId": run_id, **more}))["logs"]


async def messages(gateway: Any, run_id: str, **more: Any) -> list[str]:
    return [line["message"] for line in await lines(gateway, run_id, **more)]


def told(answer: Json) -> Json:
    assert "result" in answer, answer
    return answer["result"]["structuredContent"]


def refused(answer: Json) -> tuple[int, str, str]:
    """Number, code and message of a refusal."""
    error = answer["error"]
    return error["code"], error["data"]["code"], error["message"]
