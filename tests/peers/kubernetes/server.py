"""Runs etcd and kube-apiserver on free ports of the loopback address."""

import asyncio
import datetime
import ipaddress
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.prerequisites import skip_or_fail

VERSION: Final = "1.34.4"
PROGRAMS: Final = Path(sys.prefix) / "peers" / "kubernetes"
TOKEN: Final = "operator-of-the-test"
_START_SECONDS: Final = 90


@dataclass(frozen=True)
class ApiServer:
    """A running API server: its URL, its certificate, and `TOKEN` as the credential of an administrator."""

    url: str
    certificate: Path


@asynccontextmanager
async def api_server(folder: Path) -> AsyncIterator[ApiServer]:
    """Run both programs until the block ends. Skips the test if they were not built."""
    if not all((PROGRAMS / name).exists() for name in ("etcd", "kube-apiserver")):
        skip_or_fail("kube-apiserver is not built; run make kubernetes")
    certificate, key = _write_certificate(folder)
    (folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    etcd, peer, port = _free_ports(3)
    with ExitStack() as stack, (folder / "log").open("wb") as log:
        _run(stack, log, "etcd", **_etcd_flags(folder, etcd, peer))
        server = _run(stack, log, "kube-apiserver", **_server_flags(folder, certificate, key, etcd, port))
        running = ApiServer(f"https://127.0.0.1:{port}", certificate)
        await _wait_until_ready(running, server, folder / "log")
        yield running


def _run(stack: ExitStack, log: object, program: str, **flags: str) -> "subprocess.Popen[bytes]":
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    process = subprocess.Popen([str(PROGRAMS / program), *arguments], stdout=log, stderr=log)  # type: ignore[arg-type]
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _etcd_flags(folder: Path, client: int, peer: int) -> dict[str, str]:
    client_url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    return {
        "data_dir": str(folder / "etcd"),
        "listen_client_urls": client_url,
        "advertise_client_urls": client_url,
        "listen_peer_urls": peer_url,
        "initial_advertise_peer_urls": peer_url,
        "initial_cluster": f"default={peer_url}",
    }


def _server_flags(folder: Path, certificate: Path, key: Path, etcd: int, port: int) -> dict[str, str]:
    return {
        "etcd_servers": f"http://127.0.0.1:{etcd}",
        "bind_address": "127.0.0.1",
        "advertise_address": "127.0.0.1",
        "secure_port": str(port),
        "tls_cert_file": str(certificate),
        "tls_private_key_file": str(key),
        "token_auth_file": str(folder / "tokens.csv"),
        "authorization_mode": "RBAC",
        "service_account_issuer": "https://kubernetes.test",
        "service_account_key_file": str(key),
        "service_account_signing_key_file": str(key),
        "service_cluster_ip_range": "10.0.0.0/24",
        "endpoint_reconciler_type": "none",
    }


async def _wait_until_ready(server: ApiServer, process: "subprocess.Popen[bytes]", log: Path) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(verify=False, headers=headers) as http, asyncio.timeout(_START_SECONDS):
        while True:
            assert process.poll() is None, log.read_text()[-2000:]
            try:
                if (await http.get(f"{server.url}/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def _write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate for the loopback address, and its key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kube-apiserver")])
    now = datetime.datetime.now(datetime.UTC)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(alternative, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "server.crt", folder / "server.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    formats = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    paths[1].write_bytes(key.private_bytes(*formats, serialization.NoEncryption()))
    return paths
