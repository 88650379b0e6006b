"""A remote server that wants a token: the gateway gets one of its own, from a real token endpoint on a socket."""

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator
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
from gateway.outbound import client
from gateway.settings.backends import OAuthClient
from gateway.upstream.health import LoadError
from gateway.upstream.http.credentials import ClientCredentials, ClientCredentialsGrant

SECRET = "s3cret/+ with blanks"
Json = dict[str, Any]


class Far:
    """A token endpoint and an MCP server of 2026-07-28 that takes only the tokens it knows."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.good: set[str] = set()
        self.expires_in: int | None = 3600
        self.refusal: Json | None = None
        self.port = 0
        self.calls = 0
        self.unauthorised = 0
        self._numbers = itertools.count(1)

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
        if headers.get("authorization", "").removeprefix("Bearer ") not in self.good:
            self.unauthorised += 1
            return 401, {}
        return self._rpc(msgspec.json.decode(body))

    def _token(self, headers: dict[str, str], body: bytes) -> tuple[int, Json]:
        self.asked.append((headers.get("authorization", ""), parse_qs(body.decode())))
        if self.refusal is not None:
            return 401, self.refusal
        token = f"tok-{next(self._numbers)}-secret"
        self.good.add(token)
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
async def serving() -> AsyncIterator[Far]:
    far = Far()
    server = await asyncio.start_server(far, "127.0.0.1", 0)
    far.port = server.sockets[0].getsockname()[1]
    try:
        yield far
    finally:
        server.close()


def entry(far: Far, **oauth: Any) -> Json:
    given = {"client_id": "gate house", "client_secret": SECRET, **oauth}
    if "issuer" not in given:
        given["token_url"] = f"{far.base}/token"
    return {"url": f"{far.base}/mcp", "allow_private": True, "oauth": given}


async def test_a_token_is_fetched_once_and_sent_with_every_call(start: Any) -> None:
    async with serving() as far, start(backends={"far": entry(far, scope="a b", resource="urn:x")}) as gateway:
        answers = await asyncio.gather(*(gateway.call("far_work") for _ in range(8)))
        assert [answer["result"]["content"][0]["text"] for answer in answers] == ["done"] * 8
        (sent, form) = far.asked[0]
        assert len(far.asked) == 1
        assert base64.b64decode(sent.removeprefix("Basic ")) == b"gate+house:s3cret%2F%2B+with+blanks"
        assert form == {"grant_type": ["client_credentials"], "scope": ["a b"], "resource": ["urn:x"]}


async def test_an_issuers_metadata_tell_where_tokens_are_and_the_secret_may_go_in_the_form(start: Any) -> None:
    async with serving() as far:
        given = entry(far, issuer=f"{far.base}/realm", method="post")
        async with start(backends={"far": given}) as gateway:
            assert (await gateway.call("far_work"))["result"]["content"][0]["text"] == "done"
            (sent, form) = far.asked[0]
            assert sent == ""
            assert (form["client_id"], form["client_secret"]) == (["gate house"], [SECRET])
            assert form["resource"] == [f"{far.base}/mcp"]


async def test_a_key_proves_to_the_issuer_who_asks_and_is_never_sent(start: Any, tmp_path: Path) -> None:
    key = ECKey.generate_key("P-256")
    (tmp_path / "client.pem").write_bytes(key.as_pem(private=True))
    async with serving() as far:
        given = entry(far, issuer=f"{far.base}/realm", client_secret=None, client_key_file=str(tmp_path / "client.pem"))
        async with start(backends={"far": given}) as gateway:
            assert (await gateway.call("far_work"))["result"]["content"][0]["text"] == "done"
            (sent, form) = far.asked[0]
            assert sent == ""
            assert form.keys() == {"grant_type", "resource", "client_id", "client_assertion_type", "client_assertion"}
            claims = jwt.decode(form["client_assertion"][0], key, ["ES256"]).claims
            assert (claims["iss"], claims["sub"], claims["aud"]) == ("gate house", "gate house", f"{far.base}/realm")


@pytest.mark.parametrize(
    ("oauth", "words"),
    [
        ({"client_key": "k"}, "give either client_secret or client_key"),
        ({"client_secret": None}, "give either client_secret or client_key"),
        ({"client_secret": None, "client_key": "k", "method": "post"}, "a key is never sent"),
    ],
    ids=["both", "neither", "a way to send it"],
)
def test_a_client_has_a_secret_or_a_key(oauth: Json, words: str) -> None:
    given = {"token_url": "https://login.example/token", "client_id": "a", "client_secret": SECRET}
    with pytest.raises(ValidationError, match=words):
        OAuthClient.model_validate(given | oauth)


async def test_a_key_that_is_none_is_named_at_the_start_and_not_shown(start: Any) -> None:
    async with serving() as far:
        given = entry(far, client_secret=None, client_key="s3cret")
        with pytest.raises(LoadError, match=r"backends.far.oauth.client_key: not a private key") as told:
            async with start(backends={"far": given}):
                pass
    assert "s3cret" not in str(told.value)


async def test_a_token_is_replaced_shortly_before_it_expires_and_asked_for_once_by_many() -> None:
    now = 0.0
    async with serving() as far:
        far.expires_in = 600
        grant = ClientCredentialsGrant(client_id="a", client_secret=lambda: SECRET, token_url=f"{far.base}/token")
        credential = ClientCredentials("far", grant, client(allow_private=True), lambda: now)
        first = await credential.token()
        now = 569.0
        assert await credential.token() == first
        now = 570.0
        assert len(set(await asyncio.gather(*(credential.token() for _ in range(5)))) - {first}) == 1
        assert len(far.asked) == 2
        await credential.close()


async def test_a_token_that_is_refused_is_replaced_once_and_no_more(start: Any) -> None:
    async with serving() as far, start(backends={"far": entry(far)}) as gateway:
        await gateway.call("far_work")
        far.good.clear()
        assert (await gateway.call("far_work"))["result"]["content"][0]["text"] == "done"
        assert (len(far.asked), far.calls) == (2, 2)
        far.good.clear()
        far.expires_in = 0
        far._numbers = itertools.repeat(0)  # what it gives is refused again and again
        far.good = Deaf()
        failed = (await gateway.call("far_work"))["result"]
        assert failed["isError"]
        assert (len(far.asked), far.calls) == (3, 2)


class Deaf(set[str]):
    def add(self, token: str) -> None:
        """Nothing is good."""


async def test_no_secret_and_no_token_is_in_an_error_or_the_log(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="gatehouse")
    async with serving() as far:
        far.refusal = {"error": "invalid_client", "error_description": f"bad secret {SECRET}"}
        async with start(backends={"far": entry(far)}) as gateway:
            assert "invalid_client" in caplog.text
            far.refusal = None
            backend = gateway.house._backends.get("far")
            await gateway.house.catalogue.refresh(backend)
            assert (await gateway.call("far_work"))["result"]["content"][0]["text"] == "done"
            far.good.clear()
            far.refusal = {"error": "invalid_client", "error_description": f"bad secret {SECRET}"}
            failed = await gateway.call("far_work")
            assert failed["result"]["structuredContent"]["error"]["kind"] == "unavailable"
            everything = f"{failed}{caplog.text}{gateway.log.getvalue()}"
            for secret in (SECRET, "s3cret", "tok-", base64.b64encode(b"gate+house").decode()[:12]):
                assert secret not in everything


async def test_threat_13_a_token_endpoint_in_a_private_network_is_refused_unless_the_entry_says_so() -> None:
    async with serving() as far:
        grant = ClientCredentialsGrant(client_id="a", client_secret=lambda: SECRET, token_url=f"{far.base}/token")
        credential = ClientCredentials("far", grant, client())
        with pytest.raises(Fault, match="could not get a token"):
            await credential.token()
        await credential.close()
        assert far.asked == []
