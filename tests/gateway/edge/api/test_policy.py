"""The policy routes of the operator API: access, and isolation of tenants."""

from typing import Any

import httpx

from tests.conftest import Running, Start

CORE = {"core": {"module": "backends.core"}}


async def send_request(gateway: Running, key: str | None, body: Any, route: str = "policy/why") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(verify=False) as http:
        return await http.post(f"{gateway.base}/api/v1/{route}", json=body, headers=headers)


async def test_operator_gets_an_explanation_of_a_decision(start: Start) -> None:
    async with start(backends=CORE) as gateway:
        admin = await gateway.new_key(subject="op", scopes=["mcp:admin"])
        found = (await send_request(gateway, admin, {"subject": "alice", "tool": "core_ping"})).json()
        assert (found["outcome"], [note["id"] for note in found["policies"]]) == ("allow", ["grant.call"])
        listed = (await send_request(gateway, admin, {"subject": "alice"}, "policy/tools")).json()
        assert [tool["name"] for tool in listed["tools"]] == ["core_ping"]


async def test_tools_that_a_user_may_call_leave_out_those_whose_scope_is_missing(start: Start) -> None:
    backends = {**CORE, "plain": {"module": "tests.flows.fixtures.plain"}}
    async with start(backends=backends) as gateway:
        admin = await gateway.new_key(subject="op", scopes=["mcp:admin"])
        for scopes, expected in ((["mcp:list", "mcp:call"], False), (["mcp:list", "mcp:call", "mcp:call:write"], True)):
            body = {"subject": "alice", "scopes": scopes}
            names = [
                tool["name"] for tool in (await send_request(gateway, admin, body, "policy/tools")).json()["tools"]
            ]
            assert "core_ping" in names
            assert ("plain_echo" in names) is expected


async def test_threat_37_operator_api_requires_the_admin_scope(start: Start) -> None:
    async with start(backends=CORE) as gateway:
        query = {"subject": "alice", "tool": "core_ping"}
        for route in ("policy/why", "policy/tools"):
            assert (await send_request(gateway, None, query, route)).status_code == 401
            assert (await send_request(gateway, "gth_x", query, route)).status_code == 401
            # The scopes for calls do not include administration.
            rejected = await send_request(gateway, gateway.key, query, route)
            assert (rejected.status_code, rejected.json()["error"]["details"]) == (
                403,
                {"missing_scopes": ["mcp:admin"]},
            )
        async with httpx.AsyncClient(verify=False) as http:
            cross_origin = await http.post(
                f"{gateway.base}/api/v1/policy/why", json=query, headers={"origin": "https://evil.example"}
            )
            assert cross_origin.status_code == 403


async def test_threat_37_two_installations_have_no_secret_in_common(start: Start, run: Any, tmp_path: Any) -> None:
    async with run(tmp_path / "a", backends=CORE), run(tmp_path / "b", backends=CORE):
        pairs = [
            ((tmp_path / "a/data/secrets" / file.name).read_bytes(), file.read_bytes())
            for file in (tmp_path / "b/data/secrets").iterdir()
        ]
    assert pairs
    assert all(one != other for one, other in pairs)


async def test_response_for_another_tenant_equals_that_for_an_unknown_tenant(start: Start) -> None:
    async with start(backends=CORE, tenants={"default": {}, "rival": {}}) as gateway:
        admin = await gateway.new_key(subject="op", scopes=["mcp:admin"])
        responses = [
            await send_request(gateway, admin, {"subject": "alice", "tool": "core_ping", "tenant": tenant})
            for tenant in ("rival", "never")
        ]
        assert [response.status_code for response in responses] == [404, 404]
        texts = [response.json()["error"]["message"] for response in responses]
        assert texts[0].replace("rival", "never") == texts[1]


async def test_threat_1_response_for_tools_of_other_tenants_equals_that_for_unknown_tools(start: Start) -> None:
    backends = {**CORE, "project": {"module": "backends.core:project"}}
    tenants = {"default": {}, "acme": {"backends": ["core"]}}
    console = {"organisation": ["acme/user:chief"]}
    async with start(backends=backends, tenants=tenants, console=console) as gateway:
        admin = await gateway.new_key("acme", "op", scopes=["mcp:admin"])
        responses = [
            (await send_request(gateway, admin, {"subject": "alice", "tool": tool})).json()
            for tool in ("project.workspace_stats", "project.nothing_at_all", "project_workspace_stats")
        ]
        assert [response["outcome"] for response in responses] == ["unknown tool"] * 3
        texts = [str(response).replace(response["tool"], "TOOL") for response in responses]
        assert texts[0] == texts[1] == texts[2]
        known = (await send_request(gateway, admin, {"subject": "alice", "tool": "core.ping"})).json()
        assert known["outcome"] == "allow"
        # An organisation administrator gets the reason.
        chief = await gateway.new_key("acme", "chief", scopes=["mcp:admin"])
        found = (await send_request(gateway, chief, {"subject": "alice", "tool": "project.workspace_stats"})).json()
        assert found["outcome"] == "hidden"


async def test_invalid_body_gets_400(start: Start) -> None:
    async with start(backends=CORE) as gateway:
        admin = await gateway.new_key(subject="op", scopes=["mcp:admin"])
        for body in ({}, {"subject": "a", "tool": "x", "more": 1}, []):
            assert (await send_request(gateway, admin, body)).status_code == 400


async def test_threat_37_operator_routes_are_served_on_the_operator_port_only(start: Any) -> None:
    async with start(backends=CORE, server={"ops_port": 1}) as gateway:
        admin = {"authorization": f"Bearer {await gateway.new_key(scopes=['mcp:admin'])}"}
        transport = httpx.ASGITransport(gateway.app.operator_app)
        async with (
            httpx.AsyncClient(verify=False, base_url=gateway.base, headers=admin) as public,
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1", headers=admin) as operator,
        ):
            for path in ("/api/v1/backends", "/api/v1/usage", "/api/v1/calls", "/api/v1/openapi.json", "/metrics"):
                assert (await public.get(path)).status_code == 404, path
                assert (await operator.get(path)).status_code == 200, path
            query = {"subject": "alice", "tool": "core_ping"}
            assert (await public.post("/api/v1/policy/why", json=query)).status_code == 404
            assert (await operator.post("/api/v1/policy/why", json=query)).status_code == 200
            assert (await public.get("/console")).status_code == 404
            assert (await operator.get("/console")).status_code == 303
            for path in ("/healthz", "/readyz"):
                assert (await public.get(path)).status_code == (await operator.get(path)).status_code == 200
            # Client routes are served on the public port only.
            for path in ("/oauth/jwks", "/.well-known/oauth-protected-resource"):
                assert (await public.get(path)).status_code == 200
                assert (await operator.get(path)).status_code == 404
            other_tenant = await operator.get("/api/v1/backends", headers={"authorization": ""})
            assert other_tenant.status_code == 401
