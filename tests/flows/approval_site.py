"""A gateway whose policies hold a tool for approval by the group platform, with real receivers of notifications."""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any, Final

import httpx

from gateway.contract.caller import APPROVE, DEFAULT_SCOPES
from gateway.state.call_history import CallFilter
from tests.conftest import Running, run_gateway
from tests.gateway.policy.folders import policy_folder

Json = dict[str, Any]
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RULE: Final = """
@id("approval.platform") @approval("group:platform") {more}
@reason("Dropping is irreversible.")
forbid (principal, action == Gw::Action::"tools/call", resource == Gw::Tool::"danger.drop")
when {{ !context.approved }};
"""


@dataclass
class Webhook:
    """A receiver on its own port. It answers with the statuses of `answers`, then with 200."""

    url: str
    received: "Queue[tuple[dict[str, str], bytes]]" = field(default_factory=Queue)
    answers: list[int] = field(default_factory=list)


@contextmanager
def webhook_receiver() -> Iterator[Webhook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status = hook.answers.pop(0) if hook.answers else 200
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()
            hook.received.put(({name.lower(): value for name, value in self.headers.items()}, body))

        def log_message(self, *_: Any) -> None:
            """Keep the test's output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook = Webhook(f"http://127.0.0.1:{server.server_port}/hook")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class ApprovalSite:
    """The gateway with keys of alice, who calls, and of bob and carol, who approve."""

    gateway: Running
    bob: str
    carol: str
    folder: Path

    async def drop(self, name: str = "x", gateway: Running | None = None, **meta: Any) -> Json:
        """Call the held tool; return the error object, or the text of the result as `ok`."""
        answer = (await (gateway or self.gateway).call("danger_drop", {"name": name}, meta or None))["result"]
        if answer.get("isError"):
            return (answer.get("_meta") or {}).get("gatehouse/error") or answer["structuredContent"]["error"]
        return {"ok": answer["content"][0]["text"]}

    def dropped(self) -> list[str]:
        file = self.folder / "dropped.log"
        return file.read_text().split() if file.exists() else []

    async def api(self, key: str, method: str, path: str, body: Json | None = None) -> httpx.Response:
        async with httpx.AsyncClient(verify=False, trust_env=False) as http:
            headers = {"authorization": f"Bearer {key}"}
            return await http.request(method, f"{self.gateway.base}/api/v1/approvals{path}", json=body, headers=headers)

    async def decide(self, key: str, id: str, decision: str = "approve", **more: str) -> httpx.Response:
        return await self.api(key, "POST", f"/{id}", {"decision": decision, **more})

    def edit_policy(self, more: str) -> None:
        write_rule(self.folder, more)

    async def audited(self) -> list[tuple[str, str, str]]:
        """Method, principal and approval of the audit records about approvals, oldest first."""
        await self.gateway.app.audit.flush()
        found = await self.gateway.app.call_history.calls.find(CallFilter(tenant="default", limit=500))
        return [(each.method, each.principal, each.target) for each in reversed(found)]


def write_rule(folder: Path, more: str = "") -> Path:
    policies = policy_folder(folder)
    (policies / "default" / "20-approval.cedar").write_text(RULE.format(more=more))
    return policies


@asynccontextmanager
async def approval_site(folder: Path, more: str = "", **settings: Any) -> AsyncIterator[ApprovalSite]:
    backends = settings.pop("backends", {"danger": {"module": "tests.flows.fixtures.danger"}})
    policies = {"dir": write_rule(folder, more)}
    async with run_gateway(folder, backends=backends, policies=policies, **settings) as gateway:
        scopes = (*DEFAULT_SCOPES, APPROVE)
        bob = await gateway.new_key(subject="bob", scopes=scopes, groups=("platform",))
        carol = await gateway.new_key(subject="carol", scopes=scopes, groups=("platform", "security"))
        yield ApprovalSite(gateway, bob, carol, folder)


def body_of(received: tuple[dict[str, str], bytes]) -> Json:
    return json.loads(received[1])
