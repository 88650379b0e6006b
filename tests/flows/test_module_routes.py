"""A module contributes HTTP and WebSocket routes, a scope, environment variables and peers of its own."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from gateway.edge.module_routes import RESERVED
from gateway.settings import Settings, load
from gateway.upstream.health import LoadError
from tests.conftest import Running
from tests.credential_clock import HOUR, expire_credentials, wait_for_streams
from tests.flows.fixtures import sensors

MODULE = "tests.flows.fixtures.sensors"
BACKENDS: dict[str, Any] = {"core": {"module": "backends.core"}, "sensors": {"module": MODULE}}
WITHIN = 5.0


@pytest.fixture
async def gateway(start: Any) -> AsyncIterator[Running]:
    sensors.ended.clear()
    async with start(backends=BACKENDS) as running:
        yield running


@asynccontextmanager
async def http_client(gateway: Running, key: str | None) -> AsyncIterator[httpx.AsyncClient]:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=gateway.base, headers=headers, timeout=30, verify=False) as http:
        yield http


async def sensor_key(gateway: Running, **more: Any) -> str:
    return await gateway.new_key(subject="sensor", scopes=(sensors.SCOPE,), **more)


def socket(gateway: Running, key: str | None, query: str = "?name=hall") -> connect:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return connect(f"{gateway.base.replace('http', 'ws', 1)}/sensors/live{query}", additional_headers=headers)


async def apply_backends(gateway: Running, backends: dict[str, Any]) -> None:
    await gateway.app.apply(gateway.app.settings.model_copy(update={"backends": Settings(backends=backends).backends}))


async def wait_for_hold(gateway: Running) -> None:
    """Wait until a request is open on a route of a module."""
    async with asyncio.timeout(WITHIN):
        while not gateway.app.module_routes._open:
            await asyncio.sleep(0.005)


# ---- authentication ----


async def test_handler_gets_the_caller_path_query_headers_and_body(gateway: Running) -> None:
    async with http_client(gateway, await sensor_key(gateway)) as http:
        response = await http.post("/sensors/hall/reading?unit=C", content="21.5", headers={"user-agent": "probe"})
    assert response.status_code == 201
    body = response.json()
    assert "authorization" not in body.pop("headers")
    assert body == {"tenant": "default", "name": "hall", "unit": "C", "agent": "probe", "reading": "21.5"}


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("wrong", 401), ("default scopes", 403)])
async def test_request_without_a_credential_of_the_scope_is_rejected(
    gateway: Running, key: str | None, status: int
) -> None:
    sent = gateway.key if key == "default scopes" else key
    async with http_client(gateway, sent) as http:
        response = await http.post("/sensors/hall/reading", content="1")
        assert response.status_code == status
        assert (response.headers.get("www-authenticate") == "Bearer") is (status == 401)
        if status == 403:
            assert "gatehouse key create --scope sensors:report" in response.json()["error"]["message"]
    with pytest.raises(InvalidStatus) as rejected:
        async with socket(gateway, sent):
            pass
    assert rejected.value.response.status_code == 403


async def test_route_accepts_the_credential_in_the_header_it_names(gateway: Running) -> None:
    key = await sensor_key(gateway)
    async with http_client(gateway, "wrong") as http:
        # The header of the route takes precedence.
        assert (await http.post("/sensors/hall/reading", headers={"x-sensor-key": key})).status_code == 201
        shown = (await http.post("/sensors/hall/reading", headers={"x-sensor-key": key})).json()
        assert not {"authorization", "x-sensor-key", "x-api-key"} & set(shown["headers"])
        assert (await http.post("/mcp", headers={"x-sensor-key": key})).status_code == 401


async def test_suspended_tenant_is_rejected(start: Any) -> None:
    async with start(backends=BACKENDS, tenants={"default": {}, "acme": {}}) as gateway:
        key = await sensor_key(gateway, tenant="acme")
        await gateway.app.tenants.change("acme", {"suspended": True})
        async with http_client(gateway, key) as http:
            assert (await http.post("/sensors/hall/reading")).status_code == 403


async def test_without_authentication_the_anonymous_caller_has_the_scopes_of_modules(start: Any) -> None:
    async with start(backends=BACKENDS, auth={"mode": "none"}) as gateway, http_client(gateway, None) as http:
        assert (await http.post("/sensors/hall/reading", content="1")).status_code == 201


# ---- requests ----


async def test_body_over_the_limit_of_the_route_is_rejected(gateway: Running) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 500

    async with http_client(gateway, await sensor_key(gateway)) as http:
        assert (await http.post("/sensors/hall/reading", content=b"x" * sensors.MAX_BODY)).status_code == 201
        for content in (b"x" * (sensors.MAX_BODY + 1), chunks()):
            response = await http.post("/sensors/hall/reading", content=content)
            assert (response.status_code, response.json()["error"]["kind"]) == (413, "too_large")


async def test_unknown_path_and_method_have_the_standard_errors(gateway: Running) -> None:
    async with http_client(gateway, await sensor_key(gateway)) as http:
        for path in (
            "/sensors",
            "/sensors/hall",
            "/sensors/hall/reading/x",
            "/sensors//reading",
            "/sensors/hall/reading/",
        ):
            assert (await http.post(path)).status_code == 404, path
        response = await http.delete("/sensors/hall/reading")
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
        assert response.json()["error"]["code"] == "METHOD_NOT_ALLOWED"


async def test_failing_handler_does_not_reveal_its_error(gateway: Running) -> None:
    async with http_client(gateway, await sensor_key(gateway)) as http:
        response = await http.get("/sensors/broken")
    assert (response.status_code, response.json()["error"]["kind"]) == (500, "internal")
    assert "swordfish" not in response.text


async def test_held_request_notices_that_the_client_disconnected(gateway: Running) -> None:
    async with http_client(gateway, await sensor_key(gateway)) as http:
        holding = asyncio.create_task(http.get("/sensors/hall/hold"))
        await wait_for_hold(gateway)
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
    async with asyncio.timeout(WITHIN):
        while sensors.ended != ["disconnected"]:
            await asyncio.sleep(0.005)


# ---- credentials that end ----


async def test_revoked_credential_ends_the_socket_and_the_held_request(gateway: Running) -> None:
    key, info = await gateway.app.keys.create("default", "sensor", scopes=(sensors.SCOPE,))
    async with http_client(gateway, key) as http, socket(gateway, key) as live:
        holding = asyncio.create_task(http.get("/sensors/hall/hold"))
        await live.send(b"ab")
        assert await live.recv() == b"ba"
        await wait_for_hold(gateway)
        await gateway.app.keys.revoke(info.id)
        async with asyncio.timeout(WITHIN):
            assert await close_code(live) == 1008
            await holding
        assert sensors.ended == ["revoked"]
        assert (await http.post("/sensors/hall/reading")).status_code == 401


async def test_expired_credential_ends_the_socket_and_the_held_request(gateway: Running) -> None:
    key = await sensor_key(gateway, expires=time.time() + HOUR)
    async with http_client(gateway, key) as http, socket(gateway, key) as live:
        holding = asyncio.create_task(http.get("/sensors/hall/hold"))
        await wait_for_streams(gateway.app, 2)
        expire_credentials(gateway.app)
        async with asyncio.timeout(WITHIN):
            assert await close_code(live) == 1001
            await holding
    assert sensors.ended == ["expired"]


async def close_code(live: ClientConnection) -> int:
    await live.wait_closed()
    return live.close_code or 0


# ---- settings ----


async def test_reload_adds_and_removes_the_routes_of_an_entry(start: Any) -> None:
    without = {"core": BACKENDS["core"]}
    sensors.ended.clear()
    async with start(backends=without) as gateway:
        key = await sensor_key(gateway)
        async with http_client(gateway, key) as http:
            assert (await http.post("/sensors/hall/reading")).status_code == 404
            await apply_backends(gateway, BACKENDS)
            assert (await http.post("/sensors/hall/reading")).status_code == 201
            async with socket(gateway, key) as live:
                holding = asyncio.create_task(http.get("/sensors/hall/hold"))
                await live.send(b"ab")
                assert await live.recv() == b"ba"
                while len(gateway.app.module_routes._open) < 2:
                    await asyncio.sleep(0.005)
                await apply_backends(gateway, without)
                async with asyncio.timeout(WITHIN):
                    assert await close_code(live) == 1001
                    await holding
                assert sensors.ended == ["stopped"]
            assert (await http.post("/sensors/hall/reading")).status_code == 404
            with pytest.raises(InvalidStatus):
                async with socket(gateway, key):
                    pass
            assert gateway.app._peers.count_by_backend() == {}


async def test_unrelated_reload_keeps_the_socket_open(gateway: Running) -> None:
    async with socket(gateway, await sensor_key(gateway)) as live:
        await live.send(b"ab")
        assert await live.recv() == b"ba"
        await apply_backends(gateway, {"sensors": BACKENDS["sensors"]})
        await live.send(b"cd")
        assert await live.recv() == b"dc"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            {"sensors": {"module": MODULE}, "more": {"module": MODULE}},
            "backends.more: its route POST /sensors/{name}/reading conflicts with the route POST"
            " /sensors/{name}/reading of backends.sensors",
        ),
        (
            {"sensors": {"module": MODULE}, "more": {"module": MODULE, "options": {"prefix": "/sensors/x"}}},
            None,
        ),
        (
            {"more": {"module": MODULE, "options": {"prefix": "/{any}"}}},
            "backends.more: the path /{any}/{name}/reading of a route is reserved for the gateway",
        ),
        (
            {"more": {"module": MODULE, "options": {"prefix": "/mcp/more"}}},
            "backends.more: the path /mcp/more/{name}/reading of a route is reserved for the gateway",
        ),
        (
            {"more": {"module": MODULE, "options": {"prefix": "/api"}}},
            "backends.more: the path /api/{name}/reading of a route is reserved for the gateway",
        ),
        (
            {"more": {"module": MODULE, "options": {"prefix": "sensors"}}},
            "backends.more: the path 'sensors/{name}/reading' of a route is malformed",
        ),
        (
            {"more": {"module": MODULE, "options": {"prefix": "/a b"}}},
            "backends.more: the path '/a b/{name}/reading' of a route is malformed",
        ),
    ],
)
async def test_conflicting_and_reserved_paths_are_load_errors_and_change_nothing(
    gateway: Running, entries: dict[str, Any], message: str | None
) -> None:
    key = await sensor_key(gateway)
    if message is None:
        await apply_backends(gateway, entries)
        async with http_client(gateway, key) as http:
            assert (await http.post("/sensors/x/hall/reading")).status_code == 201
        return
    with pytest.raises(LoadError) as error:
        await apply_backends(gateway, entries)
    assert str(error.value) == message
    async with http_client(gateway, key) as http:
        assert (await http.post("/sensors/hall/reading")).status_code == 201


async def test_reserved_paths_cover_all_routes_of_the_gateway(gateway: Running) -> None:
    included: list[Any] = list(gateway.app.plain_routes.build().routes)
    own = {each.path.split("/")[1] for router in included for each in router.original_router.routes}
    assert own <= RESERVED
    assert {"api", "console", "oauth", "metrics"} <= own


async def test_variable_of_the_module_sets_its_option(start: Any, tmp_path: Path) -> None:
    settings = tmp_path / "own.yaml"
    settings.write_text(f"backends: {{sensors: {{module: {MODULE}}}}}")
    async with start(backends={"core": BACKENDS["core"]}) as gateway:
        with pytest.raises(LoadError, match=r"^backends\.sensors\.options\.verbose: expected true or false$"):
            await gateway.app.apply(load(settings, {"SENSORS_VERBOSE": "loud"}))
        await gateway.app.apply(load(settings, {"SENSORS_LIMIT": "7", "SENSORS_VERBOSE": "on"}))
        shown = await gateway.call("sensors_settings")
        assert json.loads(shown["result"]["content"][0]["text"]) == {"prefix": "/sensors", "limit": 7, "verbose": True}


# ---- scopes ----


async def test_scope_of_a_module_is_in_the_metadata_while_it_is_served(gateway: Running) -> None:
    path = "/.well-known/oauth-authorization-server"
    async with http_client(gateway, None) as http:
        assert sensors.SCOPE in (await http.get(path)).json()["scopes_supported"]
        await apply_backends(gateway, {"core": BACKENDS["core"]})
        assert sensors.SCOPE not in (await http.get(path)).json()["scopes_supported"]


async def test_local_owner_gets_the_scopes_of_modules(start: Any) -> None:
    async with start(backends={"core": BACKENDS["core"]}) as gateway:
        users = gateway.app.identity.users
        assert sensors.SCOPE not in (await users.find("default", "owner")).scopes
        await apply_backends(gateway, BACKENDS)
        assert sensors.SCOPE in (await users.find("default", "owner")).scopes


# ---- peers ----


async def test_tool_asks_a_connected_peer(gateway: Running) -> None:
    async with socket(gateway, await sensor_key(gateway)) as live:

        async def answer() -> None:
            request = json.loads(await live.recv())
            assert request["what"] == "temperature"
            await live.send(json.dumps({"requestId": request["requestId"], "value": 21.5}))

        answering = asyncio.create_task(answer())
        answer_text = (await gateway.call("sensors_measure", {"name": "hall"}))["result"]["content"][0]["text"]
        await answering
        assert answer_text == "21.5"
    async with asyncio.timeout(WITHIN):
        while gateway.app._peers.count_by_backend():
            await asyncio.sleep(0.005)
    refused = await gateway.call("sensors_measure", {"name": "hall"})
    assert "No sensor is connected." in json.dumps(refused)


async def test_connection_is_rejected_if_the_handler_raises_before_it_accepts(gateway: Running) -> None:
    with pytest.raises(InvalidStatus) as rejected:
        async with socket(gateway, await sensor_key(gateway), query=""):
            pass
    assert rejected.value.response.status_code == 403


async def test_shutdown_closes_the_open_sockets(gateway: Running) -> None:
    async with socket(gateway, await sensor_key(gateway)) as live:
        await live.send(b"ab")
        assert await live.recv() == b"ba"
        await gateway.app.drain()
        async with asyncio.timeout(WITHIN):
            assert await close_code(live) == 1001
