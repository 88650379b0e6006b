"""What the flow refuses by itself, without a server to refuse it."""

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
async def test_nobody_sends_the_user_to_plain_http_or_to_ports_of_their_own_machine(
    server: str, address: str, safe: bool
) -> None:
    flow = OAuthFlow(f"{server}/mcp", ClientRegistration(), None, REDIRECT)
    if safe:
        flow._check_address(address)
        return
    with pytest.raises(OAuthFlowError, match="which is not safe"):
        await flow._sent(httpx2.Request("POST", address))


async def test_an_address_that_is_none_is_words_and_no_traceback() -> None:
    flow = OAuthFlow("https://mcp.example/mcp", ClientRegistration(), None, REDIRECT)
    challenge = AuthChallenge(401, 'Bearer resource_metadata="https://127.0.0.1:none/"')
    with pytest.raises(FlowError, match=r"^what its servers say of themselves cannot be read$"):
        await flow.sign_in(challenge, lambda address: None, _never)


async def _never(state: str) -> CallbackResult:
    raise AssertionError("nobody was sent anywhere")


@pytest.mark.parametrize("methods", [None, ["plain"]])
async def test_an_authorization_server_without_pkce_is_refused(methods: list[str] | None) -> None:
    flow = OAuthFlow("https://mcp.example/mcp", ClientRegistration(), None, REDIRECT)
    flow.context.oauth_metadata = OAuthMetadata.model_validate(
        {
            "issuer": "https://login.example",
            "authorization_endpoint": "https://login.example/authorize",
            "token_endpoint": "https://login.example/token",
            "code_challenge_methods_supported": methods,
        }
    )
    with pytest.raises(OAuthFlowError, match="does not know PKCE"):
        await flow._perform_authorization()


@pytest.mark.parametrize(
    ("methods", "chosen"),
    [
        (None, "client_secret_basic"),
        (["client_secret_post", "client_secret_basic"], "client_secret_basic"),
        (["client_secret_post"], "client_secret_post"),
    ],
)
async def test_a_given_clients_secret_is_sent_as_the_server_wants_it_and_is_not_kept(
    methods: list[str] | None, chosen: str
) -> None:
    metadata = {
        "issuer": "https://login.example",
        "authorization_endpoint": "https://login.example/authorize",
        "token_endpoint": "https://login.example/token",
        "token_endpoint_auth_methods_supported": methods,
    }
    kept = StoredTokens(access_token="a", client={"client_id": "desk"}, metadata=metadata)
    flow = OAuthFlow("https://mcp.example/mcp", ClientRegistration("desk", "s3cret"), kept, REDIRECT)
    await flow._initialize()
    flow._choose_method()
    assert flow.context.client_info is not None
    assert flow.context.client_info.token_endpoint_auth_method == chosen
    assert "s3cret" not in str(flow._to_keep().client)


def test_what_cannot_be_read_counts_as_nothing_and_servers_do_not_share(tmp_path: Path) -> None:
    shelf = TokenStore(tmp_path, "https://mcp.example/mcp/")
    for text in ("", "{", "[]", "{}", '{"access_token": "a", "of": "tomorrow"}'):
        shelf.file.write_text(text)
        assert shelf.read() is None
    shelf.write(StoredTokens(access_token="a"))
    assert TokenStore(tmp_path, "HTTPS://MCP.example/mcp").read() == StoredTokens(access_token="a")
    assert TokenStore(tmp_path, "https://mcp.example/mcp/lab").read() is None
    assert TokenStore(tmp_path, "http://mcp.example/mcp").read() is None


def test_a_token_is_stale_shortly_before_it_ends() -> None:
    now = time.time()
    assert stale_at(now, 600) == now + 570
    assert stale_at(now, 10) == now + 9
    assert stale_at(now, None) is None
    assert not StoredTokens(access_token="a").stale(now)
    assert StoredTokens(access_token="a", stale_at=now).stale(now)


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (ClientRegistration(), ""),
        (ClientRegistration("a", "b"), ""),
        (ClientRegistration(document="https://a.example/client.json"), ""),
        (ClientRegistration(secret="b"), "--client-secret needs --client-id"),
        (ClientRegistration("a", document="https://a.example/client.json"), "not both"),
        (ClientRegistration(document="http://a.example/client.json"), "an https address with a path"),
        (ClientRegistration(document="https://a.example"), "an https address with a path"),
    ],
)
def test_what_cannot_be_meant_is_said(program: ClientRegistration, problem: str) -> None:
    assert problem in program.problem() if problem else program.problem() == ""
