"""Canary secrets in every place where one is given: none of them is told to anybody who only watches."""

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
from tests.flows.canaries import CANARY, Echo, canary, echoing, secret_settings, slots, traces
from tests.peers.collector import COLLECTORS
from tests.peers.console_client import console_client

Json = dict[str, Any]
CLIENT_KEY = ECKey.generate_key("P-256").as_dict(private=True, kid=canary("client-key"))
JWT = f"eyJhbGciOiJub25lIn0.{CANARY.replace('-', '_')}.{CANARY}"


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    async with echoing() as running:
        yield running


@pytest.fixture
def everything_logged() -> Iterator[io.StringIO]:
    """All that any library logs, at the level at which the gateway is run at its loudest, in the gateway's form."""
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


# ---- the places where one is given


def keeping(echo: str, otlp: str) -> Json:
    """A gateway of its own identity, with a canary wherever such a one is given a secret."""
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


def relying(echo: str, database: str, bus: str) -> Json:
    """One that relies on others: an identity provider, PostgreSQL and Redis, each with a secret."""
    asked = {"url": f"{echo}/introspect", "client_id": "gatehouse", "client_secret": canary("introspection")}
    issuer = {"issuer": echo, "tenant": "default", "allow_private": True, "introspection": asked}
    return {
        "auth": {"mode": "external", "issuers": [issuer]},
        "console": {"client_id": "console", "client_secret": canary("console")},
        "database": {"url": database},
        "bus": {"url": bus},
        "backends": {"core": {"module": "backends.core"}},
    }


DEAD = "127.0.0.1:9"
UNREACHABLE = relying(
    f"http://{DEAD}", f"postgresql://gatehouse:{canary('database')}@{DEAD}/x", f"redis://:{canary('bus')}@{DEAD}/0"
)


def test_threat_29_every_setting_for_a_secret_is_tried_with_a_canary() -> None:
    given = (keeping(f"http://{DEAD}", f"http://{DEAD}"), UNREACHABLE)
    tried = {slot for each in given for slot in slots(Settings(**each))}
    assert tried == secret_settings()


def test_threat_29_settings_do_not_show_their_secrets() -> None:
    for given in (keeping(f"http://{DEAD}", f"http://{DEAD}"), UNREACHABLE):
        settings = Settings(**given)
        shown = {"repr": repr(settings), "str": str(settings), "json": settings.model_dump_json()}
        assert not traces(shown)


# ---- a gateway that keeps its own


async def test_threat_29_canary_secrets_appear_in_no_log_span_metric_error_page_or_store(
    start: Any, tmp_path: Path, echo: Echo, everything_logged: io.StringIO
) -> None:
    bodies: list[str] = []
    with COLLECTORS["http"]() as collector:
        async with start(**keeping(echo.base, collector.url)) as gateway:
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
            # Its answer names the URI, as the protocol asks: to the one who sent it, and to nobody else.
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
            log, made = gateway.log.getvalue(), {**signed_in, **_made(gateway, tmp_path / "data")}
        told = "".join(str(request) for requests in collector.requests.values() for request in requests)
        sent = {name.lower(): value for name, value in collector.headers[0].items()}
    assert sent["x-token"] == canary("otlp")  # the slots were used
    assert any(canary("header") in each for each in echo.heard)
    assert any("grant_type=client_credentials" in each for each in echo.heard)
    assert any("client_assertion=" in each for each in echo.heard)
    places = {
        "log": log,
        "process log": everything_logged.getvalue(),
        "telemetry": told,
        "answers and metrics": "".join(bodies),
        "store": _stored(tmp_path / "data"),
        "pages": "".join(pages),
    }
    assert "password" in "".join(pages)  # the pages of the calls were looked at
    assert "password" in told  # what the tenant asked to see is there, without the value
    assert all(len(secret) >= 8 for secret in made.values())
    assert not traces(places, own, own.split("_", 2)[2], *made.values())


def _credentials(own: str) -> list[dict[str, str]]:
    """Headers that hold one, in every form that is met."""
    return [
        {"authorization": f"Bearer {JWT}"},
        {"authorization": f"Basic {CANARY.replace('-', '')}"},
        {"x-api-key": canary("key")},
        {"authorization": f"Bearer {own}{CANARY}"},
        {"authorization": f"Bearer {own}", "mcp-session-id": canary("session")},
        {"cookie": f"session={canary('cookie')}; gatehouse-console={canary('console-cookie')}"},
    ]


