"""`doctor` finds what is wrong with a set-up, and names the mend."""

import asyncio
import json
import shutil
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from joserfc.jwk import ECKey
from typer.testing import Result

from gateway.auth.signing_keys import SigningKeys
from gateway.policy.source import SHIPPED
from gateway.state.database import Database
from gateway.state.secrets import load_secret

Run = Callable[..., Result]
Json = dict[str, Any]


class Provider:
    """An identity provider with a key; `calls_itself` and `clock` can be wrong."""

    def __init__(self) -> None:
        provider = self
        self.calls_itself: str | None = None
        self.late = 0.0
        key = ECKey.generate_key("P-256", private=False).as_dict(private=False)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                documents: Json = {
                    "/.well-known/openid-configuration": {
                        "issuer": provider.calls_itself or provider.issuer,
                        "jwks_uri": f"{provider.issuer}/keys",
                    },
                    "/keys": {"keys": [{**key, "kid": "1", "use": "sig"}]},
                }
                body = json.dumps(documents.get(self.path)).encode()
                self.send_response(200 if self.path in documents else 404)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def date_time_string(self, timestamp: float | None = None) -> str:
                return formatdate(time.time() - provider.late, usegmt=True)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture(scope="module")
def _provider() -> Iterator[Provider]:
    provider = Provider()
    thread = threading.Thread(target=provider.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield provider
    provider.server.shutdown()
    thread.join()
    provider.server.server_close()


@pytest.fixture
def provider(_provider: Provider) -> Iterator[Provider]:
    yield _provider
    _provider.calls_itself, _provider.late = None, 0.0


@pytest.fixture(scope="module")
def closed_port() -> Iterator[int]:
    """A port that nobody listens on, held so that nobody else takes it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a gateway that ran."""
    folder = tmp_path_factory.mktemp("lived") / "data"

    async def live() -> None:
        database = await Database.open(folder)
        await SigningKeys.open(database, load_secret(folder / "secrets", "signing"))
        await database.close()

    asyncio.run(live())
    return folder


class Setup:
    """A set-up in the working folder that is fine, until a test breaks it."""

    def __init__(self, folder: Path, lived_in: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        shutil.copytree(lived_in, self.data)
        self.data.chmod(0o700)
        self.settings: Json = {
            "data_dir": str(self.data),
            "server": {"port": 0},
            "backends": {"core": {"module": "backends.core"}},
        }

    def external(self, issuer: str, **more: Any) -> None:
        entry = {"issuer": issuer, "tenant": "default", "allow_private": True, **more}
        self.settings["auth"] = {"mode": "external", "issuers": [entry]}

    def policy(self, text: str) -> None:
        shutil.copytree(SHIPPED, self.folder / "policies")
        (self.folder / "policies" / "default" / "mine.cedar").write_text(text)
        self.settings["policies"] = {"dir": str(self.folder / "policies")}


@pytest.fixture
def setup(tmp_path: Path, lived_in: Path) -> Setup:
    return Setup(tmp_path, lived_in)


@pytest.fixture
def examine(run: Run, setup: Setup) -> Callable[..., tuple[list[Json], int]]:
    def look() -> tuple[list[Json], int]:
        (setup.folder / "gatehouse.yaml").write_text(yaml.safe_dump(setup.settings))
        result = run("doctor", "--json")
        return json.loads(result.stdout), result.exit_code

    return look


def _typo(setup: Setup) -> None:
    setup.settings["server"]["prot"] = 80


def _elsewhere(setup: Setup) -> None:
    setup.settings["server"] |= {"host": "203.0.113.7", "public_url": "https://mcp.example.org"}


def _nameless(setup: Setup) -> None:
    setup.settings["server"]["host"] = "0.0.0.0"


def _file_for_folder(setup: Setup) -> None:
    setup.settings |= {"data_dir": str(setup.folder / "file"), "files_dir": str(setup.data)}
    (setup.folder / "file").write_text("")


def _open_secret(setup: Setup) -> None:
    (setup.data / "secrets" / "signing").chmod(0o644)


def _cut_secret(setup: Setup) -> None:
    (setup.data / "secrets" / "signing").write_bytes(b"short")


def _lost_secret(setup: Setup) -> None:
    (setup.data / "secrets" / "signing").unlink()


def _other_secret(setup: Setup) -> None:
    (setup.data / "secrets" / "signing").write_bytes(bytes(32))


def _damaged(setup: Setup) -> None:
    with (setup.data / "gatehouse.db").open("r+b") as file:
        file.write(b"not a database at all")


def _newer(setup: Setup) -> None:
    with sqlite3.connect(setup.data / "gatehouse.db") as connection:
        connection.execute("INSERT INTO migrations VALUES (9000, 'later', 'x', 0)")


def _older(setup: Setup) -> None:
    with sqlite3.connect(setup.data / "gatehouse.db") as connection:
        connection.execute("DELETE FROM migrations WHERE number = (SELECT max(number) FROM migrations)")


def _bad_policy(setup: Setup) -> None:
    setup.policy('@id("mine") permit (principal, action, resource) when { principal.shoe == 4 };')


def _no_module(setup: Setup) -> None:
    setup.settings["backends"] = {"mine": {"module": "there_is_no_such_module"}}


def _wrong_option(setup: Setup) -> None:
    setup.settings["backends"] = {"roblox": {"module": "backends.roblox", "options": {"bridge_enabled": "perhaps"}}}


def _no_program(setup: Setup) -> None:
    setup.settings["backends"] = {"files": {"command": "no-such-program-here"}}


def _private(setup: Setup) -> None:
    setup.settings["backends"] = {"near": {"url": "http://127.0.0.1:9/mcp"}}


def _stranger(setup: Setup) -> None:
    setup.settings["tenants"] = {"default": {"backends": ["nowhere"]}}


BROKEN: dict[str, tuple[Callable[[Setup], None], str, str]] = {
    "a key that is misspelt": (_typo, "settings", "mend that place"),
    "an address of another machine": (_elsewhere, "server.port", "set server.host to 127.0.0.1"),
    "an open address without a public one": (_nameless, "server.public_url", "set it to the address that clients use"),
    "a data folder that is a file": (_file_for_folder, "data_dir", "move that file away"),
    "a secret that others can read": (_open_secret, "secrets/signing", "chmod 600"),
    "a secret that is cut short": (_cut_secret, "secrets/signing", "restore"),
    "a secret that was lost": (_lost_secret, "signing keys", "restore"),
    "a secret of another gateway": (_other_secret, "signing keys", "restore"),
    "a damaged database": (_damaged, "database", "restore"),
    "a database of a newer version": (_newer, "database", "start the newer version"),
    "a policy with a mistake": (_bad_policy, "policies", "mend that place in"),
    "a module that is not installed": (_no_module, "backends.mine", "install it, or mend module:"),
    "an option that is wrong": (_wrong_option, "backends.roblox", "mend that option"),
    "a program that is not there": (_no_program, "backends.files", "install it, or write its whole path"),
    "a private address nobody vouched for": (_private, "backends.near", "allow_private: true"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_set_up_is_found_and_its_mend_named(name: str, setup: Setup, examine: Any) -> None:
    make, part, mend = BROKEN[name]
    make(setup)
    findings, code = examine()
    wrong = [finding for finding in findings if finding["state"] == "bad"]
    assert {finding["part"] for finding in wrong} == {part}
    assert mend in wrong[0]["mend"]
    assert code == (2 if part == "settings" else 1)


@pytest.mark.parametrize(
    ("make", "part", "mend"),
    [(_stranger, "tenants.default", "mend the name"), (_older, "database", "gatehouse db upgrade")],
)
def test_what_will_be_missed_one_day_is_a_warning(
    make: Callable[[Setup], None], part: str, mend: str, setup: Setup, examine: Any
) -> None:
    make(setup)
    findings, code = examine()
    warned = [finding for finding in findings if finding["state"] == "warning"]
    assert [finding["part"] for finding in warned] == [part]
    assert mend in warned[0]["mend"]
    assert code == 0


def test_a_port_that_another_program_has_is_found(setup: Setup, examine: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        setup.settings["server"]["port"] = other.getsockname()[1]
        # It takes the connection and never answers: not a gateway.
        threading.Thread(target=lambda: other.accept()[0].close(), daemon=True).start()
        findings, code = examine()
    assert (_one(findings, "server.port")["state"], code) == ("bad", 1)
    assert "GATEHOUSE__SERVER__PORT" in _one(findings, "server.port")["mend"]


@pytest.mark.parametrize(
    ("section", "url", "mend"),
    [
        ("database", "postgresql://gatehouse@127.0.0.1:{port}/gatehouse", "see that PostgreSQL runs"),
        ("bus", "redis://127.0.0.1:{port}/0", "see that Redis or Valkey runs"),
    ],
)
def test_a_store_that_is_away_is_found(
    section: str, url: str, mend: str, setup: Setup, examine: Any, closed_port: int
) -> None:
    setup.settings[section] = {"url": url.format(port=closed_port)}
    findings, code = examine()
    found = _one(findings, f"{section}.url")
    assert (found["state"], code) == ("bad", 1)
    assert mend in found["mend"]


def test_files_beside_a_bus_must_be_shared(setup: Setup, examine: Any, valkey_url: str) -> None:
    setup.settings |= {"bus": {"url": valkey_url}, "backends": {"godot": {"module": "backends.godot"}}}
    findings, _ = examine()
    assert "files_shared: true" in _one(findings, "backends.godot")["mend"]


def test_an_identity_provider_that_is_away_is_found(setup: Setup, examine: Any, closed_port: int) -> None:
    setup.external(f"http://127.0.0.1:{closed_port}")
    found = _one(examine()[0], "auth.issuers.0")
    assert found["state"] == "bad"
    assert "see that it runs" in found["mend"]


def test_an_identity_provider_of_another_name_is_found(setup: Setup, examine: Any, provider: Provider) -> None:
    provider.calls_itself = f"{provider.issuer}/"
    setup.external(provider.issuer)
    assert _one(examine()[0], "auth.issuers.0")["mend"] == f"write issuer: {provider.issuer}/"


def test_a_clock_that_is_an_hour_off_is_found(setup: Setup, examine: Any, provider: Provider) -> None:
    provider.late = 3600
    setup.external(provider.issuer)
    findings, code = examine()
    assert (_one(findings, "clock")["state"], code) == ("bad", 1)
    assert "NTP" in _one(findings, "clock")["mend"]


def test_a_provider_s_tenant_that_is_not_there_is_found(setup: Setup, examine: Any, provider: Provider) -> None:
    setup.external(provider.issuer, tenant="acme")
    wrong = [finding for finding in examine()[0] if finding["state"] == "bad"]
    assert [finding["mend"] for finding in wrong] == ["add acme: {} to tenants:"]


def test_a_collector_that_is_away_harms_nothing_and_is_told(setup: Setup, examine: Any, closed_port: int) -> None:
    setup.settings["telemetry"] = {"otlp": {"url": f"http://127.0.0.1:{closed_port}"}}
    findings, code = examine()
    assert (_one(findings, "telemetry.otlp.url")["state"], code) == ("warning", 0)


def test_a_good_set_up_is_said_to_be_good_line_by_line(run: Run, setup: Setup, examine: Any) -> None:
    findings, code = examine()
    assert ({finding["state"] for finding in findings}, code) == ({"good"}, 0)
    shown = run("doctor").stdout.splitlines()
    assert len(shown) == len(findings)
    assert "✓ backends.core: backends.core:server" in shown


def test_looking_makes_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text("server: {port: 0}\nbackends: {}\n")
    assert run("doctor").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["gatehouse.yaml"]


def _one(findings: list[Json], part: str) -> Json:
    (found,) = [finding for finding in findings if finding["part"] == part]
    return found
