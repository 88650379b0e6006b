"""Tokens at the door: what a client is told, what a token opens, and what ends with it."""

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
from gateway.errors import Fault, Kind
from tests.peers.open_stream import open_stream

Json = dict[str, Any]
EVERYDAY = frozenset({"mcp:list", "mcp:call", "mcp:call:write"})


def token(gateway: Any, lasts: int | None = None, **changes: Any) -> str:
    given: Json = {
        "tenant": "default",
        "subject": "alice",
        "kind": "user",
        "groups": frozenset(),
        "scopes": EVERYDAY,
        "client": "client-1",
        "resource": gateway.url,
        "family": new_family(),
        **changes,
    }
    identity = gateway.house.identity
    if lasts is None:
        return identity.embedded.mint(OAuthGrant(**given))
    return EmbeddedIssuer(gateway.base, ProtectedResources(gateway.base), identity.signing, lasts).mint(
        OAuthGrant(**given)
    )


def challenge(answer: httpx.Response) -> dict[str, str]:
    header = answer.headers["www-authenticate"]
    assert header.startswith("Bearer ")
    return dict(re.findall(r'(\w+)="([^"]*)"', header))


# ---- what a client is told


async def test_without_a_credential_the_challenge_says_where_to_get_one_and_no_error(gateway: Any) -> None:
    answer = await gateway.post("tools/list", authorization="")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == (
        f'Bearer resource_metadata="{gateway.base}/.well-known/oauth-protected-resource/mcp",'
        ' scope="mcp:list mcp:call mcp:call:write"'
    )


async def test_a_bad_token_is_an_error_and_the_challenge_is_of_the_endpoint_it_came_to(gateway: Any) -> None:
    answer = await gateway.as_("x.y.z").post("tools/list", path="/mcp/core")
    said = challenge(answer)
    assert (answer.status_code, said["error"]) == (401, "invalid_token")
    assert said["resource_metadata"] == f"{gateway.base}/.well-known/oauth-protected-resource/mcp/core"


async def test_an_expired_token_is_told_so_and_is_no_guess(gateway: Any) -> None:
    old = gateway.as_(token(gateway, lasts=-60))
    for _ in range(30):
        answer = await old.post("tools/list")
        assert (answer.status_code, challenge(answer)["error_description"]) == (401, "The token has expired.")


async def test_the_metadata_of_an_endpoint_names_exactly_that_endpoint(gateway: Any) -> None:
    known = f"{gateway.base}/.well-known/oauth-protected-resource"
    async with httpx.AsyncClient(verify=False) as http:
        for path, resource in (("", "/mcp"), ("/mcp", "/mcp"), ("/mcp/core", "/mcp/core")):
            answer = await http.get(known + path)
            said = answer.json()
            assert (answer.status_code, said["resource"]) == (200, gateway.base + resource)
            assert said["authorization_servers"] == [gateway.base]
            assert said["scopes_supported"] == ["mcp:list", "mcp:call", "mcp:call:write"]
            assert said["bearer_methods_supported"] == ["header"]


@pytest.mark.parametrize("path", ["/mcp/nobody", "/t/acme/mcp", "/mcp/", "/../mcp", "/mcp/core/x"])
async def test_there_is_no_metadata_of_what_is_not_served(gateway: Any, path: str) -> None:
    async with httpx.AsyncClient(verify=False) as http:
        answer = await http.get(f"{gateway.base}/.well-known/oauth-protected-resource{path}")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")


async def test_addresses_come_from_the_public_url_and_never_from_the_host_header(start: Any) -> None:
    async with start(server={"public_url": "https://gw.example", "allowed_hosts": ["evil.example"]}) as gateway:
        async with httpx.AsyncClient(verify=False, base_url=gateway.base, headers={"host": "evil.example"}) as http:
            answer = await http.post("/mcp", json={})
            said = (await http.get("/.well-known/oauth-protected-resource/mcp")).json()
    assert challenge(answer)["resource_metadata"].startswith("https://gw.example/.well-known/")
    assert (said["resource"], said["authorization_servers"]) == ("https://gw.example/mcp", ["https://gw.example"])


async def test_threat_12_a_strange_host_opens_no_protected_route(start: Any) -> None:
    async with start() as gateway:
        async with httpx.AsyncClient(verify=False, base_url=gateway.base) as http:
            for host in ("a/b?c#d", "127.0.0.1:1/healthz", "localhost/../healthz", "x@127.0.0.1"):
                for path in ("/mcp", "/mcp/core", "/v1/bridge/session"):
                    answer = await http.post(path, json={}, headers={"host": host})
                    assert answer.status_code in (400, 401, 421), (host, path)


async def test_where_nobody_is_asked_there_is_nothing_to_discover(start: Any) -> None:
    async with start(auth={"mode": "none"}) as gateway, httpx.AsyncClient(verify=False) as http:
        assert (await http.get(f"{gateway.base}/.well-known/oauth-protected-resource")).status_code == 404
        assert (await gateway.post("tools/list")).status_code == 200


# ---- what a token opens


