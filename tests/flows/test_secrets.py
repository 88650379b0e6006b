"""Canary secrets in every secret setting: none appears in logs, telemetry, pages, responses or storage."""

import asyncio
import html
import io
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import yaml
from joserfc.jwk import ECKey
from typer.testing import CliRunner

from gateway.cli.main import app
from gateway.console.routes import PAGES
from gateway.settings import Settings
from gateway.telemetry.log import JsonFormatter
from tests.flows.canaries import CANARY, EchoServer, canary, echo_server, find_leaks, secret_settings, slots
from tests.peers.collector import COLLECTORS
from tests.peers.console_client import console_client

Json = dict[str, Any]
CLIENT_KEY = ECKey.generate_key("P-256").as_dict(private=True, kid=canary("client-key"))
JWT = f"eyJhbGciOiJub25lIn0.{CANARY.replace('-', '_')}.{CANARY}"


@pytest.fixture
async def echo() -> AsyncIterator[EchoServer]:
    async with echo_server() as running:
        yield running


@pytest.fixture
def log_capture() -> Iterator[io.StringIO]:
    """Everything that the gateway and the libraries log, at level DEBUG, in the gateway's format."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root, ours = logging.getLogger(), logging.getLogger("gatehouse")
    before = root.level, ours.level
    root.addHandler(handler)
    ours.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before[0])
    ours.setLevel(before[1])


# ---- settings with canaries


def embedded_settings(echo: str, otlp: str) -> Json:
    """Settings with embedded auth and a canary in every secret."""
    refusing = {"url": f"{echo}/mcp", "allow_private": True}
    oauth = {"client_id": "gatehouse", "client_secret": canary("oauth"), "token_url": f"{echo}/token"}
    shell = {"command": "sh", "args": ["-c", "echo $TOKEN >&2; exit 3"], "env": {"TOKEN": canary("env")}}
    return {
        "backends": {
            "core": {"module": "backends.core"},
            "plain": {"module": "tests.flows.fixtures.plain"},
            "header": {**refusing, "headers": {"Authorization": f"Bearer {canary('header')}"}},
            "oauth": {**refusing, "oauth": oauth},
            "signed": {**refusing, "oauth": {**oauth, "client_secret": None, "client_key": json.dumps(CLIENT_KEY)}},
            "child": shell,
        },
        "telemetry": {
            "traces": {"share": 1.0, "content": ["default"]},
            "otlp": {"url": otlp, "headers": {"x-token": canary("otlp")}, "logs": True},
        },
    }


def external_settings(echo: str, database: str, bus: str) -> Json:
    """Settings with an identity provider, PostgreSQL and Redis, each with a canary."""
    introspection = {"url": f"{echo}/introspect", "client_id": "gatehouse", "client_secret": canary("introspection")}
    issuer = {"issuer": echo, "tenant": "default", "allow_private": True, "introspection": introspection}
    return {
        "auth": {"mode": "external", "issuers": [issuer]},
        "console": {"client_id": "console", "client_secret": canary("console")},
        "database": {"url": database},
        "bus": {"url": bus},
        "backends": {"core": {"module": "backends.core"}},
    }


DEAD = "127.0.0.1:9"
UNREACHABLE = external_settings(
    f"http://{DEAD}", f"postgresql://gatehouse:{canary('database')}@{DEAD}/x", f"redis://:{canary('bus')}@{DEAD}/0"
)


def _client(name: str, *, key: bool, **more: Any) -> Json:
    secret = {"client_key": json.dumps(CLIENT_KEY)} if key else {"client_secret": canary(name)}
    return {"client_id": "gatehouse", **secret, **more}


def _federated_settings(*, key: bool) -> Json:
    """Settings of providers, accounts, approvals, the vault and the proxy; their own tests run them."""
    at, rules = f"http://{DEAD}", [{"group": "*"}]
    server = {"url": f"{at}/mcp", "allow_private": True}
    id_jag = {"provider": at, "provider_client_id": "g", "provider_client_secret": canary("provider"), "issuer": at}
    return {
        "auth": {"providers": {"idp": _client("idp", key=key, issuer=at, allow_private=True, rules=rules)}},
        "backends": {
            "own": {**server, "account": {"oauth": _client("account", key=key, issuer=at)}},
            "exchanged": {**server, "account": {"exchange": _client("exchange", key=key, issuer=at)}},
            "asserted": {**server, "account": {"id_jag": _client("assertion", key=key, **id_jag)}},
        },
        "approvals": {
            "webhooks": {"ops": {"url": at, "secret": canary("webhook") * 2}},
            "smtp": {
                "host": "127.0.0.1", "sender": "a@example.com", "username": "a", "password": canary("mail"),
                "recipients": {"platform": ["b@example.com"]},
            },
        },
        "vault": {"key": canary("vault")},
        "outbound": {"proxy": f"http://user:{canary('proxy')}@{DEAD}"},
    }  # fmt: skip


FEDERATED = (_federated_settings(key=False), _federated_settings(key=True))


def test_threat_29_every_secret_setting_is_tested_with_a_canary() -> None:
    cases = (embedded_settings(f"http://{DEAD}", f"http://{DEAD}"), UNREACHABLE, *FEDERATED)
    tested = {slot for each in cases for slot in slots(Settings(**each))}
    assert tested == secret_settings()


def test_threat_29_settings_representations_contain_no_secrets() -> None:
    for values in (embedded_settings(f"http://{DEAD}", f"http://{DEAD}"), UNREACHABLE, *FEDERATED):
        settings = Settings(**values)
        shown = {"repr": repr(settings), "str": str(settings), "json": settings.model_dump_json()}
        assert not find_leaks(shown)


# ---- embedded auth and storage


async def test_threat_29_canary_secrets_appear_in_no_log_span_metric_error_page_or_store(
    start: Any, tmp_path: Path, echo: EchoServer, log_capture: io.StringIO
) -> None:
    bodies: list[str] = []
    with COLLECTORS["http"]() as collector:
        async with start(**embedded_settings(echo.base, collector.url)) as gateway:
            own = gateway.key
            arguments = {"password": canary("argument"), "token": canary("argument")}
            for tool in (
                "core_ping",
                "plain_add",
                "header_x",
                "oauth_x",
                "signed_x",
                "child_x",
                f"Bearer {canary('name')}",
                own,
            ):
                bodies.append(str(await gateway.call(tool, arguments, {"api_key": canary("meta")})))
            # Not recorded: the response contains the URI, as the protocol requires, but only its sender gets it.
            await gateway.post("resources/read", {"uri": f"http://u:{CANARY}@example.org/"})
            async with httpx.AsyncClient(verify=False) as http:
                for headers in _credentials(own):
                    answer = await http.post(
                        gateway.url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers
                    )
                    bodies.append(answer.text + str(answer.headers))
                bodies.append((await http.get(f"{gateway.base}/metrics")).text)
            pages, signed_in = await _pages(gateway)
            await asyncio.to_thread(collector.wait_for, lambda: len(collector.spans()) >= 6 and collector.logs())
            log, generated = gateway.log.getvalue(), {**signed_in, **_generated_secrets(gateway, tmp_path / "data")}
        exported = "".join(str(request) for requests in collector.requests.values() for request in requests)
        sent = {name.lower(): value for name, value in collector.headers[0].items()}
    assert sent["x-token"] == canary("otlp")  # the canaries were used
    assert any(canary("header") in each for each in echo.requests)
    assert any("grant_type=client_credentials" in each for each in echo.requests)
    assert any("client_assertion=" in each for each in echo.requests)
    places = {
        "log": log,
        "process log": log_capture.getvalue(),
        "telemetry": exported,
        "answers and metrics": "".join(bodies),
        "store": _stored_data(tmp_path / "data"),
        "pages": "".join(pages),
    }
    assert "password" in "".join(pages)  # the pages of the calls are included
    assert "password" in exported  # the recorded content is exported without the value
    assert all(len(secret) >= 8 for secret in generated.values())
    assert not find_leaks(places, own, own.split("_", 2)[2], *generated.values())


def _credentials(own: str) -> list[dict[str, str]]:
    """Headers with a credential in every supported form."""
    return [
        {"authorization": f"Bearer {JWT}"},
        {"authorization": f"Basic {CANARY.replace('-', '')}"},
        {"x-api-key": canary("key")},
        {"authorization": f"Bearer {own}{CANARY}"},
        {"authorization": f"Bearer {own}", "mcp-session-id": canary("session")},
        {"cookie": f"session={canary('cookie')}; gatehouse-console={canary('console-cookie')}"},
    ]


def _generated_secrets(gateway: Any, data: Path) -> dict[str, str]:
    """Secrets that the test cannot choose: those of the secrets folder, the signing key, and the client key."""
    signing = gateway.app.identity.signing_keys
    (private,) = [key.as_dict(private=True)["d"] for key in signing._keys.values()]
    client_private = CLIENT_KEY["d"]
    assert isinstance(client_private, str)
    return {
        "client's key": client_private,
        "signing key": private,
        **{path.name: path.read_bytes().hex() for path in (data / "secrets").iterdir()},
    }


def _stored_data(data: Path) -> str:
    """The content of the data folder, except the `secrets` folder."""
    files = (path for path in data.rglob("*") if path.is_file() and path.parent.name != "secrets")
    return "".join(path.read_bytes().decode("latin-1") for path in files)


# ---- external identity provider, database and bus


async def test_threat_29_secrets_of_provider_database_and_bus_appear_nowhere(
    start: Any, tmp_path: Path, echo: EchoServer, postgres_url: str, valkey_url: str, log_capture: io.StringIO
) -> None:
    import asyncpg

    # Both servers accept any password, so the canary can be used as one.
    database = postgres_url.replace("postgres:@", f"postgres:{canary('database')}@")
    bus = valkey_url.replace("://", f"://default:{canary('bus')}@")
    assert CANARY in database
    bodies: list[str] = []
    async with start(**external_settings(echo.base, database, bus)) as gateway:
        bodies.append(str(await gateway.call("core_ping")))
        opaque = gateway.as_(canary("opaque-token"))
        bodies.append((await opaque.post("tools/list")).text)
        async with httpx.AsyncClient(base_url=gateway.base, verify=False) as http:
            begun = await http.get("/console")
            state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]
            answer = await http.get("/console/signed-in", params={"code": canary("code"), "state": state})
            assert answer.status_code == 400
            bodies += [answer.text, (await http.get("/metrics")).text]
        await gateway.app.audit.flush()
        log = gateway.log.getvalue()
        connection = await asyncpg.connect(postgres_url)
        rows = [
            str(await connection.fetch(f'SELECT * FROM "{table["s"]}"."{table["t"]}"'))
            for table in await connection.fetch(
                "SELECT table_schema AS s, table_name AS t FROM information_schema.tables"
                " WHERE table_schema LIKE 'gatehouse%' OR table_schema = 'public'"
            )
        ]
        await connection.close()
    assert len(rows) > 5
    requests = "".join(echo.requests)
    assert "POST /introspect" in requests  # the canaries were used
    assert canary("code") in requests
    places = {
        "log": log,
        "process log": log_capture.getvalue(),
        "answers and metrics": "".join(bodies),
        "store": _stored_data(tmp_path / "data") + "".join(rows),
    }
    assert not find_leaks(places)


# ---- commands with unreachable dependencies


@pytest.mark.parametrize("arguments", [("check",), ("doctor",), ("doctor", "--json"), ("serve",), ("tenant", "list")])
@pytest.mark.parametrize(
    "values", [embedded_settings(f"http://{DEAD}", f"http://{DEAD}"), UNREACHABLE], ids=["own", "others"]
)
def test_threat_29_no_command_prints_a_secret_when_dependencies_are_unreachable(
    tmp_path: Path, values: Json, arguments: tuple[str, ...], log_capture: io.StringIO
) -> None:
    server: Json = {"port": 0}
    if arguments == ("serve",) and values is not UNREACHABLE:
        server |= {"host": "192.0.2.1", "public_url": "http://192.0.2.1"}  # not a local address: the bind fails
    file = tmp_path / "gatehouse.yaml"
    file.write_text(yaml.safe_dump({"data_dir": str(tmp_path / "data"), "server": server, **values}))
    result = CliRunner().invoke(app, [*arguments, "--config", str(file)])
    assert result.output
    places = {"output": result.output, "failure": repr(result.exception), "log": log_capture.getvalue()}
    assert not find_leaks(places)


async def _pages(gateway: Any) -> tuple[list[str], dict[str, str]]:
    """Every page of the console, including those of calls, backends and tools, and the credentials of the sign-in."""
    await gateway.app.audit.flush()
    code = await gateway.app.identity.create_sign_in_code()
    async with console_client(gateway, code=code) as http:
        pages = [(await http.get(f"/console{path}")).text for path in PAGES]
        links = {link for page in pages for link in re.findall(r'href="(/console/\w+/[^"]+)"', page)}
        opened = [link for link in links if "/static/" not in link]
        async with asyncio.timeout(30):  # the spans are written shortly after the calls
            while not any("gen_ai.tool.call.arguments" in page for page in pages):
                pages += [(await http.get(html.unescape(link))).text for link in opened]
        cookies = {cookie.name: str(cookie.value) for cookie in http.cookies.jar if cookie.value}
    assert "gatehouse-console" in cookies
    return pages, {**cookies, "sign-in code": code}
