"""Tokens of a running gateway: challenges and metadata, access, and revocation."""

import asyncio
import re
import time
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.auth.embedded_issuer import EmbeddedIssuer, OAuthGrant, new_family
from gateway.auth.tokens import ProtectedResources
from gateway.edge.stream_expiry import GRACE
from gateway.errors import Fault, Kind
from tests.credential_clock import HOUR, expire_credentials
from tests.peers.open_stream import open_stream

Json = dict[str, Any]
DEFAULT_SCOPES = frozenset({"mcp:list", "mcp:call", "mcp:call:write"})


def token(gateway: Any, lifetime: int | None = None, **changes: Any) -> str:
    grant: Json = {
        "tenant": "default",
        "subject": "alice",
        "kind": "user",
        "groups": frozenset(),
        "scopes": DEFAULT_SCOPES,
        "client": "client-1",
        "resource": gateway.url,
        "family": new_family(),
        **changes,
    }
    identity = gateway.app.identity
    if lifetime is None:
        return identity.issuer.mint(OAuthGrant(**grant))
    return EmbeddedIssuer(gateway.base, ProtectedResources(gateway.base), identity.signing_keys, lifetime).mint(
        OAuthGrant(**grant)
    )


def challenge(response: httpx.Response) -> dict[str, str]:
    header = response.headers["www-authenticate"]
    assert header.startswith("Bearer ")
    return dict(re.findall(r'(\w+)="([^"]*)"', header))


# ---- challenges and metadata


async def test_challenge_without_credential_has_metadata_and_scopes_but_no_error(gateway: Any) -> None:
    response = await gateway.post("tools/list", authorization="")
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == (
        f'Bearer resource_metadata="{gateway.base}/.well-known/oauth-protected-resource/mcp",'
        ' scope="mcp:list mcp:call mcp:call:write"'
    )


async def test_invalid_token_gets_a_challenge_for_the_requested_endpoint(gateway: Any) -> None:
    response = await gateway.as_("x.y.z").post("tools/list", path="/mcp/core")
    metadata = challenge(response)
    assert (response.status_code, metadata["error"]) == (401, "invalid_token")
    assert metadata["resource_metadata"] == f"{gateway.base}/.well-known/oauth-protected-resource/mcp/core"


async def test_expired_token_is_reported_as_expired_and_not_rate_limited(gateway: Any) -> None:
    old = gateway.as_(token(gateway, lifetime=-60))
    for _ in range(30):
        response = await old.post("tools/list")
        assert (response.status_code, challenge(response)["error_description"]) == (401, "The token has expired.")


async def test_resource_metadata_names_the_requested_endpoint(gateway: Any) -> None:
    known = f"{gateway.base}/.well-known/oauth-protected-resource"
    async with httpx.AsyncClient(verify=False) as http:
        for path, resource in (("", "/mcp"), ("/mcp", "/mcp"), ("/mcp/core", "/mcp/core")):
            response = await http.get(known + path)
            metadata = response.json()
            assert (response.status_code, metadata["resource"]) == (200, gateway.base + resource)
            assert metadata["authorization_servers"] == [gateway.base]
            assert metadata["scopes_supported"] == ["mcp:list", "mcp:call", "mcp:call:write"]
            assert metadata["bearer_methods_supported"] == ["header"]


@pytest.mark.parametrize("path", ["/mcp/unknown", "/t/acme/mcp", "/mcp/", "/../mcp", "/mcp/core/x"])
async def test_unknown_endpoint_has_no_resource_metadata(gateway: Any, path: str) -> None:
    async with httpx.AsyncClient(verify=False) as http:
        response = await http.get(f"{gateway.base}/.well-known/oauth-protected-resource{path}")
        assert (response.status_code, response.headers["content-type"]) == (404, "application/json")


async def test_urls_are_derived_from_the_public_url_not_from_the_host_header(start: Any) -> None:
    async with start(server={"public_url": "https://gw.example", "allowed_hosts": ["evil.example"]}) as gateway:
        async with httpx.AsyncClient(verify=False, base_url=gateway.base, headers={"host": "evil.example"}) as http:
            response = await http.post("/mcp", json={})
            metadata = (await http.get("/.well-known/oauth-protected-resource/mcp")).json()
    assert challenge(response)["resource_metadata"].startswith("https://gw.example/.well-known/")
    assert (metadata["resource"], metadata["authorization_servers"]) == (
        "https://gw.example/mcp",
        ["https://gw.example"],
    )