async def test_a_token_for_all_is_good_everywhere_and_one_for_an_endpoint_only_there(gateway: Any) -> None:
    wide, narrow = gateway.as_(token(gateway)), gateway.as_(token(gateway, resource=f"{gateway.url}/core"))
    for path in ("/mcp", "/mcp/core"):
        assert (await wide.post("tools/list", path=path)).status_code == 200
    assert (await narrow.post("tools/list", path="/mcp/core")).status_code == 200
    for path in ("/mcp", "/mcp/project"):
        refused = await narrow.post("tools/list", path=path)
        assert (refused.status_code, challenge(refused)["error"]) == (401, "invalid_token")


ALL = EVERYDAY | {"mcp:admin", "bridge:roblox", "bridge:godot"}
HOUSE: Json = {
    "core": {"module": "backends.core"},
    "workflow": {"module": "backends.workflow"},
    "roblox": {"module": "backends.roblox", "options": {"bridge_enabled": True}},
}


async def doors(gateway: Any, given: str) -> dict[str, int]:
    """What each of the other ways in answers to this credential."""
    headers = {"authorization": f"Bearer {given}"}
    async with httpx.AsyncClient(verify=False, base_url=gateway.base, headers=headers) as http:
        answers = {path: (await http.get(path)).status_code for path in ("/api/v1/backends", "/metrics")}
        answers["studio"] = (await http.post("/v1/bridge/session", json={})).status_code
    try:
        async with connect(f"ws{gateway.base[4:]}/bridge/godot?project=/p", additional_headers=headers):
            answers["editor"] = 101
    except InvalidStatus as refused:
        answers["editor"] = refused.response.status_code
    return answers


async def test_threat_5_a_token_for_one_endpoint_opens_neither_the_operators_doors_nor_the_bridges(start: Any) -> None:
    server = {"host": "0.0.0.0", "public_url": "http://127.0.0.1", "allowed_hosts": ["127.0.0.1:*"]}
    async with start(backends=HOUSE, server=server) as gateway:
        at = f"{gateway.house.public_url}/mcp"
        names = ("/api/v1/backends", "/metrics", "studio", "editor")
        for resource, answers in (
            (at, (200, 200, 200, 101)),
            (f"{at}/core", (401, 401, 401, 403)),
            (f"{at}/roblox", (401, 401, 200, 403)),
            (f"{at}/godot", (401, 401, 401, 101)),
        ):
            given = await signed(gateway, scopes=ALL, resource=resource)
            assert await doors(gateway, given) == dict(zip(names, answers, strict=True)), resource


async def signed(gateway: Any, **changes: Any) -> str:
    identity = gateway.house.identity
    await identity.users.put("default", "alice", None, ALL)
    given: Json = {"tenant": "default", "subject": "alice", "kind": "user", "groups": frozenset(), "client": "c"}
    return identity.embedded.mint(OAuthGrant(**given, family=new_family(), **changes))


async def test_threat_5_a_module_calls_no_more_for_a_token_than_the_endpoint_it_is_for_has(start: Any) -> None:
    async with start(backends=HOUSE) as gateway:
        inside, authenticate = gateway.house.inside, gateway.house.identity.authenticate
        for path, core, workflow in (("", True, True), ("/core", True, False), ("/workflow", False, True)):
            given = token(gateway, resource=f"{gateway.url}{path}")
            caller = await authenticate({"authorization": f"Bearer {given}"}, "")
            assert inside.knows(caller, "core.ping") is core, path
            assert inside.knows(caller, "workflow.status") is workflow, path
            if core:
                assert (await inside.invoke(caller, "core.ping", {}, {}))["isError"] is False
            else:
                with pytest.raises(Fault) as refused:
                    await inside.invoke(caller, "core.ping", {}, {})
                assert refused.value.kind is Kind.NOT_FOUND


async def test_threat_37_a_suspended_tenants_operator_is_let_in_nowhere(start: Any) -> None:
    server = {"host": "0.0.0.0", "public_url": "http://127.0.0.1", "allowed_hosts": ["127.0.0.1:*"]}
    async with start(backends=HOUSE, tenants={"default": {}, "acme": {}}, server=server) as gateway:
        key = await gateway.new_key("acme", scopes=ALL)
        assert set((await doors(gateway, key)).values()) == {200, 101}
        await gateway.house.tenants.change("acme", {"suspended": True})
        assert set((await doors(gateway, key)).values()) == {403}


async def test_a_token_in_the_address_is_no_credential(gateway: Any) -> None:
    async with httpx.AsyncClient(verify=False) as http:
        given = token(gateway)
        answer = await http.post(f"{gateway.url}?access_token={given}", json={}, headers={"authorization": ""})
        assert answer.status_code == 401
        assert "error" not in challenge(answer)


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


async def test_a_token_that_lacks_a_scope_is_told_which_to_get(start: Any, lab: Json) -> None:
    async with start(backends=lab) as gateway:
        reader = gateway.as_(token(gateway, scopes=frozenset({"mcp:list", "mcp:call"})))
        answer = await reader.post("tools/call", {"name": "lab_save", "arguments": {"text": "x"}})
        said = challenge(answer)
    assert answer.status_code == 403
    assert (said["error"], said["scope"]) == ("insufficient_scope", "mcp:call:write")
    assert said["resource_metadata"] == f"{gateway.base}/.well-known/oauth-protected-resource/mcp"
    assert said["error_description"]
    assert answer.json()["result"]["_meta"]["gatehouse/error"]["kind"] == "denied"


