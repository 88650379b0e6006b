"""Identity threats from the threat model, tested through the public endpoints."""

import asyncio
import base64
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIWebSocketRoute
from starlette.routing import Route, WebSocketRoute
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.auth.api_keys import format_key, new_id, new_secret
from gateway.auth.embedded_issuer import OAuthGrant, new_family
from gateway.contract import HttpRoute
from tests.peers.oauth_flow import BrowserUser, OAuthTestClient

Json = dict[str, Any]
FREE = {"registration_rate": "1000/minute", "authorize_rate": "100000/minute", "token_rate": "100000/minute"}


async def owner(gateway: Any) -> BrowserUser:
    return BrowserUser(code=await gateway.app.identity.create_sign_in_code())


# ---- 4: the caller's credential is not forwarded


async def test_threat_4_caller_token_claims_and_cookies_do_not_reach_a_backend(run: Any, tmp_path: Path) -> None:
    record = tmp_path / "seen"
    script = Path(__file__).parent / "fixtures" / "recording.py"
    with subprocess.Popen([sys.executable, str(script), str(record)], stdout=subprocess.PIPE, text=True) as backend:
        try:
            assert backend.stdout is not None
            url = f"http://127.0.0.1:{backend.stdout.readline().strip()}/mcp"
            entry = {"url": url, "allow_private": True, "headers": {"Authorization": "Bearer ours-alone"}}
            async with run(tmp_path / "gateway", auth=FREE, backends={"far": entry}) as gateway:
                program = await OAuthTestClient.register(gateway.base)
                token = (await program.sign_in(await owner(gateway)))["access_token"]
                caller = gateway.as_(token)
                await caller.wait_for_tool("far_note")
                for tool in ("far_note", "far_away"):
                    params = {"name": tool, "arguments": {}}
                    extra = {"cookie": "session=c00kie-secret", "x_api_key": "k3y-secret", "x_custom": "cust0m-secret"}
                    await caller.post("tools/call", params, **extra)
                async with caller.client("legacy") as client:
                    await client.call_tool("far_note", {})
        finally:
            backend.terminate()
    recorded = record.read_text()
    assert "tools/call" in recorded
    assert "Bearer ours-alone" in recorded
    head, claims, signature = token.split(".")
    payload = json.loads(base64.urlsafe_b64decode(claims + "=="))
    secrets = [token, head, claims, signature, payload["jti"], payload["family"], payload["client_id"]]
    for secret in [*secrets, "c00kie-secret", "k3y-secret", "cust0m-secret", "GET /elsewhere", "POST /elsewhere"]:
        assert secret not in recorded


# ---- 9: one token per code


async def test_threat_9_concurrent_redemptions_at_two_gateways_give_one_token_per_code(
    start: Any, tmp_path: Path
) -> None:
    async with start(auth=FREE) as first:
        settings = tmp_path / "second.yaml"
        data = first.app.settings.data_dir
        settings.write_text(
            json.dumps(
                {
                    "data_dir": str(data),
                    "server": {"port": 0, "public_url": first.base},
                    "auth": FREE,
                    "backends": {"core": {"module": "backends.core"}},
                }
            )
        )
        second = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.flows.second_gateway",
            str(settings),
            stdout=subprocess.PIPE,
            env=dict(os.environ),
        )
        try:
            assert second.stdout is not None
            base = (await asyncio.wait_for(second.stdout.readline(), 90)).decode().strip()
            program, person = await OAuthTestClient.register(first.base), await owner(first)
            await program.sign_in(person)
            codes = [await program.obtain_code(person) for _ in range(60)]
            token_urls = [f"{first.base}/oauth/token", f"{base}/oauth/token"]
            host = first.base.removeprefix("http://")
            async with httpx.AsyncClient(verify=False, timeout=60, limits=httpx.Limits(max_connections=16)) as http:

                async def redeem(position: int, code: str, verifier: str) -> int:
                    form = {
                        "grant_type": "authorization_code",
                        "client_id": program.id,
                        "redirect_uri": program.redirect,
                        "code": code,
                        "code_verifier": verifier,
                    }
                    answer = await http.post(token_urls[position % 2], data=form, headers={"host": host})
                    return answer.status_code

                for code, verifier in codes:
                    statuses = await asyncio.gather(*(redeem(n, code, verifier) for n in range(8)))
                    assert sorted(statuses) == [200] + [400] * 7
        finally:
            second.terminate()
            await second.wait()


# ---- 10: a session belongs to its principal