async def test_threat_12_malformed_host_does_not_reach_a_protected_route(start: Any) -> None:
    async with start() as gateway:
        async with httpx.AsyncClient(verify=False, base_url=gateway.base) as http:
            for host in ("a/b?c#d", "127.0.0.1:1/healthz", "localhost/../healthz", "x@127.0.0.1"):
                for path in ("/mcp", "/mcp/core", "/api/v1/policy/why"):
                    response = await http.post(path, json={}, headers={"host": host})
                    assert response.status_code in (400, 401, 421), (host, path)


async def test_auth_mode_none_has_no_resource_metadata(start: Any) -> None:
    async with start(auth={"mode": "none"}) as gateway, httpx.AsyncClient(verify=False) as http:
        assert (await http.get(f"{gateway.base}/.well-known/oauth-protected-resource")).status_code == 404
        assert (await gateway.post("tools/list")).status_code == 200


# ---- access with a token


async def test_token_for_mcp_is_valid_for_all_endpoints_and_token_for_one_endpoint_only_there(gateway: Any) -> None:
    unrestricted_client, endpoint_client = (
        gateway.as_(token(gateway)),
        gateway.as_(token(gateway, resource=f"{gateway.url}/core")),
    )
    for path in ("/mcp", "/mcp/core"):
        assert (await unrestricted_client.post("tools/list", path=path)).status_code == 200
    assert (await endpoint_client.post("tools/list", path="/mcp/core")).status_code == 200
    for path in ("/mcp", "/mcp/project"):
        rejected = await endpoint_client.post("tools/list", path=path)
        assert (rejected.status_code, challenge(rejected)["error"]) == (401, "invalid_token")


ALL_SCOPES = DEFAULT_SCOPES | {"mcp:admin", "bridge:roblox", "bridge:godot"}
BACKENDS: Json = {
    "core": {"module": "backends.core"},
    "workflow": {"module": "backends.workflow"},
    "roblox": {"module": "backends.roblox", "options": {"bridge_enabled": True}},
    "godot": {"module": "backends.godot"},
}


async def status_by_route(gateway: Any, credential: str) -> dict[str, int]:
    """The status of each operator route and bridge for this credential."""
    headers = {"authorization": f"Bearer {credential}"}
    async with httpx.AsyncClient(verify=False, base_url=gateway.base, headers=headers) as http:
        statuses = {path: (await http.get(path)).status_code for path in ("/api/v1/backends", "/metrics")}
        statuses["studio"] = (await http.post("/v1/bridge/session", json={})).status_code
    try:
        async with connect(f"ws{gateway.base[4:]}/bridge/godot?project=/p", additional_headers=headers):
            statuses["editor"] = 101
    except InvalidStatus as rejected:
        statuses["editor"] = rejected.response.status_code
    return statuses


async def test_threat_5_token_for_one_endpoint_is_rejected_by_operator_routes_and_bridges(start: Any) -> None:
    server = {"host": "0.0.0.0", "public_url": "http://127.0.0.1", "allowed_hosts": ["127.0.0.1:*"]}
    async with start(backends=BACKENDS, server=server) as gateway:
        endpoint_url = f"{gateway.app.public_url}/mcp"
        names = ("/api/v1/backends", "/metrics", "studio", "editor")
        for resource, statuses in (
            (endpoint_url, (200, 200, 200, 101)),
            (f"{endpoint_url}/core", (401, 401, 401, 403)),
            (f"{endpoint_url}/roblox", (401, 401, 200, 403)),
            (f"{endpoint_url}/godot", (401, 401, 401, 101)),
        ):
            credential = await user_token(gateway, scopes=ALL_SCOPES, resource=resource)
            assert await status_by_route(gateway, credential) == dict(zip(names, statuses, strict=True)), resource


