"""Tokens of an external identity provider, from its sign-in page to a call."""

import html
import json
import re
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from tests.flows.test_oauth import BACKENDS, Memory, signed_in
from tests.peers import npm
from tests.peers.stdio_bridge import Browser, StdioBridge

Json = dict[str, Any]


@pytest.fixture(scope="module")
def port() -> int:
    """A free port. The provider must know the gateway's address before the gateway starts."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def issuer(port: int) -> Iterator[str]:
    """A running identity provider."""
    script = Path(npm.__file__).with_name("oidc.mjs")
    command = [str(npm.NODE), str(script), str(npm.install_package(npm.OIDC)), f"http://127.0.0.1:{port}/mcp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["issuer"]
        # The provider exits when its stdin closes. A signal could stop only the launcher of `node`.
        process.stdin.close()
        process.wait(10)


async def complete_pages(http: httpx.AsyncClient, url: str, until: str, name: str = "alice") -> httpx.Response:
    """Submit the provider's forms until a redirect leads to the path `until`."""
    answer = await http.get(url)
    for _ in range(12):
        if answer.is_redirect:
            target = str(answer.url.join(answer.headers["location"]))
            if urlsplit(target).path == until:
                return answer
            answer = await http.get(target)
            continue
        form = re.search(r'<form[^>]*action="([^"]+)"', answer.text)
        assert form is not None, answer.text
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', answer.text))
        data = {**fields, "login": name, "password": "anything"}
        answer = await http.post(str(answer.url.join(html.unescape(form[1]))), data=data)
    raise AssertionError("the provider's pages did not redirect")


class Visitor:
    async def visit(self, url: str) -> dict[str, str]:
        async with httpx.AsyncClient(verify=False, timeout=30) as http:
            answer = await complete_pages(http, url, "/callback")
        target = str(answer.url.join(answer.headers["location"]))
        return {**dict(parse_qsl(urlsplit(target).query)), "to": target.partition("?")[0]}


@pytest.fixture
async def external_gateway(run: Any, tmp_path: Path, issuer: str, port: int) -> AsyncIterator[tuple[Any, str]]:
    """A gateway that accepts the provider's tokens."""
    entry = {
        "issuer": issuer,
        "tenant_claim": "org",
        "tenants": {"o-1": "acme"},
        "allow_private": True,
        "introspection": {
            "url": f"{issuer}/token/introspection",
            "client_id": "gatehouse",
            "client_secret": "gatehouse-secret",
        },
    }
    options: Json = {"tenants": {"default": {}, "acme": {}}, "backends": BACKENDS, "server": {"port": port}}
    async with run(tmp_path, auth={"mode": "external", "issuers": [entry]}, **options) as gateway:
        yield gateway, issuer


