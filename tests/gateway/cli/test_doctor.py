"""`gatehouse doctor`: finds problems of an installation and suggests fixes."""

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
    """An identity provider with one key; its issuer name and its clock can be failures."""

    def __init__(self) -> None:
        provider = self
        self.claimed_issuer: str | None = None
        self.clock_delay = 0.0
        key = ECKey.generate_key("P-256", private=False).as_dict(private=False)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                documents: Json = {
                    "/.well-known/openid-configuration": {
                        "issuer": provider.claimed_issuer or provider.issuer,
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
                return formatdate(time.time() - provider.clock_delay, usegmt=True)

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
    _provider.claimed_issuer, _provider.clock_delay = None, 0.0


@pytest.fixture(scope="module")
def closed_port() -> Iterator[int]:
    """A port without a listener, reserved for the test."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture(scope="module")
def used_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a gateway that has run."""
    folder = tmp_path_factory.mktemp("used") / "data"

    async def run_once() -> None:
        database = await Database.open(folder)
        await SigningKeys.open(database, load_secret(folder / "secrets", "signing"))
        await database.close()

    asyncio.run(run_once())
    return folder


class Setup:
    """A valid installation in the working folder, which a test can break."""

    def __init__(self, folder: Path, used_data: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        shutil.copytree(used_data, self.data)
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
def setup(tmp_path: Path, used_data: Path) -> Setup:
    return Setup(tmp_path, used_data)


@pytest.fixture
def doctor(run: Run, setup: Setup) -> Callable[..., tuple[list[Json], int]]:
    def run_doctor() -> tuple[list[Json], int]:
        (setup.folder / "gatehouse.yaml").write_text(yaml.safe_dump(setup.settings))
        result = run("doctor", "--json")
        return json.loads(result.stdout), result.exit_code

    return run_doctor


def _typo(setup: Setup) -> None:
    setup.settings["server"]["prot"] = 80


def _foreign_host(setup: Setup) -> None:
    setup.settings["server"] |= {"host": "203.0.113.7", "public_url": "https://mcp.example.org"}


def _no_public_url(setup: Setup) -> None:
    setup.settings["server"]["host"] = "0.0.0.0"


def _file_for_folder(setup: Setup) -> None:
    setup.settings |= {"data_dir": str(setup.folder / "file"), "files_dir": str(setup.data)}
    (setup.folder / "file").write_text("")


def _open_secret(setup: Setup) -> None:
    (setup.data / "secrets" / "signing").chmod(0o644)


def _truncated_secret(setup: Setup) -> None:
    (setup.data / "secrets" / "signing").write_bytes(b"short")


def _missing_secret(setup: Setup) -> None:
    (setup.data / "secrets" / "signing").unlink()


def _other_secret(setup: Setup) -> None:
    (setup.data / "secrets" / "signing").write_bytes(bytes(32))


def _damaged_database(setup: Setup) -> None:
    with (setup.data / "gatehouse.db").open("r+b") as file:
        file.write(b"not a database at all")


def _newer_database(setup: Setup) -> None:
    with sqlite3.connect(setup.data / "gatehouse.db") as connection:
        connection.execute("INSERT INTO migrations VALUES (9000, 'later', 'x', 0)")


def _older_database(setup: Setup) -> None:
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


def _private_url(setup: Setup) -> None:
    setup.settings["backends"] = {"near": {"url": "http://127.0.0.1:9/mcp"}}


def _unknown_backend(setup: Setup) -> None:
    setup.settings["tenants"] = {"default": {"backends": ["nowhere"]}}


BROKEN: dict[str, tuple[Callable[[Setup], None], str, str]] = {
    "a misspelt key": (_typo, "settings", "correct it"),
    "the address of another machine": (_foreign_host, "server.port", "set server.host to 127.0.0.1"),
    "a wildcard host without public_url": (_no_public_url, "server.public_url", "set it to the URL that clients use"),
    "a data folder that is a file": (_file_for_folder, "data_dir", "remove that file"),
    "a secret readable by others": (_open_secret, "secrets/signing", "chmod 600"),
    "a truncated secret": (_truncated_secret, "secrets/signing", "restore"),
    "a missing secret": (_missing_secret, "signing keys", "restore"),
    "a secret of another gateway": (_other_secret, "signing keys", "restore"),
    "a damaged database": (_damaged_database, "database", "restore"),
    "a database of a newer version": (_newer_database, "database", "start the newer version"),
    "an invalid policy": (_bad_policy, "policies", "correct it in"),
    "a module that is not installed": (_no_module, "backends.mine", "install the module, or correct module:"),
    "an invalid option": (_wrong_option, "backends.roblox", "correct this option"),
    "a missing program": (_no_program, "backends.files", "install it, or give its full path"),
    "a private address without allow_private": (_private_url, "backends.near", "allow_private: true"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_installation_is_reported_with_a_fix(name: str, setup: Setup, doctor: Any) -> None:
    break_setup, part, fix = BROKEN[name]
    break_setup(setup)
    findings, code = doctor()
    failures = [finding for finding in findings if finding["state"] == "bad"]
    assert {finding["part"] for finding in failures} == {part}
    assert fix in failures[0]["mend"]
    assert code == (2 if part == "settings" else 1)


@pytest.mark.parametrize(
    ("break_setup", "part", "fix"),
    [(_unknown_backend, "tenants.default", "correct the name"), (_older_database, "database", "gatehouse db upgrade")],
)
def test_risk_is_reported_as_a_warning(
    break_setup: Callable[[Setup], None], part: str, fix: str, setup: Setup, doctor: Any
) -> None:
    break_setup(setup)
    findings, code = doctor()
    warnings = [finding for finding in findings if finding["state"] == "warning"]
    assert [finding["part"] for finding in warnings] == [part]
    assert fix in warnings[0]["mend"]
    assert code == 0


def test_port_used_by_another_program_is_reported(setup: Setup, doctor: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        setup.settings["server"]["port"] = other.getsockname()[1]
        # Accepts the connection and does not respond, unlike a gateway.
        threading.Thread(target=lambda: other.accept()[0].close(), daemon=True).start()
        findings, code = doctor()
    assert (_finding(findings, "server.port")["state"], code) == ("bad", 1)
    assert "GATEHOUSE__SERVER__PORT" in _finding(findings, "server.port")["mend"]


@pytest.mark.parametrize(
    ("section", "url", "fix"),
    [
        ("database", "postgresql://gatehouse@127.0.0.1:{port}/gatehouse", "check that PostgreSQL runs"),
        ("bus", "redis://127.0.0.1:{port}/0", "check that Redis or Valkey runs"),
    ],
)
def test_unreachable_database_or_bus_is_reported(
    section: str, url: str, fix: str, setup: Setup, doctor: Any, closed_port: int
) -> None:
    setup.settings[section] = {"url": url.format(port=closed_port)}
    findings, code = doctor()
    found = _finding(findings, f"{section}.url")
    assert (found["state"], code) == ("bad", 1)
    assert fix in found["mend"]


def test_file_backend_with_a_bus_requires_files_shared(setup: Setup, doctor: Any, valkey_url: str) -> None:
    setup.settings |= {"bus": {"url": valkey_url}, "backends": {"godot": {"module": "backends.godot"}}}
    findings, _ = doctor()
    assert "files_shared: true" in _finding(findings, "backends.godot")["mend"]


def test_unreachable_identity_provider_is_reported(setup: Setup, doctor: Any, closed_port: int) -> None:
    setup.external(f"http://127.0.0.1:{closed_port}")
    found = _finding(doctor()[0], "auth.issuers.0")
    assert found["state"] == "bad"
    assert "check that it runs" in found["mend"]


def test_issuer_mismatch_is_reported(setup: Setup, doctor: Any, provider: Provider) -> None:
    provider.claimed_issuer = f"{provider.issuer}/"
    setup.external(provider.issuer)
    assert _finding(doctor()[0], "auth.issuers.0")["mend"] == f"set issuer: {provider.issuer}/"


def test_clock_offset_of_an_hour_is_reported(setup: Setup, doctor: Any, provider: Provider) -> None:
    provider.clock_delay = 3600
    setup.external(provider.issuer)
    findings, code = doctor()
    assert (_finding(findings, "clock")["state"], code) == ("bad", 1)
    assert "NTP" in _finding(findings, "clock")["mend"]


def test_unknown_tenant_of_an_issuer_is_reported(setup: Setup, doctor: Any, provider: Provider) -> None:
    setup.external(provider.issuer, tenant="acme")
    failures = [finding for finding in doctor()[0] if finding["state"] == "bad"]
    assert [finding["mend"] for finding in failures] == ["add acme: {} to tenants:"]


def test_unreachable_collector_is_a_warning(setup: Setup, doctor: Any, closed_port: int) -> None:
    setup.settings["telemetry"] = {"otlp": {"url": f"http://127.0.0.1:{closed_port}"}}
    findings, code = doctor()
    assert (_finding(findings, "telemetry.otlp.url")["state"], code) == ("warning", 0)


def test_valid_installation_prints_one_ok_line_per_check(run: Run, setup: Setup, doctor: Any) -> None:
    findings, code = doctor()
    assert ({finding["state"] for finding in findings}, code) == ({"good"}, 0)
    shown = run("doctor").stdout.splitlines()
    assert len(shown) == len(findings)
    assert "✓ backends.core: backends.core:server" in shown


def test_doctor_creates_no_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text("server: {port: 0}\nbackends: {}\n")
    assert run("doctor").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["gatehouse.yaml"]


def _finding(findings: list[Json], part: str) -> Json:
    (found,) = [finding for finding in findings if finding["part"] == part]
    return found
