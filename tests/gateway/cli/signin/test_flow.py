"""Client-side checks of the OAuth flow, and the token store."""

import time
from pathlib import Path

import httpx2
import pytest
from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import OAuthMetadata

from gateway.cli.signin.callback import CallbackResult
from gateway.cli.signin.credential import AuthChallenge, ClientRegistration
from gateway.cli.signin.flow import FlowError, OAuthFlow
from gateway.cli.signin.token_store import StoredTokens, TokenStore, stale_at

REDIRECT = "http://127.0.0.1:1/callback"


@pytest.mark.parametrize(
    ("server", "address", "safe"),
    [
        ("http://mcp.example", "https://login.example/token", True),
        ("http://mcp.example", "http://mcp.example:2/token", True),
        ("http://localhost:1", "http://127.0.0.1:2/token", True),
        ("http://localhost:1", "https://login.example/token", True),
        ("http://localhost:1", "http://login.example/token", False),
        ("https://mcp.example", "http://login.example/token", False),
        ("https://mcp.example", "http://127.0.0.1:2/token", False),
        ("https://mcp.example", "https://localhost/token", False),
        ("https://mcp.example", "ftp://mcp.example/token", False),
    ],
)
async def test_redirects_to_plain_http_or_loopback_ports_are_rejected(server: str, address: str, safe: bool) -> None:
    flow = OAuthFlow(f"{server}/mcp", ClientRegistration(), None, REDIRECT)
    if safe:
        flow._check_address(address)
        return
    with pytest.raises(OAuthFlowError, match="which is not safe"):
        await flow._send(httpx2.Request("POST", address))


async def test_invalid_metadata_url_is_a_flow_error() -> None:
    flow = OAuthFlow("https://mcp.example/mcp", ClientRegistration(), None, REDIRECT)
    challenge = AuthChallenge(401, 'Bearer resource_metadata="https://127.0.0.1:none/"')
    with pytest.raises(FlowError, match=r"^its OAuth metadata is invalid$"):
        await flow.sign_in(challenge, lambda address: None, _never)


async def _never(state: str) -> CallbackResult:
    raise AssertionError("no browser was opened")


@pytest.mark.parametrize("methods", [None, ["plain"]])
async def test_authorization_server_without_pkce_is_rejected(methods: list[str] | None) -> None:
    flow = OAuthFlow("https://mcp.example/mcp", ClientRegistration(), None, REDIRECT)
    flow.context.oauth_metadata = OAuthMetadata.model_validate(
        {
            "issuer": "https://login.example",
            "authorization_endpoint": "https://login.example/authorize",
            "token_endpoint": "https://login.example/token",
            "code_challenge_methods_supported": methods,
        }
    )
    with pytest.raises(OAuthFlowError, match="does not support PKCE"):
        await flow._perform_authorization()


@pytest.mark.parametrize(
    ("methods", "chosen"),
    [
        (None, "client_secret_basic"),
        (["client_secret_post", "client_secret_basic"], "client_secret_basic"),
        (["client_secret_post"], "client_secret_post"),
    ],
)
async def test_client_secret_uses_the_advertised_method_and_is_not_stored(
    methods: list[str] | None, chosen: str
) -> None:
    metadata = {
        "issuer": "https://login.example",
        "authorization_endpoint": "https://login.example/authorize",
        "token_endpoint": "https://login.example/token",
        "token_endpoint_auth_methods_supported": methods,
    }
    stored = StoredTokens(access_token="a", client={"client_id": "registered"}, metadata=metadata)
    flow = OAuthFlow("https://mcp.example/mcp", ClientRegistration("registered", "s3cret"), stored, REDIRECT)
    await flow._initialize()
    flow._choose_method()
    assert flow.context.client_info is not None
    assert flow.context.client_info.token_endpoint_auth_method == chosen
    assert "s3cret" not in str(flow._stored_tokens().client)


def test_token_store_ignores_invalid_files_and_separates_servers(tmp_path: Path) -> None:
    store = TokenStore(tmp_path, "https://mcp.example/mcp/")
    for text in ("", "{", "[]", "{}", '{"access_token": "a", "of": "tomorrow"}'):
        store.file.write_text(text)
        assert store.read() is None
    store.write(StoredTokens(access_token="a"))
    assert TokenStore(tmp_path, "HTTPS://MCP.example/mcp").read() == StoredTokens(access_token="a")
    assert TokenStore(tmp_path, "https://mcp.example/mcp/lab").read() is None
    assert TokenStore(tmp_path, "http://mcp.example/mcp").read() is None


def test_token_is_stale_shortly_before_it_expires() -> None:
    now = time.time()
    assert stale_at(now, 600) == now + 570
    assert stale_at(now, 10) == now + 9
    assert stale_at(now, None) is None
    assert not StoredTokens(access_token="a").is_stale(now)
    assert StoredTokens(access_token="a", stale_at=now).is_stale(now)


@pytest.mark.parametrize(
    ("registration", "problem"),
    [
        (ClientRegistration(), ""),
        (ClientRegistration("a", "b"), ""),
        (ClientRegistration(document="https://a.example/client.json"), ""),
        (ClientRegistration(secret="b"), "--client-secret requires --client-id"),
        (ClientRegistration("a", document="https://a.example/client.json"), "not both"),
        (ClientRegistration(document="http://a.example/client.json"), "an https URL with a path"),
        (ClientRegistration(document="https://a.example"), "an https URL with a path"),
    ],
)
def test_invalid_option_combinations_are_reported(registration: ClientRegistration, problem: str) -> None:
    assert problem in registration.problem() if problem else registration.problem() == ""