async def service_token(issuer: str, resource: str, **headers: str) -> str:
    form = {"grant_type": "client_credentials", "scope": "mcp:list mcp:call", "resource": resource}
    async with httpx.AsyncClient(verify=False) as http:
        answer = await http.post(f"{issuer}/token", data=form, auth=("robot", "robot-secret"), headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["access_token"]


async def test_metadata_points_to_the_provider(external_gateway: Any) -> None:
    gateway, issuer = external_gateway
    async with httpx.AsyncClient(verify=False, base_url=gateway.base) as http:
        metadata = (await http.get("/.well-known/oauth-protected-resource/mcp")).json()
        assert metadata["authorization_servers"] == [issuer]
        assert (await http.get("/.well-known/oauth-authorization-server")).status_code == 404
        assert (await http.post("/oauth/token")).status_code == 404


async def test_provider_token_is_accepted_with_its_claims(external_gateway: Any) -> None:
    gateway, issuer = external_gateway
    token = await service_token(issuer, gateway.url)
    assert (await gateway.as_(token).post("tools/list")).status_code == 200
    caller = await gateway.app.identity.authenticate({"authorization": f"Bearer {token}"}, "")
    assert (caller.tenant, caller.subject, caller.kind) == ("acme", "robot", "service")
    assert (caller.groups, caller.scopes) == ({"dev"}, {"mcp:list", "mcp:call"})


async def test_threat_5_provider_token_for_another_audience_is_rejected(external_gateway: Any) -> None:
    gateway, issuer = external_gateway
    for other in ("https://other.example/mcp", f"{gateway.url}x", gateway.base):
        token = await service_token(issuer, other)
        assert (await gateway.as_(token).post("tools/list")).status_code == 401


async def test_opaque_token_is_introspected(external_gateway: Any) -> None:
    gateway, issuer = external_gateway
    token = await service_token(issuer, gateway.url, **{"x-opaque": "yes"})
    assert "." not in token
    assert (await gateway.as_(token).post("tools/list")).status_code == 200
    assert (await gateway.as_(token[:-1] + "x").post("tools/list")).status_code == 401


async def test_api_key_is_accepted_besides_provider_tokens(external_gateway: Any) -> None:
    gateway, _ = external_gateway
    assert (await gateway.post("tools/list")).status_code == 200


async def test_python_client_signs_in_at_the_provider(external_gateway: Any) -> None:
    gateway, _ = external_gateway
    memory = Memory()
    async with signed_in(gateway, Visitor(), memory, "2026-07-28") as client:  # type: ignore[arg-type]
        result = await client.call_tool("lab_save", {"text": "x"})
        assert result.content[0].text == "saved x"  # type: ignore[union-attr]
    caller = await gateway.app.identity.authenticate({"authorization": f"Bearer {memory.received[0].access_token}"}, "")
    assert caller.principal == "acme/user:alice"


async def test_stdio_bridge_signs_in_and_refreshes_at_the_provider(external_gateway: Any, tmp_path: Path) -> None:
    gateway, issuer = external_gateway
    browser = Browser(Visitor())
    bridged = StdioBridge(gateway, tmp_path / "user", browser)
    assert (await bridged.call("lab_look"))["result"]["content"][0]["text"] == "looked"
    first = bridged.stored_tokens
    assert (first.client["issuer"], bool(first.refresh_token)) == (issuer, True)
    # A later start refreshes at the provider, not at the gateway.
    bridged.token_store.write(replace(first, access_token="expired"))
    again = StdioBridge(gateway, tmp_path / "user", browser)
    assert (await again.call("lab_save", text="x"))["result"]["content"][0]["text"] == "saved x"
    assert again.stored_tokens.access_token not in (first.access_token, "expired")
    assert len(browser.opened_urls) == 1


# ---- the console


async def test_console_without_a_client_id_explains_the_setup(external_gateway: Any) -> None:
    gateway, issuer = external_gateway
    async with httpx.AsyncClient(base_url=gateway.base) as http:
        page = await http.get("/console")
    assert page.status_code == 503
    for needed in (issuer, f"{gateway.base}/console/signed-in", "console.client_id"):
        assert needed in page.text


@pytest.fixture
async def console(run: Any, tmp_path: Path, issuer: str, port: int) -> AsyncIterator[Any]:
    """A gateway whose console is a client of the provider; scopes come from the users' roles."""
    entry = {
        "issuer": issuer, "tenant_claim": "org", "tenants": {"o-1": "acme"}, "allow_private": True,
        "scopes_claim": "roles", "scope_map": {"chief": ["mcp:admin"], "worker": ["mcp:list", "mcp:call"]},
    }  # fmt: skip
    options: Json = {"tenants": {"default": {}, "acme": {}}, "backends": BACKENDS, "server": {"port": port}}
    client = {"client_id": "console", "client_secret": "console-secret"}
    async with run(tmp_path, auth={"mode": "external", "issuers": [entry]}, console=client, **options) as gateway:
        yield gateway


async def test_console_sign_in_at_the_provider_limits_the_view_to_the_users_tenant(console: Any) -> None:
    agent = console.as_(await console.new_key("acme", "agent"))
    await agent.call("lab_save", {"text": "x"}, {"correlationId": "call-of-acme"})
    await console.call("lab_save", {"text": "y"}, {"correlationId": "call-of-default"})
    await console.app.audit.flush()
    done = "/console/signed-in"
    async with httpx.AsyncClient(timeout=30) as http:
        answer = await complete_pages(http, f"{console.base}/console/calls?slow=0", done)
        back = await http.get(answer.headers["location"])
        assert (back.status_code, back.headers["location"]) == (303, "/console/calls?slow=0")
        page = await http.get(f"{console.base}/console/calls")
        assert page.status_code == 200
        assert "call-of-acme" in page.text
        assert "call-of-default" not in page.text
        # Another browser cannot use the redirect with the code.
        async with httpx.AsyncClient() as thief:
            assert (await thief.get(answer.headers["location"])).status_code == 400
        old_cookies = {"gatehouse-console": http.cookies["gatehouse-console"]}
        assert "Signed out" in (await http.post(f"{console.base}/console/sign-out")).text
        async with httpx.AsyncClient(cookies=old_cookies) as thief:
            assert (await thief.get(f"{console.base}/console")).is_redirect
    async with httpx.AsyncClient(timeout=30) as http:
        answer = await complete_pages(http, f"{console.base}/console", done, name="bob")
        page = await http.get(answer.headers["location"])
        assert page.status_code == 403
        assert "Access to the console requires the scope mcp:admin." in page.text
        assert f"must be for {console.url}" in page.text
        # The provider shows its sign-in page again, so another user can sign in.
        left = await http.post(f"{console.base}/console/sign-out")
        again = re.search(r'href="(/console/[^"]+)"[^>]*>Sign in again', left.text)
        assert again is not None
        answer = await complete_pages(http, console.base + again[1], done)
        assert (await http.get(answer.headers["location"])).headers["location"] == "/console"
        assert "Overview" in (await http.get(f"{console.base}/console")).text


async def test_error_of_the_provider_is_shown_with_its_code(console: Any) -> None:
    async with httpx.AsyncClient(base_url=console.base) as http:
        begun = urlsplit((await http.get("/console")).headers["location"])
        state = dict(parse_qsl(begun.query))["state"]
        for error, status in (("access_denied", 403), ("temporarily_unavailable", 503), ("<b>bold</b>", 403)):
            page = await http.get("/console/signed-in", params={"state": state, "error": error})
            assert page.status_code == status
            assert ("returned the error temporarily_unavailable." in page.text) == (status == 503)
            assert "<b>" not in page.text
