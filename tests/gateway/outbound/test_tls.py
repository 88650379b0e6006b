"""TLS speaks of the name while the address is pinned."""

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.errors import Fault, Kind
from gateway.outbound import client

from .peers import Names, peer


def _certify(names: Sequence[str], folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a certificate for these names, and a client's that trusts it."""
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
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
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


async def test_threat_13_tls_and_host_speak_of_the_name_while_the_address_is_pinned(tmp_path: Path) -> None:
    tls, trust = _certify(["one.example", "two.example"], tmp_path)
    said: list[str | None] = []

    def note(_connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        said.append(name)

    tls.sni_callback = note
    names = Names(["127.0.0.1"])
    vouched = frozenset({"one.example", "two.example", "three.example"})
    async with peer(tls=tls) as there, client(allow_private=vouched, resolver=names, verify=trust) as http:
        for host in ("one.example", "two.example", "one.example"):
            await http.get(f"https://{host}:{there.port}/")
        with pytest.raises(Fault) as caught:  # the certificate is not for this name
            await http.get(f"https://three.example:{there.port}/")
    # Two names on one address share no connection; one name uses its own again.
    assert said == ["one.example", "two.example", "three.example"]
    assert [head.split(b"\r\n")[1] for head in there.heads][:2] == [
        f"Host: {host}:{there.port}".encode() for host in ("one.example", "two.example")
    ]
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_a_certificate_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    tls, _ = _certify(["one.example"], tmp_path)
    vouched = frozenset({"one.example"})
    async with peer(tls=tls) as there, client(allow_private=vouched, resolver=Names(["127.0.0.1"])) as http:
        with pytest.raises(Fault) as caught:
            await http.get(f"https://one.example:{there.port}/")
    assert caught.value.kind is Kind.UNAVAILABLE
    assert there.heads == []