async def test_threat_10_session_of_another_user_of_the_same_client_is_unknown(start: Any) -> None:
    async with start(auth=FREE) as gateway:
        identity = gateway.app.identity
        base: Json = {
            "tenant": "default",
            "kind": "user",
            "groups": frozenset(),
            "scopes": frozenset({"mcp:list", "mcp:call"}),
            "client": "https://client.example/shared.json",
            "resource": gateway.url,
        }
        tokens = {
            name: identity.issuer.mint(OAuthGrant(subject=name, family=new_family(), **base)) for name in ("ann", "ben")
        }
        for name in tokens:
            await identity.users.put("default", name, None, ["mcp:list"])
        async with httpx.AsyncClient(verify=False, base_url=gateway.base, timeout=30) as http:
            params: Json = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t"}}
            accept = {"accept": "application/json, text/event-stream"}

            def as_(name: str, session: str = "") -> dict[str, str]:
                sent = {**accept, "authorization": f"Bearer {tokens[name]}"}
                return {**sent, "mcp-session-id": session} if session else sent

            message: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            session = (await http.post("/mcp", json=message, headers=as_("ann"))).headers["mcp-session-id"]
            ping: Json = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            assert (await http.post("/mcp", json=ping, headers=as_("ann", session))).status_code == 200
            for verb in ("POST", "GET", "DELETE"):
                body: Json = {"json": ping} if verb == "POST" else {}
                answer = await http.request(verb, "/mcp", headers=as_("ben", session), **body)
                assert answer.status_code == 404, verb
            resumed = {**as_("ben", session), "last-event-id": "x.1", "accept": "text/event-stream"}
            assert (await http.get("/mcp", headers=resumed)).status_code == 404
            assert (await http.post("/mcp", json=ping, headers=as_("ann", session))).status_code == 200


# ---- 34: timing does not reveal keys


async def test_threat_34_unknown_key_takes_as_long_as_a_wrong_secret(start: Any) -> None:
    async with start() as gateway:
        keys = gateway.app.keys
        text, info = await keys.create("default", "alice")
        wrong = [format_key(info.id, new_secret()) for _ in range(400)]
        unknown = [format_key(new_id(), new_secret()) for _ in range(400)]
        samples: dict[str, list[float]] = {"wrong": [], "unknown": []}
        for pair in zip(wrong, unknown, strict=True):
            for name, key in zip(("wrong", "unknown"), pair, strict=True):
                began = time.process_time_ns()
                assert await keys.verify(key) is None
                samples[name].append(time.process_time_ns() - began)
        assert await keys.verify(text) is not None
    # Welch's t-test over the faster half of each, to exclude the influence of other processes.
    halves = [sorted(values)[:200] for values in samples.values()]
    means, variances = [statistics.mean(half) for half in halves], [statistics.variance(half) for half in halves]
    t = (means[0] - means[1]) / math.sqrt(sum(variance / 200 for variance in variances))
    assert abs(means[0] - means[1]) < 0.25 * max(means), f"t={t:.1f}, means {means}"


# ---- 38: every route authenticates


OPEN = {
    "/healthz",
    "/metrics",  # open on loopback; elsewhere it needs mcp:admin, see its own tests
    "/readyz",
    "/oauth/authorize",
    "/oauth/token",
    "/oauth/register",
    "/oauth/revoke",
    "/oauth/jwks",
    "/authorize",
    "/token",
    "/register",
    "/oauth/callback/{provider}",  # end of the sign-in at a provider; shows an error without a pending sign-in
    "/oauth/logout/{provider}",  # verifies the provider's signed logout token
    "/console/static/{name}",  # style sheet and script
    "/console/signed-in",  # end of the sign-in; shows an error without a pending sign-in
    "/console/sign-out",
    "/accounts/signed-in",  # end of the sign-in; shows an error without a pending sign-in
    "/accounts/client.json",  # the gateway's own client metadata document
}


def _routes(table: Iterable[Any]) -> tuple[dict[str, set[str]], list[str]]:
    """Return all HTTP paths with their methods, including undocumented ones, and all WebSocket paths."""
    plain: dict[str, set[str]] = {}
    sockets: list[str] = []
    for route in table:
        if isinstance(route, WebSocketRoute | APIWebSocketRoute):
            sockets.append(route.path)
        elif isinstance(route, Route):
            plain.setdefault(route.path, set()).update(route.methods or ())
        else:
            # A nested router. Any other type fails here, because the test would not probe it.
            inner, more = _routes(route.original_router.routes)
            plain |= {path: plain.get(path, set()) | methods for path, methods in inner.items()}
            sockets += more
    return plain, sockets