def _made(gateway: Any, data: Path) -> dict[str, str]:
    """Secrets that cannot be chosen: the gateway's own, those of its folder and the key that it signs with, and a key
    that it was given."""
    signing = gateway.house.identity.signing
    (private,) = [key.as_dict(private=True)["d"] for key in signing._keys.values()]
    return {
        "client's key": CLIENT_KEY["d"],
        "signing key": private,
        **{path.name: path.read_bytes().hex() for path in (data / "secrets").iterdir()},
    }


def _stored(data: Path) -> str:
    """All that is kept, but for the folder that is made for secrets."""
    kept = (path for path in data.rglob("*") if path.is_file() and path.parent.name != "secrets")
    return "".join(path.read_bytes().decode("latin-1") for path in kept)


# ---- one that relies on others


async def test_threat_29_nothing_of_a_providers_or_a_databases_secret_is_told_either(
    start: Any, tmp_path: Path, echo: Echo, postgres_url: str, valkey_url: str, everything_logged: io.StringIO
) -> None:
    import asyncpg

    # Both let anybody in, with whatever password: that is enough to see where it goes.
    database = postgres_url.replace("postgres:@", f"postgres:{canary('database')}@")
    bus = valkey_url.replace("://", f"://default:{canary('bus')}@")
    assert CANARY in database
    bodies: list[str] = []
    async with start(**relying(echo.base, database, bus)) as gateway:
        bodies.append(str(await gateway.call("core_ping")))
        opaque = gateway.as_(canary("opaque-token"))
        bodies.append((await opaque.post("tools/list")).text)
        async with httpx.AsyncClient(base_url=gateway.base, verify=False) as http:
            begun = await http.get("/console")
            state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]
            answer = await http.get("/console/signed-in", params={"code": canary("code"), "state": state})
            assert answer.status_code == 400
            bodies += [answer.text, (await http.get("/metrics")).text]
        await gateway.house.audit.flush()
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
    asked = "".join(echo.heard)
    assert "POST /introspect" in asked  # the slots were used
    assert canary("code") in asked
    places = {
        "log": log,
        "process log": everything_logged.getvalue(),
        "answers and metrics": "".join(bodies),
        "store": _stored(tmp_path / "data") + "".join(rows),
    }
    assert not traces(places)


# ---- commands that meet what cannot be reached


@pytest.mark.parametrize("arguments", [("check",), ("doctor",), ("doctor", "--json"), ("serve",), ("tenant", "list")])
@pytest.mark.parametrize("given", [keeping(f"http://{DEAD}", f"http://{DEAD}"), UNREACHABLE], ids=["own", "others"])
def test_threat_29_no_command_prints_a_secret_also_where_nothing_can_be_reached(
    tmp_path: Path, given: Json, arguments: tuple[str, ...], everything_logged: io.StringIO
) -> None:
    server: Json = {"port": 0}
    if arguments == ("serve",) and given is not UNREACHABLE:
        server |= {"host": "192.0.2.1", "public_url": "http://192.0.2.1"}  # no address of ours: it cannot be served
    file = tmp_path / "gatehouse.yaml"
    file.write_text(yaml.safe_dump({"data_dir": str(tmp_path / "data"), "server": server, **given}))
    result = CliRunner().invoke(app, [*arguments, "--config", str(file)])
    assert result.output
    places = {"output": result.output, "failure": repr(result.exception), "log": everything_logged.getvalue()}
    assert not traces(places)


async def _pages(gateway: Any) -> tuple[list[str], dict[str, str]]:
    """Every page of the console, those of all calls, backends and tools among them; and what signing in took."""
    await gateway.house.audit.flush()
    code = await gateway.house.identity.sign_in_code()
    async with console_client(gateway, code=code) as http:
        pages = [(await http.get(f"/console{path}")).text for path in PAGES]
        links = {link for page in pages for link in re.findall(r'href="(/console/\w+/[^"]+)"', page)}
        opened = [link for link in links if "/static/" not in link]
        async with asyncio.timeout(30):  # the spans are written a moment after the calls
            while not any("gen_ai.tool.call.arguments" in page for page in pages):
                pages += [(await http.get(html.unescape(link))).text for link in opened]
        cookies = {cookie.name: str(cookie.value) for cookie in http.cookies.jar if cookie.value}
    assert "gatehouse-console" in cookies
    return pages, {**cookies, "sign-in code": code}
