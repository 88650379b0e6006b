"""TLS verifies the host name although the connection goes to a pinned address."""

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.errors import Fault, Kind
from gateway.outbound import create_client

from .peers import FakeResolver, peer


def _create_contexts(hosts: Sequence[str], folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server context with a certificate for the hosts, and a client context that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in hosts]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    both = folder / "server.pem"
    both.write_bytes(pem + secret)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(both)
    return server, ssl.create_default_context(cadata=pem.decode())


async def test_threat_13_tls_and_host_header_use_the_host_name_with_a_pinned_address(tmp_path: Path) -> None:
    tls, trust = _create_contexts(["one.example", "two.example"], tmp_path)
    server_names: list[str | None] = []

    def record_server_name(_connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        server_names.append(name)

    tls.sni_callback = record_server_name
    resolver = FakeResolver(["127.0.0.1"])
    trusted = frozenset({"one.example", "two.example", "three.example"})
    async with peer(tls=tls) as server, create_client(allow_private=trusted, resolver=resolver, verify=trust) as http:
        for host in ("one.example", "two.example", "one.example"):
            await http.get(f"https://{host}:{server.port}/")
        with pytest.raises(Fault) as caught:  # the certificate is not for this name
            await http.get(f"https://three.example:{server.port}/")
    # Connections are reused per host name, not per address.
    assert server_names == ["one.example", "two.example", "three.example"]
    assert [head.split(b"\r\n")[1] for head in server.request_heads][:2] == [
        f"Host: {host}:{server.port}".encode() for host in ("one.example", "two.example")
    ]
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_untrusted_certificate_is_rejected(tmp_path: Path) -> None:
    tls, _ = _create_contexts(["one.example"], tmp_path)
    trusted = frozenset({"one.example"})
    async with (
        peer(tls=tls) as server,
        create_client(allow_private=trusted, resolver=FakeResolver(["127.0.0.1"])) as http,
    ):
        with pytest.raises(Fault) as caught:
            await http.get(f"https://one.example:{server.port}/")
    assert caught.value.kind is Kind.UNAVAILABLE
    assert server.request_heads == []
