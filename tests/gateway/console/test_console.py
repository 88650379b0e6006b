"""The console over HTTP: sign-in, isolation of tenants, and escaping of untrusted text."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.cli.client_config import ConnectRequest, claude_code, cursor, vscode
from gateway.console import connect_lines
from gateway.console.routes import DETAIL_PAGES, PAGES
from tests.conftest import Running
from tests.peers.console_client import console_client, sign_in
from tests.peers.raw_server import raw_server

Json = dict[str, Any]
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
BACKENDS = {
    "core": {"module": "backends.core"},
    "plain": {"module": "tests.flows.fixtures.plain"},
    "secret": {"module": "tests.flows.fixtures.strict"},
}
TENANTS = {"default": {}, "alpha": {"backends": ["core", "plain"]}, "beta": {"backends": ["core", "secret"]}}
HIGH_RATE_LIMITS = {"authorize_rate": "1000/minute", "token_rate": "1000/minute"}


@pytest.fixture
async def gateway(start: Any) -> AsyncIterator[Running]:
    console = {"organisation": ["alpha/user:chief"], "trace_url": "https://traces.example.org/t/{trace_id}"}
    options: Json = {"backends": BACKENDS, "tenants": TENANTS, "auth": HIGH_RATE_LIMITS, "console": console}
    async with start(telemetry={"traces": {"share": 1.0}}, **options) as running:
        users = running.app.identity.users
        await users.put("alpha", "ann", None, ["mcp:admin"])
        await users.put("alpha", "chief", None, ["mcp:admin"])
        await users.put("alpha", "worker", None, ["mcp:list", "mcp:call"])
        await users.put("beta", "ben", None, ["mcp:admin"])
        yield running


async def code(gateway: Running, tenant: str, name: str) -> str:
    return await gateway.app.identity.browser_sessions.new_code((tenant, name))


@asynccontextmanager
async def as_(gateway: Running, tenant: str, name: str) -> AsyncIterator[httpx.AsyncClient]:
    async with console_client(gateway, code=await code(gateway, tenant, name)) as http:
        yield http


async def call_and_get_id(gateway: Running, tenant: str, tool: str, meta: Json | None = None, **arguments: Any) -> str:
    """Call a tool, wait until the audit log is flushed, and return the correlation id."""
    caller = gateway.as_(await gateway.new_key(tenant, f"{tenant}-agent"))
    answer = await caller.call(tool, arguments, meta)
    await gateway.app.audit.flush()
    if "error" in answer:
        return answer["error"]["data"]["correlation_id"]
    return answer["result"]["_meta"]["correlation_id"]


# ---- sign-in


async def test_pages_require_sign_in_and_sign_out_ends_the_session_immediately(gateway: Running) -> None:
    async with httpx.AsyncClient(base_url=gateway.base, verify=False) as anonymous:
        for path in (*PAGES, *(path.replace("{id:path}", "x") for path in DETAIL_PAGES)):
            answer = await anonymous.get(f"/console{path}")
            assert (answer.status_code, answer.text) == (303, "")
            assert answer.headers["location"].startswith(f"{gateway.base}/oauth/authorize?")
            assert "code_challenge_method=S256" in answer.headers["location"]
        assert (await anonymous.get("/console", headers={"x-live": "1"})).status_code == 401
    async with as_(gateway, "alpha", "ann") as http:
        page = await http.get("/console/calls?outcome=bad")
        assert page.status_code == 200
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["cache-control"] == "no-store"
        stolen = dict(http.cookies)
        assert (await http.get("/console/sign-out")).status_code == 405
        signed_out = await http.post("/console/sign-out")
        assert "Signed out" in signed_out.text
        assert "Code from the terminal" in (await http.get("/console")).text
        assert "Code from the terminal" in (await http.get("/console/sign-in")).text
    async with httpx.AsyncClient(base_url=gateway.base, verify=False, cookies=stolen) as stolen_client:
        assert (await stolen_client.get("/console")).status_code == 303


async def test_session_cookie_is_sealed_http_only_and_same_site(gateway: Running) -> None:
    async with httpx.AsyncClient(base_url=gateway.base, verify=False, follow_redirects=True) as http:
        answer = await sign_in(http, "/console/tools", code=await code(gateway, "alpha", "ann"))
        assert str(answer.url) == f"{gateway.base}/console/tools"
        (set_cookie,) = [
            cookie
            for each in answer.history
            for cookie in each.headers.get_list("set-cookie")
            if cookie.startswith("gatehouse-console=")
        ]
        assert "HttpOnly; SameSite=Lax" in set_cookie
        value = http.cookies["gatehouse-console"]
        assert "alpha" not in value
        for other in (value[:-2], "v1.AAAA", "", gateway.key):
            bad = {"cookie": f"gatehouse-console={other}"}
            async with httpx.AsyncClient(base_url=gateway.base, verify=False) as plain:
                assert (await plain.get("/console", headers=bad)).status_code == 303


async def test_user_without_admin_scope_is_denied_and_can_sign_in_as_another_user(gateway: Running) -> None:
    async with httpx.AsyncClient(base_url=gateway.base, verify=False, follow_redirects=True) as http:
        answer = await sign_in(http, "/console", code=await code(gateway, "alpha", "worker"))
        assert answer.status_code == 403
        assert "requires the scope mcp:admin" in answer.text
        await http.post("/console/sign-out")
        await sign_in(http, "/console", code=await code(gateway, "alpha", "ann"))
        assert (await http.get("/console")).status_code == 200
        await gateway.app.identity.users.remove("alpha", "ann")
        assert "Overview" not in (await http.get("/console")).text


async def test_unsolicited_authorization_response_is_rejected(gateway: Running) -> None:
    async with httpx.AsyncClient(base_url=gateway.base, verify=False) as http:
        redirect = await http.get("/console")
        state = re.search(r"state=([\w-]+)", redirect.headers["location"])
        assert state is not None
        for query in (
            {"code": "c", "state": "another"},
            {"code": "c", "state": state[1], "iss": "https://evil.example.org"},
            {"code": "c", "state": state[1]},
        ):
            answer = await http.get("/console/signed-in", params=query)
            assert answer.status_code == 400
            assert "gatehouse-console=v1" not in str(answer.headers)
        assert (await http.get("/console/signed-in", params={"error": "x", "state": state[1]})).status_code == 403


async def test_with_an_ops_port_the_console_is_served_only_there(start: Any) -> None:
    async with start(server={"ops_port": 1, "ops_public_url": "https://ops.example.org/g"}) as gateway:
        async with httpx.AsyncClient(verify=False) as http:
            assert (await http.get(f"{gateway.base}/console")).status_code == 404
        transport = httpx.ASGITransport(gateway.app.operator_app)
        async with httpx.AsyncClient(transport=transport, base_url="https://ops.example.org") as http:
            redirect = await http.get("/console/calls")
            back = "redirect_uri=https%3A%2F%2Fops.example.org%2Fg%2Fconsole%2Fsigned-in"
            assert back in redirect.headers["location"]
            assert redirect.headers["set-cookie"].startswith("__Host-gatehouse-console-way=")
            assert redirect.headers["set-cookie"].endswith("; Path=/; HttpOnly; SameSite=Lax; Secure")
            assert await http.get(gateway.base.replace("http:", "https:") + "/console/static/console.css")


async def test_without_sign_in_only_local_host_names_are_answered(start: Any) -> None:
    async with start(backends=BACKENDS, auth={"mode": "none"}) as gateway:
        async with httpx.AsyncClient(verify=False) as http:
            page = await http.get(f"{gateway.base}/console")
            assert page.status_code == 200
            assert "Sign out" not in page.text
        # The ops port has no host check in front of it.
        async with httpx.AsyncClient(transport=httpx.ASGITransport(gateway.app.operator_app)) as http:
            assert (await http.get("http://evil.example.org/console")).status_code == 404
            assert (await http.get("http://127.0.0.1/console")).status_code == 200


# ---- isolation of tenants


async def test_tenant_admin_cannot_see_other_tenants_even_by_id_in_the_url(gateway: Running) -> None:
    shared = f"{7:032x}"
    trace = {"traceparent": f"00-{shared}-{9:016x}-01"}
    theirs = await call_and_get_id(gateway, "beta", "secret_double", {**trace, "correlationId": "id-1"}, number=2)
    ours = await call_and_get_id(gateway, "alpha", "plain_echo", {**trace, "correlationId": "id-2"}, text="x")
    async with as_(gateway, "alpha", "ann") as http, as_(gateway, "beta", "ben") as other:

        async def text(path: str, wanted: int = 200) -> str:
            answer = await http.get(f"/console{path}")
            assert answer.status_code == wanted, (path, answer.text)
            return answer.text

        async with asyncio.timeout(20):  # a background thread writes the spans after the call
            while "secret.double" not in (await other.get(f"/console/calls/{theirs}")).text:
                await asyncio.sleep(0.02)
            while "Time per stage" not in await text(f"/calls/{ours}"):
                await asyncio.sleep(0.02)
        pages = [await text(path) for path in (*PAGES, "/calls?outcome=ok", f"/calls?id={theirs}", "/connect?at=/mcp")]
        pages.append(await text(f"/calls/{ours}"))
        pages.append(await text(f"/calls/{shared}"))
        pages.append(await text("/why?subject=x&tool=secret.double"))
        assert "Unknown tool: secret.double." in pages[-1]
        for path in (f"/calls/{theirs}", "/backends/secret", "/tools/secret.double", "/calls?tenant=beta"):
            pages.append(await text(path, 404))
        for page in pages:
            for text_of_beta in (
                "beta",
                "secret.double" if "Unknown tool" not in page else "beta-agent",
                "beta-agent",
            ):
                assert text_of_beta not in page, page
        assert "plain.echo" in pages[1]
        assert "All tenants" not in pages[0]
        mine = await other.get(f"/console/calls/{theirs}")
        assert "plain.echo" not in mine.text
    async with as_(gateway, "alpha", "chief") as http:
        everything = (await http.get("/console/calls")).text
        assert "secret.double" in everything
        assert "plain.echo" in everything
        only = (await http.get("/console/calls?tenant=beta")).text
        assert "plain.echo" not in only
        assert "secret.double" in only
        assert (await http.get("/console?tenant=unknown")).status_code == 404
        one = (await http.get(f"/console/calls/{theirs}")).text
        assert f'href="https://traces.example.org/t/{shared}"' in one


# ---- hostile text


async def test_text_from_backends_and_clients_is_never_rendered_as_markup(start: Any) -> None:
    texts: Json = {"title": HOSTILE, "description": HOSTILE}

    def tool(name: str, kind: str) -> Json:
        properties = {HOSTILE: {"type": kind, **texts}}
        return {"name": name, **texts, "inputSchema": {"type": "object", "properties": properties}}

    async with raw_server(tools=[tool("draw", "string"), tool("invalid", HOSTILE)]) as raw:
        options: Json = {"backends": {"raw": raw.entry(), **BACKENDS}, "auth": {"mode": "none"}}
        async with start(telemetry={"traces": {"share": 1.0, "content": ["default"]}}, **options) as gateway:
            await gateway.wait_for_tool("raw_draw")
            await gateway.call("raw_draw", {"text": HOSTILE}, {"actor": HOSTILE})
            await gateway.call(HOSTILE.replace("<", "(").replace(">", ")"), {})
            await gateway.post("resources/read", {"uri": f"x:{HOSTILE}"}, mcp_name="x")
            await gateway.call("plain_fail", {"text": HOSTILE}, {"correlationId": "hostile-1"})
            await gateway.app.audit.flush()
            async with httpx.AsyncClient(base_url=gateway.base, verify=False) as http:
                async with asyncio.timeout(20):
                    while "Time per stage" not in (await http.get("/console/calls/hostile-1")).text:
                        await asyncio.sleep(0.02)
                paths = [*PAGES, "/calls/hostile-1", "/backends/raw", "/tools/raw.draw", "/tools/plain.fail"]
                quoted = "%3Cscript%3Ealert(1)%3C/script%3E%22"
                paths += [f"/calls?{name}={quoted}" for name in ("id", "tool", "person", "outcome", "slower", "before")]
                paths += [f"/why?subject={quoted}&tool={quoted}&groups={quoted}&scopes={quoted}&arguments={quoted}"]
                paths += [f"/tools?q={quoted}", f"/connect?at={quoted}", f"/calls/{quoted}", f"/?minutes={quoted}"]
                for path in paths:
                    page = (await http.get(f"/console{path}")).text
                    assert "<script>" not in page, path
                    assert "<img" not in page, path
                    assert 'alert(1)"' not in page, path
                for path in ("/tools/raw.draw", "/backends/raw", "/calls/hostile-1"):
                    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in (await http.get(f"/console{path}")).text


# ---- size and consistency


def test_a_browser_loads_less_than_twenty_kilobytes_beside_a_page() -> None:
    files = list((Path(connect_lines.__file__).parent / "static").iterdir())
    assert sum(path.stat().st_size for path in files) < 20_000
    assert not [path for path in files if path.suffix == ".js" and re.search(rb"https?://", path.read_bytes())]


def test_connect_lines_match_the_output_of_gatehouse_connect() -> None:
    request = ConnectRequest("gatehouse", "http://127.0.0.1:8080/mcp")
    assert connect_lines.claude_code(request.url) == claude_code(request).command
    assert connect_lines.vs_code(request.url) == vscode(request).command
    assert f'"gatehouse":{{"url":"{(cursor(request).entry or {})["url"]}"}}' in connect_lines.cursor(request.url)
