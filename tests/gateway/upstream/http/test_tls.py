"""TLS to a server, with a certificate authority of the test: certificate and host name are verified."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.errors import Fault, Kind
from gateway.outbound import parse_target
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.http.request import RequestHead

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _issued(
    subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, by: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=subject == issuer, path_length=None), critical=True)
    )
    if subject != issuer:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(subject)]), critical=False)
    return builder.sign(by, hashes.SHA256())


def _pem(item: x509.Certificate | ec.EllipticCurvePrivateKey) -> bytes:
    if isinstance(item, x509.Certificate):
        return item.public_bytes(serialization.Encoding.PEM)
    none = serialization.NoEncryption()
    return item.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none)


@pytest.fixture
def authority(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """The authority's certificate, and a server context with a certificate for far.test."""
    root, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca, chain = tmp_path / "ca.pem", tmp_path / "server.pem"
    ca.write_bytes(_pem(_issued("Test authority", root, "Test authority", root)))
    chain.write_bytes(_pem(key) + _pem(_issued("far.test", key, "Test authority", root)))
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(chain)
    return ca, server_context


@asynccontextmanager
async def exchange_twice(
    host: str, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> AsyncIterator[list[bytes | None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"{}"):
                writer.write(OK)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context)
    target = parse_target(f"https://{host}:{server.sockets[0].getsockname()[1]}/mcp", allow_private=True)
    pool = ConnectionPool("far", target, max_bytes=1000, resolver=resolve, tls=client_context)
    try:
        bodies: list[bytes | None] = []
        for _ in range(2):
            leased = await pool.exchange(RequestHead(target, {}).post(b"", b"{}"))
            bodies.append(leased.response.body)
            leased.release()
        yield bodies
    finally:
        pool.close()
        server.close()


async def test_certificate_of_a_trusted_authority_for_the_host_name_is_accepted(
    authority: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The variable with which an operator adds an authority.
    monkeypatch.setenv("SSL_CERT_FILE", str(authority[0]))
    async with exchange_twice("far.test", authority[1], ssl.create_default_context()) as bodies:
        assert bodies == [b"{}"] * 2


@pytest.mark.parametrize("host", ["far.test", "other.test"], ids=["unknown authority", "another name"])
async def test_any_other_certificate_is_rejected(authority: tuple[Path, ssl.SSLContext], host: str) -> None:
    client_context = ssl.create_default_context(cafile=authority[0] if host == "other.test" else None)
    with pytest.raises(Fault) as rejected:
        async with exchange_twice(host, authority[1], client_context):
            pass
    assert rejected.value.kind is Kind.UNAVAILABLE
