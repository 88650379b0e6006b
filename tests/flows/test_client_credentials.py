"""Client credentials for a remote server: the gateway gets tokens from a real token endpoint on a socket."""

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey
from pydantic import ValidationError

from gateway.errors import Fault
from gateway.outbound import create_client
from gateway.settings.backends import OAuthClient
from gateway.upstream.health import LoadError
from gateway.upstream.http.credentials import ClientCredentials, ClientCredentialsGrant

SECRET = "s3cret/+ with blanks"
Json = dict[str, Any]


class ProtectedServer:
    """A token endpoint and an MCP server of 2026-07-28 that accepts only valid tokens."""

    def __init__(self) -> None:
        self.token_requests: list[tuple[str, dict[str, list[str]]]] = []
        self.valid_tokens: set[str] = set()
        self.expires_in: int | None = 3600
        self.token_error: Json | None = None
        self.port = 0
        self.calls = 0
        self.unauthorised = 0
        self._numbers: Iterator[int] = itertools.count(1)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                status, answer = self._answer(first.split()[1], headers, body)
                data = msgspec.json.encode(answer)
                kind = "application/json"
                writer.write(
                    f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n".encode()
                    + data
                )
        except (asyncio.IncompleteReadError, ConnectionResetError):
            writer.close()

    def _answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Json]:
        if path == "/.well-known/oauth-authorization-server/realm":
            return 200, {"issuer": f"{self.base}/realm", "token_endpoint": f"{self.base}/token"}
        if path == "/token":
            return self._token(headers, body)
        if headers.get("authorization", "").removeprefix("Bearer ") not in self.valid_tokens:
            self.unauthorised += 1
            return 401, {}
        return self._rpc(msgspec.json.decode(body))

    def _token(self, headers: dict[str, str], body: bytes) -> tuple[int, Json]:
        self.token_requests.append((headers.get("authorization", ""), parse_qs(body.decode())))
        if self.token_error is not None:
            return 401, self.token_error
        token = f"tok-{next(self._numbers)}-secret"
        self.valid_tokens.add(token)
        life = {} if self.expires_in is None else {"expires_in": self.expires_in}
        return 200, {"access_token": token, "token_type": "Bearer", **life}

    def _rpc(self, message: Json) -> tuple[int, Json]:
        result: Json
        match message["method"]:
            case "server/discover":
                result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            case "tools/list":
                result = {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                self.calls += 1
                result = {"content": [{"type": "text", "text": "done"}]}
            case _:
                return 200, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}
        return 200, {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}


@asynccontextmanager
async def serving() -> AsyncIterator[ProtectedServer]:
    far = ProtectedServer()
    server = await asyncio.start_server(far, "127.0.0.1", 0)
    far.port = server.sockets[0].getsockname()[1]
    try:
        yield far
    finally:
        server.close()


def entry(far: ProtectedServer, **oauth: Any) -> Json:
    settings = {"client_id": "gate house", "client_secret": SECRET, **oauth}
    if "issuer" not in settings:
        settings["token_url"] = f"{far.base}/token"
    return {"url": f"{far.base}/mcp", "allow_private": True, "oauth": settings}


async def test_token_is_fetched_once_and_sent_with_every_call(start: Any) -> None:
    async with serving() as far, start(backends={"far": entry(far, scope="a b", resource="urn:x")}) as gateway:
        answers = await asyncio.gather(*(gateway.call("far_work") for _ in range(8)))
        assert [answer["result"]["content"][0]["text"] for answer in answers] == ["done"] * 8
        (sent, form) = far.token_requests[0]
        assert len(far.token_requests) == 1
        assert base64.b64decode(sent.removeprefix("Basic ")) == b"gate+house:s3cret%2F%2B+with+blanks"
        assert form == {"grant_type": ["client_credentials"], "scope": ["a b"], "resource": ["urn:x"]}


async def test_token_endpoint_is_discovered_and_secret_is_sent_in_the_form(start: Any) -> None:
    async with serving() as far:
        settings = entry(far, issuer=f"{far.base}/realm", method="post")
        async with start(backends={"far": settings}) as gateway:
            assert (await gateway.call("far_work"))["result"]["content"][0]["text"] == "done"
            (sent, form) = far.token_requests[0]
            assert sent == ""
            assert (form["client_id"], form["client_secret"]) == (["gate house"], [SECRET])
            assert form["resource"] == [f"{far.base}/mcp"]


