"""TLS to a server, with an authority made for the test: its certificate and its name must be right."""

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
from gateway.outbound import target
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


def _pem(thing: x509.Certificate | ec.EllipticCurvePrivateKey) -> bytes:
    if isinstance(thing, x509.Certificate):
        return thing.public_bytes(serialization.Encoding.PEM)
    none = serialization.NoEncryption()
    return thing.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none)


@pytest.fixture
def authority(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """The authority's certificate, and a server's context with one of its own for far.test."""
    root, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca, chain = tmp_path / "ca.pem", tmp_path / "server.pem"
    ca.write_bytes(_pem(_issued("Test authority", root, "Test authority", root)))
    chain.write_bytes(_pem(key) + _pem(_issued("far.test", key, "Test authority", root)))
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(chain)
    return ca, serving


@asynccontextmanager
async def answered(host: str, serving: ssl.SSLContext, trusted: ssl.SSLContext) -> AsyncIterator[list[bytes | None]]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"{}"):
                writer.write(OK)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving)
    there = target(f"https://{host}:{server.sockets[0].getsockname()[1]}/mcp", allow_private=True)
    made = ConnectionPool("far", there, max_bytes=1000, resolver=here, tls=trusted)
    try:
        bodies: list[bytes | None] = []
        for _ in range(2):
            leased = await made.exchange(RequestHead(there, {}).post(b"", b"{}"))
            bodies.append(leased.response.body)
            leased.release()
        yield bodies
    finally:
        made.close()
        server.close()


async def test_a_certificate_of_a_trusted_authority_for_that_name_is_accepted(
    authority: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The variable by which an operator adds an authority of their own.
    monkeypatch.setenv("SSL_CERT_FILE", str(authority[0]))
    async with answered("far.test", authority[1], ssl.create_default_context()) as bodies:
        assert bodies == [b"{}"] * 2


@pytest.mark.parametrize("host", ["far.test", "other.test"], ids=["unknown authority", "another name"])
async def test_any_other_certificate_is_refused(authority: tuple[Path, ssl.SSLContext], host: str) -> None:
    trusted = ssl.create_default_context(cafile=authority[0] if host == "other.test" else None)
    with pytest.raises(Fault) as refused:
        async with answered(host, authority[1], trusted):
            pass
    assert refused.value.kind is Kind.UNAVAILABLE