async def user_token(gateway: Any, **changes: Any) -> str:
    identity = gateway.app.identity
    await identity.users.put("default", "alice", None, ALL_SCOPES)
    grant: Json = {"tenant": "default", "subject": "alice", "kind": "user", "groups": frozenset(), "client": "c"}
    return identity.issuer.mint(OAuthGrant(**grant, family=new_family(), **changes))


async def test_threat_5_internal_calls_are_limited_to_the_endpoint_of_the_token(start: Any) -> None:
    async with start(backends=BACKENDS) as gateway:
        internal_calls, authenticate = gateway.app.internal_calls, gateway.app.identity.authenticate
        for path, core, workflow in (("", True, True), ("/core", True, False), ("/workflow", False, True)):
            credential = token(gateway, resource=f"{gateway.url}{path}")
            caller = await authenticate({"authorization": f"Bearer {credential}"}, "")
            assert internal_calls.has_tool(caller, "core.ping") is core, path
            assert internal_calls.has_tool(caller, "workflow.status") is workflow, path
            if core:
                assert (await internal_calls.invoke(caller, "core.ping", {}, {}))["isError"] is False
            else:
                with pytest.raises(Fault) as rejected:
                    await internal_calls.invoke(caller, "core.ping", {}, {})
                assert rejected.value.kind is Kind.NOT_FOUND


async def test_threat_37_operator_of_a_suspended_tenant_is_rejected_everywhere(start: Any) -> None:
    server = {"host": "0.0.0.0", "public_url": "http://127.0.0.1", "allowed_hosts": ["127.0.0.1:*"]}
    async with start(backends=BACKENDS, tenants={"default": {}, "acme": {}}, server=server) as gateway:
        key = await gateway.new_key("acme", scopes=ALL_SCOPES)
        assert set((await status_by_route(gateway, key)).values()) == {200, 101}
        await gateway.app.tenants.change("acme", {"suspended": True})
        assert set((await status_by_route(gateway, key)).values()) == {403}


async def test_token_in_the_query_string_is_ignored(gateway: Any) -> None:
    async with httpx.AsyncClient(verify=False) as http:
        credential = token(gateway)
        response = await http.post(f"{gateway.url}?access_token={credential}", json={}, headers={"authorization": ""})
        assert response.status_code == 401
        assert "error" not in challenge(response)


WRITER = """
    from mcp.server.mcpserver import MCPServer
    server = MCPServer("lab")
    @server.tool()
    async def save(text: str) -> str:
        return text
"""


