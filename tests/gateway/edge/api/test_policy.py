"""The operator's API: a credential of its own, and nothing of another tenant."""

from typing import Any

import httpx

from tests.conftest import Running, Start

CORE = {"core": {"module": "backends.core"}}


async def ask(gateway: Running, key: str | None, body: Any, route: str = "policy/why") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(verify=False) as http:
        return await http.post(f"{gateway.base}/api/v1/{route}", json=body, headers=headers)


async def test_why_is_explained_to_an_operator(start: Start) -> None:
    async with start(backends=CORE) as gateway:
        admin = await gateway.new_key(subject="op", scopes=["mcp:admin"])
        found = (await ask(gateway, admin, {"subject": "alice", "tool": "core_ping"})).json()
        assert (found["outcome"], [note["id"] for note in found["policies"]]) == ("allow", ["grant.call"])
        listed = (await ask(gateway, admin, {"subject": "alice"}, "policy/tools")).json()
        assert [tool["name"] for tool in listed["tools"]] == ["core_ping"]


async def test_threat_37_the_control_plane_needs_a_credential_of_its_own(start: Start) -> None:
    async with start(backends=CORE) as gateway:
        question = {"subject": "alice", "tool": "core_ping"}
        for route in ("policy/why", "policy/tools"):
            assert (await ask(gateway, None, question, route)).status_code == 401
            assert (await ask(gateway, "gth_x", question, route)).status_code == 401
            # Whoever may call and write may not administer.
            refused = await ask(gateway, gateway.key, question, route)
            assert (refused.status_code, refused.json()["error"]["details"]) == (403, {"missing_scopes": ["mcp:admin"]})
        async with httpx.AsyncClient(verify=False) as http:
            lured = await http.post(
                f"{gateway.base}/api/v1/policy/why", json=question, headers={"origin": "https://evil.example"}
            )
            assert lured.status_code == 403


async def test_threat_37_no_secret_is_the_same_in_two_houses(start: Start, run: Any, tmp_path: Any) -> None:
    async with run(tmp_path / "a", backends=CORE), run(tmp_path / "b", backends=CORE):
        pairs = [
            ((tmp_path / "a/data/secrets" / file.name).read_bytes(), file.read_bytes())
            for file in (tmp_path / "b/data/secrets").iterdir()
        ]
    assert pairs
    assert all(one != other for one, other in pairs)


async def test_another_tenant_answers_like_one_that_does_not_exist(start: Start) -> None:
    async with start(backends=CORE, tenants={"default": {}, "rival": {}}) as gateway:
        admin = await gateway.new_key(subject="op", scopes=["mcp:admin"])
        answers = [
            await ask(gateway, admin, {"subject": "alice", "tool": "core_ping", "tenant": tenant})
            for tenant in ("rival", "never")
        ]
        assert [answer.status_code for answer in answers] == [404, 404]
        texts = [answer.json()["error"]["message"] for answer in answers]
        assert texts[0].replace("rival", "never") == texts[1]


async def test_threat_1_what_other_tenants_alone_have_answers_like_what_does_not_exist(start: Start) -> None:
    backends = {**CORE, "project": {"module": "backends.core:project"}}
    tenants = {"default": {}, "acme": {"backends": ["core"]}}
    console = {"organisation": ["acme/user:chief"]}
    async with start(backends=backends, tenants=tenants, console=console) as gateway:
        admin = await gateway.new_key("acme", "op", scopes=["mcp:admin"])
        answers = [
            (await ask(gateway, admin, {"subject": "alice", "tool": tool})).json()
            for tool in ("project.workspace_stats", "project.nothing_at_all", "project_workspace_stats")
        ]
        assert [answer["outcome"] for answer in answers] == ["unknown tool"] * 3
        told = [str(answer).replace(answer["tool"], "TOOL") for answer in answers]
        assert told[0] == told[1] == told[2]
        known = (await ask(gateway, admin, {"subject": "alice", "tool": "core.ping"})).json()
        assert known["outcome"] == "allow"
        # Whoever looks after the organisation is told why.
        chief = await gateway.new_key("acme", "chief", scopes=["mcp:admin"])
        found = (await ask(gateway, chief, {"subject": "alice", "tool": "project.workspace_stats"})).json()
        assert found["outcome"] == "hidden"


async def test_a_body_that_is_not_a_question_is_told_so(start: Start) -> None:
    async with start(backends=CORE) as gateway:
        admin = await gateway.new_key(subject="op", scopes=["mcp:admin"])
        for body in ({}, {"subject": "a", "tool": "x", "more": 1}, []):
            assert (await ask(gateway, admin, body)).status_code == 400


async def test_threat_37_with_a_port_of_their_own_operators_are_answered_there_alone(start: Any) -> None:
    async with start(backends=CORE, server={"ops_port": 1}) as gateway:
        admin = {"authorization": f"Bearer {await gateway.new_key(scopes=['mcp:admin'])}"}
        transport = httpx.ASGITransport(gateway.house.ops)
        async with (
            httpx.AsyncClient(verify=False, base_url=gateway.base, headers=admin) as public,
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1", headers=admin) as theirs,
        ):
            for path in ("/api/v1/backends", "/api/v1/usage", "/api/v1/calls", "/api/v1/openapi.json", "/metrics"):
                assert (await public.get(path)).status_code == 404, path
                assert (await theirs.get(path)).status_code == 200, path
            question = {"subject": "alice", "tool": "core_ping"}
            assert (await public.post("/api/v1/policy/why", json=question)).status_code == 404
            assert (await theirs.post("/api/v1/policy/why", json=question)).status_code == 200
            assert (await public.get("/console")).status_code == 404
            assert (await theirs.get("/console")).status_code == 303
            for path in ("/healthz", "/readyz"):
                assert (await public.get(path)).status_code == (await theirs.get(path)).status_code == 200
            # What is for clients is behind the guard of hosts and origins alone.
            for path in ("/oauth/jwks", "/.well-known/oauth-protected-resource"):
                assert (await public.get(path)).status_code == 200
                assert (await theirs.get(path)).status_code == 404
            stranger = await theirs.get("/api/v1/backends", headers={"authorization": ""})
            assert stranger.status_code == 401