async def test_client_key_signs_an_assertion_and_is_never_sent(start: Any, tmp_path: Path) -> None:
    key = ECKey.generate_key("P-256")
    (tmp_path / "client.pem").write_bytes(key.as_pem(private=True))
    async with serving() as far:
        settings = entry(
            far, issuer=f"{far.base}/realm", client_secret=None, client_key_file=str(tmp_path / "client.pem")
        )
        async with start(backends={"far": settings}) as gateway:
            assert (await gateway.call("far_work"))["result"]["content"][0]["text"] == "done"
            (sent, form) = far.token_requests[0]
            assert sent == ""
            assert form.keys() == {"grant_type", "resource", "client_id", "client_assertion_type", "client_assertion"}
            claims = jwt.decode(form["client_assertion"][0], key, ["ES256"]).claims
            assert (claims["iss"], claims["sub"], claims["aud"]) == ("gate house", "gate house", f"{far.base}/realm")


@pytest.mark.parametrize(
    ("oauth", "message"),
    [
        ({"client_key": "k"}, "give either client_secret or client_key"),
        ({"client_secret": None}, "give either client_secret or client_key"),
        ({"client_secret": None, "client_key": "k", "method": "post"}, "applies to client_secret only"),
    ],
    ids=["both", "neither", "method with key"],
)
def test_client_needs_either_a_secret_or_a_key(oauth: Json, message: str) -> None:
    settings = {"token_url": "https://login.example/token", "client_id": "a", "client_secret": SECRET}
    with pytest.raises(ValidationError, match=message):
        OAuthClient.model_validate(settings | oauth)


async def test_invalid_client_key_fails_the_start_without_being_shown(start: Any) -> None:
    async with serving() as far:
        settings = entry(far, client_secret=None, client_key="s3cret")
        with pytest.raises(LoadError, match=r"backends.far.oauth.client_key: not a private key") as error:
            async with start(backends={"far": settings}):
                pass
    assert "s3cret" not in str(error.value)


async def test_concurrent_requests_share_one_renewal_shortly_before_expiry() -> None:
    now = 0.0
    async with serving() as far:
        far.expires_in = 600
        grant = ClientCredentialsGrant(client_id="a", client_secret=lambda: SECRET, token_url=f"{far.base}/token")
        credential = ClientCredentials("far", grant, create_client(allow_private=True), lambda: now)
        first = await credential.token()
        now = 569.0
        assert await credential.token() == first
        now = 570.0
        assert len(set(await asyncio.gather(*(credential.token() for _ in range(5)))) - {first}) == 1
        assert len(far.token_requests) == 2
        await credential.close()


async def test_rejected_token_is_replaced_once(start: Any) -> None:
    async with serving() as far, start(backends={"far": entry(far)}) as gateway:
        await gateway.call("far_work")
        far.valid_tokens.clear()
        assert (await gateway.call("far_work"))["result"]["content"][0]["text"] == "done"
        assert (len(far.token_requests), far.calls) == (2, 2)
        far.valid_tokens.clear()
        far.expires_in = 0
        far._numbers = itertools.repeat(0)  # every new token is rejected
        far.valid_tokens = NoTokens()
        failed = (await gateway.call("far_work"))["result"]
        assert failed["isError"]
        assert (len(far.token_requests), far.calls) == (3, 2)


class NoTokens(set[str]):
    def add(self, token: str) -> None:
        """Accept no token."""


async def test_errors_and_log_contain_no_secret_and_no_token(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="gatehouse")
    async with serving() as far:
        far.token_error = {"error": "invalid_client", "error_description": f"bad secret {SECRET}"}
        async with start(backends={"far": entry(far)}) as gateway:
            assert "invalid_client" in caplog.text
            far.token_error = None
            backend = gateway.app._backends.get("far")
            await gateway.app.catalogue.refresh(backend)
            assert (await gateway.call("far_work"))["result"]["content"][0]["text"] == "done"
            far.valid_tokens.clear()
            far.token_error = {"error": "invalid_client", "error_description": f"bad secret {SECRET}"}
            failed = await gateway.call("far_work")
            assert failed["result"]["structuredContent"]["error"]["kind"] == "unavailable"
            everything = f"{failed}{caplog.text}{gateway.log.getvalue()}"
            for secret in (SECRET, "s3cret", "tok-", base64.b64encode(b"gate+house").decode()[:12]):
                assert secret not in everything


async def test_threat_13_token_endpoint_in_a_private_network_is_rejected_by_default() -> None:
    async with serving() as far:
        grant = ClientCredentialsGrant(client_id="a", client_secret=lambda: SECRET, token_url=f"{far.base}/token")
        credential = ClientCredentials("far", grant, create_client())
        with pytest.raises(Fault, match="could not get a token"):
            await credential.token()
        await credential.close()
        assert far.token_requests == []