async def test_threat_38_every_route_except_the_open_ones_rejects_unauthenticated_requests(start: Any) -> None:
    modules: dict[str, Any] = {name: {"module": f"backends.{name}"} for name in ("core", "roblox", "godot")}
    modules["roblox"]["options"] = {"bridge_enabled": True}
    provider = {"preset": "github", "client_id": "c", "rules": [{"group": "*"}]}
    async with start(auth={**FREE, "providers": {"github": provider}}, backends=modules) as gateway:
        routes, sockets = _routes(gateway.app.plain_routes.build().routes)
        for route in gateway.app.module_routes.served():
            if isinstance(route, HttpRoute):
                routes.setdefault(route.path, set()).add(route.method)
            else:
                sockets.append(route.path)
        assert len(routes) > 10
        assert "/bridge/godot" in sockets
        assert {"/api/v1/policy/why", "/v1/bridge/session", "/metrics", "/scim/v2/{path:path}"} <= routes.keys()
        unknown_key = {"authorization": "Bearer gth_aaaaaaaaaaaa_" + "s" * 43 + "_aaaaaa"}
        async with httpx.AsyncClient(verify=False, base_url=gateway.base, timeout=30) as http:
            for path, methods in routes.items():
                if path in OPEN or path.startswith("/.well-known/"):
                    continue
                for method in methods:
                    for headers in ({}, unknown_key):
                        answer = await http.request(method, re.sub(r"\{[^}]*\}", "x", path), headers=headers)
                        is_page = path.startswith(("/console", "/accounts/connect")) or path == "/accounts"
                        if is_page and method == "GET":  # the browser is redirected to sign in, without content
                            location = answer.headers["location"]
                            assert (answer.status_code, answer.content) == (303, b""), (method, path)
                            assert location.startswith(f"{gateway.base}/oauth/authorize?")
                        else:
                            # A form of the console without its token is refused before the session is looked at.
                            refusals = (401, 403, 429) if path.startswith("/console") else (401, 429)
                            assert answer.status_code in refusals, (method, path)
            for path in sockets:
                for headers in ({}, unknown_key):
                    with pytest.raises(InvalidStatus) as refused:
                        async with connect(f"ws{gateway.base[4:]}{path}?project=/p", additional_headers=headers):
                            pass
                    assert refused.value.response.status_code == 403, path
            for path in ("/mcp", "/mcp/core", "/mcp/none"):
                for method in ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"):
                    for version in ({}, {"mcp-protocol-version": "2026-07-28"}):
                        answer = await http.request(method, path, headers=version)
                        assert answer.status_code == 401, (method, path)


async def test_threat_37_every_operator_route_requires_the_admin_scope(start: Any) -> None:
    async with start(auth=FREE, backends={"core": {"module": "backends.core"}}) as gateway:
        routes, _ = _routes(gateway.app.plain_routes.build().routes)
        operator_routes = {path: methods for path, methods in routes.items() if path.startswith("/api/v1/")}
        # A user's own accounts; those of others need the scope.
        assert [operator_routes.pop(path) for path in list(operator_routes) if path.startswith("/api/v1/accounts")]
        operator_routes["/api/v1/accounts?all=true"] = {"GET"}
        operator_routes["/api/v1/accounts/x?principal=default/user:bob"] = {"DELETE"}
        assert len(operator_routes) > 4
        # The call and write scopes do not include administration.
        headers = {"authorization": f"Bearer {gateway.key}"}
        async with httpx.AsyncClient(verify=False, base_url=gateway.base, headers=headers, timeout=30) as http:
            for path, methods in operator_routes.items():
                for method in methods:
                    answer = await http.request(method, re.sub(r"\{[^}]*\}", "x", path), content=b"{}")
                    assert answer.status_code == 403, (method, path)


async def test_threat_38_token_of_another_tenant_sees_nothing_of_this_one(start: Any, era: str) -> None:
    tenants = {"default": {}, "guests": {"backends": []}}
    async with start(auth=FREE, tenants=tenants, backends={"core": {"module": "backends.core"}}) as gateway:
        await gateway.app.identity.users.put("guests", "eve", "correct horse", ["mcp:list", "mcp:call"])
        program = await OAuthTestClient.register(gateway.base)
        token = await program.sign_in(BrowserUser(name="guests/eve", password="correct horse"))
        async with gateway.as_(token["access_token"]).client(era) as client:
            assert (await client.list_tools()).tools == []
        answer = await gateway.as_(token["access_token"]).post("tools/call", {"name": "core_ping", "arguments": {}})
        assert answer.json()["error"]["data"]["kind"] == "not_found"
