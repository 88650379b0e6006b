"""A real Keycloak from Maven Central, with a realm for tests."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.peers.company import free_port
from tests.prerequisites import skip_or_fail

VERSION: Final = "26.7.3"
_FOLDER: Final = Path(sys.prefix) / "peers" / "keycloak"
_ADMIN: Final = ("admin", "admin-of-tests")
_START_SECONDS: Final = 300
Json = dict[str, Any]


@dataclass
class Keycloak:
    """A running Keycloak. All users have the password `password`."""

    base: str
    token: str = ""

    @property
    def issuer(self) -> str:
        return f"{self.base}/realms/company"

    def sign_in_as_admin(self) -> None:
        form = {"grant_type": "password", "client_id": "admin-cli", "username": _ADMIN[0], "password": _ADMIN[1]}
        answer = httpx.post(f"{self.base}/realms/master/protocol/openid-connect/token", data=form, timeout=60)
        self.token = answer.raise_for_status().json()["access_token"]

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """Call the admin API; return the answer, or the id of what was created."""
        self.sign_in_as_admin()
        headers = {"authorization": f"Bearer {self.token}"}
        answer = httpx.request(method, f"{self.base}/admin/realms{path}", json=body, headers=headers, timeout=60)
        answer.raise_for_status()
        if "location" in answer.headers:
            return answer.headers["location"].rpartition("/")[2]
        return answer.json() if answer.content else None

    def create_realm(self, gateway: str, provider: str) -> None:
        """Create the realm with a client for the gateway whose ID tokens name the user's groups."""
        self.admin("POST", "", {"realm": "company", "enabled": True, "sslRequired": "none"})
        mapper: Json = {
            "name": "groups", "protocol": "openid-connect", "protocolMapper": "oidc-group-membership-mapper",
            "config": {"claim.name": "groups", "full.path": "false", "id.token.claim": "true"},
        }  # fmt: skip
        self.admin("POST", "/company/clients", {
            "clientId": "gatehouse", "secret": "keycloak-secret", "protocol": "openid-connect",
            "redirectUris": [f"{gateway}/oauth/callback/{provider}"], "standardFlowEnabled": True,
            "directAccessGrantsEnabled": False, "protocolMappers": [mapper],
            "attributes": {
                "pkce.code.challenge.method": "S256",
                "backchannel.logout.url": f"{gateway}/oauth/logout/{provider}",
                "backchannel.logout.session.required": "true",
            },
        })  # fmt: skip

    def create_user(self, name: str, *groups: str) -> str:
        user = self.admin("POST", "/company/users", {
            "username": name, "enabled": True, "email": f"{name}@example.com", "emailVerified": True,
            "firstName": name.title(), "lastName": "Test",
            "credentials": [{"type": "password", "value": "password", "temporary": False}],
        })  # fmt: skip
        for group in groups:
            self.admin("PUT", f"/company/users/{user}/groups/{self.group(group)}", {})
        return user

    def group(self, name: str) -> str:
        for found in self.admin("GET", f"/company/groups?search={name}&exact=true"):
            return found["id"]
        return self.admin("POST", "/company/groups", {"name": name})


def install() -> Path:
    """Download and unpack Keycloak once, and return its folder. Skips the test if that fails."""
    unpacked = _FOLDER / f"keycloak-{VERSION}"
    if (unpacked / "bin" / "kc.sh").exists():
        return unpacked
    for program, package in (("java", "default-jre-headless"), ("mvn", "maven")):
        if shutil.which(program) is None:
            skip_or_fail(f"{program} is not installed (apt-get install {package})")
    archive = _FOLDER / f"keycloak-quarkus-dist-{VERSION}.zip"
    if not archive.exists():
        artifact = f"-Dartifact=org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"
        command = ["mvn", "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={_FOLDER}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if done.returncode != 0:
            skip_or_fail(f"Keycloak could not be downloaded: {done.stdout.strip()[-300:]}")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(_FOLDER)
    (unpacked / "bin" / "kc.sh").chmod(0o755)
    return unpacked


@contextmanager
def keycloak() -> Generator[Keycloak]:
    """Run Keycloak in development mode, with an empty database, until the block ends."""
    folder, port, management = install(), free_port(), free_port()
    data = Path(tempfile.mkdtemp(prefix="gatehouse-keycloak-"))
    base = f"http://127.0.0.1:{port}"
    environment = {
        **os.environ, "KC_BOOTSTRAP_ADMIN_USERNAME": _ADMIN[0], "KC_BOOTSTRAP_ADMIN_PASSWORD": _ADMIN[1],
        "KC_DB": "dev-mem", "JAVA_OPTS_APPEND": "-Xmx512m",
    }  # fmt: skip
    options = [
        f"--http-port={port}",
        f"--http-management-port={management}",
        f"--hostname={base}",
        "--http-host=127.0.0.1",
    ]
    with (data / "log").open("w") as log:
        process = subprocess.Popen(
            [str(folder / "bin" / "kc.sh"), "start-dev", *options],
            env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            _wait_until_ready(process, base, data / "log")
            yield Keycloak(base)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)
            shutil.rmtree(data, ignore_errors=True)


def _wait_until_ready(process: subprocess.Popen[bytes], base: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{base}/realms/master", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    skip_or_fail(f"Keycloak did not start: {log.read_text()[-1000:]}")