@pytest.fixture
def lab(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Json:
    name = f"lab_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text("\n".join(line[4:] for line in WRITER.splitlines()))
    monkeypatch.syspath_prepend(str(tmp_path))
    return {"lab": {"module": name}}


async def test_token_without_required_scope_gets_a_challenge_with_the_scope(start: Any, lab: Json) -> None:
    async with start(backends=lab) as gateway:
        reader = gateway.as_(token(gateway, scopes=frozenset({"mcp:list", "mcp:call"})))
        response = await reader.post("tools/call", {"name": "lab_save", "arguments": {"text": "x"}})
        metadata = challenge(response)
    assert response.status_code == 403
    assert (metadata["error"], metadata["scope"]) == ("insufficient_scope", "mcp:call:write")
    assert metadata["resource_metadata"] == f"{gateway.base}/.well-known/oauth-protected-resource/mcp"
    assert metadata["error_description"]
    assert response.json()["result"]["_meta"]["gatehouse/error"]["kind"] == "denied"


async def test_handshake_client_gets_a_challenge_with_all_scopes(start: Any, lab: Json) -> None:
    async with start(backends=lab) as gateway:
        credential = token(gateway, scopes=frozenset({"mcp:list", "mcp:call"}))
        headers = {"authorization": f"Bearer {credential}", "accept": "text/event-stream, application/json"}
        async with httpx.AsyncClient(verify=False, base_url=gateway.base, headers=headers) as http:
            params: Json = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t"}}
            message: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            initialized = await http.post("/mcp", json=message)
            params = {"name": "lab_save", "arguments": {"text": "x"}}
            message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
            response = await http.post(
                "/mcp", json=message, headers={"mcp-session-id": initialized.headers["mcp-session-id"]}
            )
    assert (response.status_code, challenge(response)["scope"]) == (403, "mcp:call mcp:call:write mcp:list")


async def test_key_without_required_scope_gets_an_error_without_challenge(start: Any, lab: Json) -> None:
    async with start(backends=lab) as gateway:
        reader = gateway.as_(await gateway.new_key(scopes=["mcp:list", "mcp:call"]))
        response = await reader.post("tools/call", {"name": "lab_save", "arguments": {"text": "x"}})
    assert (response.status_code, "www-authenticate" in response.headers) == (200, False)
    assert response.json()["result"]["isError"] is True


# ---- expiry and revocation


async def wait_until(condition: Any, seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.02)


async def test_threat_8_revoked_token_is_rejected_within_seconds(gateway: Any) -> None:
    family = new_family()
    revoked_client = gateway.as_(token(gateway, family=family))
    other = gateway.as_(token(gateway))
    assert (await revoked_client.post("tools/list")).status_code == 200
    await gateway.app.identity.revocations.add("family", family, 600)

    async def rejected() -> bool:
        return (await revoked_client.post("tools/list")).status_code == 401

    await wait_until(rejected)
    assert (await other.post("tools/list")).status_code == 200


async def test_threat_8_token_revoked_by_another_process_is_rejected_and_its_streams_end(start: Any, run: Any) -> None:
    async with start() as first, run(first.app.settings.data_dir.parent) as second:
        family = new_family()
        credential = token(first, family=family)
        async with open_stream(first.as_(credential)) as stream:
            await second.app.identity.revocations.add("family", family, 600)
            await asyncio.wait_for(stream.wait_for_end(), 5)
        assert (await first.as_(credential).post("tools/list")).status_code == 401


@pytest.mark.parametrize("handshake", [False, True])
async def test_threat_7_open_stream_ends_when_its_token_expires(start: Any, handshake: bool) -> None:
    async with start() as gateway:
        async with open_stream(gateway.as_(token(gateway, lifetime=3600)), handshake=handshake) as stream:
            expire_credentials(gateway.app, HOUR)
            with pytest.raises(TimeoutError):  # a token has a grace period, for clock skew
                await asyncio.wait_for(stream.wait_for_end(), 0.3)
            expire_credentials(gateway.app, HOUR + GRACE)
            await asyncio.wait_for(stream.wait_for_end(), 5)


@pytest.mark.parametrize("handshake", [False, True])
async def test_threat_8_only_streams_of_the_revoked_key_end(start: Any, handshake: bool) -> None:
    async with start() as gateway:
        key, info = await gateway.app.keys.create("default", "bob")
        async with open_stream(gateway, handshake=handshake) as other_stream:
            async with open_stream(gateway.as_(key), handshake=handshake) as stream:
                await gateway.app.keys.revoke(info.id)
                await asyncio.wait_for(stream.wait_for_end(), 5)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(other_stream.wait_for_end(), 0.3)


async def test_open_stream_ends_when_its_key_expires(start: Any) -> None:
    async with start() as gateway:
        key = await gateway.new_key(expires=time.time() + HOUR)
        async with open_stream(gateway.as_(key)) as stream:
            expire_credentials(gateway.app)
            await asyncio.wait_for(stream.wait_for_end(), 5)


async def test_background_work_is_no_longer_authorized_after_its_grant_is_revoked(gateway: Any) -> None:
    family = new_family()
    app = gateway.app
    await app.identity.users.put("default", "alice", None, DEFAULT_SCOPES)
    caller = await app.identity.authenticate({"authorization": f"Bearer {token(gateway, family=family)}"}, "")
    assert await app.internal_calls.is_authorized(caller)
    await app.identity.revocations.add("family", family, 600)
    assert not await app.internal_calls.is_authorized(caller)


async def test_background_work_is_no_longer_authorized_after_its_user_is_removed(gateway: Any) -> None:
    app = gateway.app
    await app.identity.users.put("default", "alice", None, DEFAULT_SCOPES)
    caller = await app.identity.authenticate({"authorization": f"Bearer {token(gateway)}"}, "")
    assert await app.internal_calls.is_authorized(caller)
    await app.identity.users.remove("default", "alice")
    assert not await app.internal_calls.is_authorized(caller)
