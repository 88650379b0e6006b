"""OAuth with the Python and TypeScript SDK clients: discovery, registration, consent, refresh and step-up."""

import asyncio
import json
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tests.peers import npm
from tests.peers.oauth_flow import CALLBACK, BrowserUser

Json = dict[str, Any]
BACKENDS = {"lab": {"module": "tests.flows.fixtures.writer"}}
FREE: Json = {"registration_rate": "1000/minute", "authorize_rate": "10000/minute"}
READ: Json = {**FREE, "scopes": ["mcp:list", "mcp:call"]}


class Memory:
    """Token storage of an SDK client."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        self.received: list[OAuthToken] = []
        self.auth: OAuthClientProvider | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens
        self.received.append(tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@asynccontextmanager
async def signed_in(
    gateway: Any, person: BrowserUser, memory: Memory, mode: str, document: str | None = None, path: str = "/mcp"
) -> AsyncIterator[Client]:
    """Open an SDK client with only the URL; `person` signs in with a browser."""
    arrived: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def open_browser(url: str) -> None:
        await arrived.put(await person.visit(url))

    async def wait_for_callback() -> AuthorizationCodeResult:
        response = await arrived.get()
        return AuthorizationCodeResult(code=response["code"], state=response["state"], iss=response["iss"])

    metadata = OAuthClientMetadata(client_name="Python SDK", redirect_uris=[CALLBACK])  # type: ignore[list-item]
    auth = OAuthClientProvider(
        gateway.base + path, metadata, memory, open_browser, wait_for_callback, client_metadata_url=document
    )
    memory.auth = auth
    async with httpx2.AsyncClient(auth=auth, timeout=30, verify=False) as http:
        transport = streamable_http_client(gateway.base + path, http_client=http)
        async with Client(transport, mode=mode, cache=None) as client:
            yield client


async def owner(gateway: Any) -> BrowserUser:
    return BrowserUser(code=await gateway.app.identity.create_sign_in_code())


async def test_python_client_discovers_registers_signs_in_and_calls(start: Any, era: str) -> None:
    async with start(backends=BACKENDS, auth=FREE) as gateway:
        memory = Memory()
        async with signed_in(gateway, await owner(gateway), memory, era) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {"lab_look", "lab_save"}
            result = await client.call_tool("lab_save", {"text": "x"})
            assert result.content[0].text == "saved x"  # type: ignore[union-attr]
    assert memory.client is not None
    assert (memory.client.client_id or "").startswith("gthc_")


async def test_python_client_requests_more_scopes_when_a_tool_requires_them(start: Any, era: str) -> None:
    async with start(backends=BACKENDS, auth=READ) as gateway:
        memory, person = Memory(), await owner(gateway)
        async with signed_in(gateway, person, memory, era) as client:
            assert not (await client.call_tool("lab_look", {})).is_error
            result = await client.call_tool("lab_save", {"text": "x"})
            assert result.content[0].text == "saved x"  # type: ignore[union-attr]
    first, second = (set((tokens.scope or "").split()) for tokens in memory.received)
    assert first == {"mcp:list", "mcp:call"}
    assert second == {"mcp:list", "mcp:call", "mcp:call:write"}
    assert sum("Allow Python SDK?" in page.text for page in person.pages) == 2


async def test_python_client_refreshes_without_user_interaction(start: Any) -> None:
    async with start(backends=BACKENDS, auth=FREE) as gateway:
        memory, person = Memory(), await owner(gateway)
        async with signed_in(gateway, person, memory, "2026-07-28") as client:
            await client.call_tool("lab_look", {})
            pages, auth = len(person.pages), memory.auth
            assert auth is not None
            auth.context.token_expiry_time = time.time() - 1  # as if ten minutes had passed
            assert not (await client.call_tool("lab_look", {})).is_error
        first, second = memory.received
        assert first.refresh_token != second.refresh_token
        assert len(person.pages) == pages, "no page was shown again"


async def test_token_for_one_endpoint_is_rejected_by_another(start: Any) -> None:
    async with start(backends={**BACKENDS, "core": {"module": "backends.core"}}, auth=FREE) as gateway:
        memory = Memory()
        async with signed_in(gateway, await owner(gateway), memory, "2026-07-28", path="/mcp/lab") as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {"look", "save"}
        assert memory.tokens is not None
        holder = gateway.as_(memory.tokens.access_token)
        assert (await holder.post("tools/list", path="/mcp/core")).status_code == 401


# ---- clients with a metadata document


@asynccontextmanager
async def documented(folder: Path) -> AsyncIterator[tuple[str, Path, Json]]:
    """Serve a client metadata document over TLS on loopback; yield its URL, the CA file and the content."""
    tls, authority = _create_certificate(folder)
    content: Json = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps(content).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        writer.write(head % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/client.json"
    content |= {"client_id": address, "client_name": "Documented", "redirect_uris": [CALLBACK]}
    try:
        yield address, authority, content
    finally:
        server.close()


def _create_certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    authority, both = folder / "authority.pem", folder / "server.pem"
    authority.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    both.write_bytes(authority.read_bytes() + key.private_bytes(serialization.Encoding.PEM, form, plain))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(both)
    return tls, authority


async def test_python_client_is_identified_by_its_document(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with documented(tmp_path) as (address, authority, _):
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        auth = {**FREE, "client_documents": True, "client_document_private_hosts": ["127.0.0.1"]}
        async with start(backends=BACKENDS, auth=auth) as gateway:
            memory, person = Memory(), await owner(gateway)
            async with signed_in(gateway, person, memory, "2026-07-28", address) as client:
                assert (await client.list_tools()).tools
            caller = await gateway.app.identity.authenticate(
                {"authorization": f"Bearer {memory.received[0].access_token}"}, ""
            )
    assert caller.client == address
    shown = "".join(page.text for page in person.pages)
    assert "Allow Documented?" in shown
    assert "127.0.0.1" in shown


# ---- the TypeScript SDK


async def run_typescript_client(gateway: Any, era: str, person: BrowserUser, document: str | None = None) -> Json:
    """Run the TypeScript client, which reads, refreshes and writes with one more scope; return its results."""
    script = Path(npm.__file__).parent / "oauth_v2.mjs"
    more = () if document is None else (document,)
    command = [str(npm.NODE), str(script), str(npm.install_package(npm.CLIENT)), gateway.url, era, *more]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    results: Json = {}
    async with asyncio.timeout(60):
        while line := await process.stdout.readline():
            line_json = json.loads(line)
            if "open" in line_json:
                response = await person.visit(line_json["open"])
                process.stdin.write(json.dumps(response).encode() + b"\n")
                await process.stdin.drain()
            else:
                results |= line_json
        assert await process.wait() == 0, (await process.stderr.read()).decode() if process.stderr else ""
    return results


def _assert_complete(results: Json) -> None:
    assert results["tools"] == ["lab_look", "lab_save"]
    assert results["looked"] == "looked"
    assert results["saved"] == "saved x"
    assert results["refreshed"] is True
    assert set(results["scope"].split()) == {"mcp:list", "mcp:call", "mcp:call:write"}


@pytest.mark.parametrize("era", ["2026-07-28", "handshake"])
async def test_typescript_client_registers_signs_in_refreshes_and_requests_more_scopes(start: Any, era: str) -> None:
    async with start(backends=BACKENDS, auth=READ) as gateway:
        results = await run_typescript_client(gateway, era, await owner(gateway))
    _assert_complete(results)
    assert results["client"].startswith("gthc_")


async def test_typescript_client_is_identified_by_its_document(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with documented(tmp_path) as (address, authority, _):
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        auth = {**READ, "client_documents": True, "client_document_private_hosts": ["127.0.0.1"]}
        async with start(backends=BACKENDS, auth=auth) as gateway:
            person = await owner(gateway)
            results = await run_typescript_client(gateway, "2026-07-28", person, address)
    _assert_complete(results)
    assert results["client"] == address
    assert any("Allow Documented?" in page.text for page in person.pages)
