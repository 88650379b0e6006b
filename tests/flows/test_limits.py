"""Configured rate limits, in one process and shared by several."""

import asyncio
from pathlib import Path
from typing import Any

from tests.servers import Valkey

CORE = {"core": {"module": "backends.core"}}


async def test_tool_rate_limit_rejects_with_headers_and_does_not_affect_other_methods(start: Any) -> None:
    rules = {"pings": {"rate": "2/minute", "per": ["tenant"], "tool": "core.ping"}}
    async with start(backends=CORE, limits={"rules": rules}) as gateway:
        for _ in range(2):
            assert "result" in await gateway.call("core_ping")
        refused = await gateway.post("tools/call", {"name": "core_ping", "arguments": {}})
        assert refused.status_code == 200
        error = refused.json()["error"]
        assert error["code"] == 429
        assert error["data"]["details"] == {"limit": "pings"}
        assert 0 < error["data"]["retry_after"] <= int(refused.headers["retry-after"])
        assert refused.headers["ratelimit"] == f'"pings";r=0;t={refused.headers["retry-after"]}'
        assert refused.headers["ratelimit-policy"] == '"calls";q=600;w=60, "pings";q=2;w=60'
        assert "result" in (await gateway.post("tools/list")).json()


async def test_threat_39_each_limit_follows_its_failure_mode_while_redis_is_down_and_recovers(
    run: Any, tmp_path: Path, valkey: Valkey, prefix: str
) -> None:
    rules = {
        "strict": {"rate": "1000/minute", "tool": "project.*", "on_failure": "closed"},
        "loose": {"rate": "3/minute", "per": ["tenant"], "tool": "core.*", "on_failure": "local"},
    }
    backends = {**CORE, "project": {"module": "backends.core:project"}}
    settings = {"backends": backends, "limits": {"rules": rules}, "bus": {"url": valkey.url, "prefix": prefix}}

    async with run(tmp_path, **settings) as one, run(tmp_path, **settings) as two:
        two = two.as_(one.key)

        async def kinds(tool: str) -> list[str]:
            answers = [await each.call(tool) for each in (one, two, one, two)]
            return [answer["error"]["data"]["kind"] if "error" in answer else "ok" for answer in answers]

        # Both processes share the limit of three.
        assert sorted(await kinds("core_ping")) == ["ok", "ok", "ok", "rate_limited"]
        valkey.kill()
        assert await kinds("project_workspace_stats") == ["unavailable"] * 4
        assert await kinds("core_ping") == ["ok"] * 4  # each process counts locally now
        valkey.start()
        async with asyncio.timeout(10):
            while await kinds("project_workspace_stats") != ["ok"] * 4:
                await asyncio.sleep(0.05)