async def test_an_older_client_is_told_of_all_scopes_since_it_would_lose_the_others(start: Any, lab: Json) -> None:
    async with start(backends=lab) as gateway:
        given = token(gateway, scopes=frozenset({"mcp:list", "mcp:call"}))
        headers = {"authorization": f"Bearer {given}", "accept": "text/event-stream, application/json"}
        async with httpx.AsyncClient(verify=False, base_url=gateway.base, headers=headers) as http:
            params: Json = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t"}}
            message: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            opened = await http.post("/mcp", json=message)
            params = {"name": "lab_save", "arguments": {"text": "x"}}
            message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
            answer = await http.post("/mcp", json=message, headers={"mcp-session-id": opened.headers["mcp-session-id"]})
    assert (answer.status_code, challenge(answer)["scope"]) == (403, "mcp:call mcp:call:write mcp:list")


async def test_a_key_that_lacks_a_scope_gets_the_plain_error(start: Any, lab: Json) -> None:
    async with start(backends=lab) as gateway:
        reader = gateway.as_(await gateway.new_key(scopes=["mcp:list", "mcp:call"]))
        answer = await reader.post("tools/call", {"name": "lab_save", "arguments": {"text": "x"}})
    assert (answer.status_code, "www-authenticate" in answer.headers) == (200, False)
    assert answer.json()["result"]["isError"] is True


# ---- what ends with it


async def settled(fact: Any, seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not await fact():
            await asyncio.sleep(0.02)


async def test_threat_8_a_revoked_token_is_refused_within_seconds(gateway: Any) -> None:
    family = new_family()
    holder = gateway.as_(token(gateway, family=family))
    other = gateway.as_(token(gateway))
    assert (await holder.post("tools/list")).status_code == 200
    await gateway.house.identity.revocations.add("family", family, 600)

    async def refused() -> bool:
        return (await holder.post("tools/list")).status_code == 401

    await settled(refused)
    assert (await other.post("tools/list")).status_code == 200


async def test_threat_8_what_another_process_revokes_is_refused_here_and_its_streams_end(start: Any, run: Any) -> None:
    async with start() as first, run(first.house.settings.data_dir.parent) as second:
        family = new_family()
        given = token(first, family=family)
        async with open_stream(first.as_(given)) as stream:
            await second.house.identity.revocations.add("family", family, 600)
            await asyncio.wait_for(stream.wait_for_end(), 5)
        assert (await first.as_(given).post("tools/list")).status_code == 401


@pytest.mark.parametrize("handshake", [False, True])
async def test_threat_7_an_open_stream_ends_with_its_token(start: Any, handshake: bool) -> None:
    async with start() as gateway:
        began = time.time()
        gateway.house.identity.tenures._grace = 0.0
        async with open_stream(gateway.as_(token(gateway, lasts=2)), handshake=handshake) as stream:
            await asyncio.wait_for(stream.wait_for_end(), 6)
    assert time.time() - began >= 1


@pytest.mark.parametrize("handshake", [False, True])
async def test_threat_8_an_open_stream_ends_when_its_key_is_revoked_and_others_do_not(
    start: Any, handshake: bool
) -> None:
    async with start() as gateway:
        key, info = await gateway.house.keys.create("default", "bob")
        async with open_stream(gateway, handshake=handshake) as mine:
            async with open_stream(gateway.as_(key), handshake=handshake) as stream:
                await gateway.house.keys.revoke(info.id)
                await asyncio.wait_for(stream.wait_for_end(), 5)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(mine.wait_for_end(), 0.3)


async def test_an_open_stream_ends_with_its_key(start: Any) -> None:
    async with start() as gateway:
        key = await gateway.new_key(expires=time.time() + 1)
        async with open_stream(gateway.as_(key)) as stream:
            await asyncio.wait_for(stream.wait_for_end(), 5)


async def test_work_that_outlives_a_token_stops_when_what_it_rests_on_is_revoked(gateway: Any) -> None:
    family = new_family()
    house = gateway.house
    await house.identity.users.put("default", "alice", None, EVERYDAY)
    caller = await house.identity.authenticate({"authorization": f"Bearer {token(gateway, family=family)}"}, "")
    assert await house.inside.good(caller)
    await house.identity.revocations.add("family", family, 600)
    assert not await house.inside.good(caller)


async def test_work_that_outlives_a_token_stops_when_its_user_is_removed(gateway: Any) -> None:
    house = gateway.house
    await house.identity.users.put("default", "alice", None, EVERYDAY)
    caller = await house.identity.authenticate({"authorization": f"Bearer {token(gateway)}"}, "")
    assert await house.inside.good(caller)
    await house.identity.users.remove("default", "alice")
    assert not await house.inside.good(caller)
