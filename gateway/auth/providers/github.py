"""Sign-in at GitHub, which speaks OAuth 2 without OpenID Connect: the user comes from its REST API.

The groups of a user are the organisations (`acme`) and teams (`acme/developers`).
"""

from typing import Any, Final, cast
from urllib.parse import urlencode

import httpx

from gateway.auth.providers.identity import LogoutRequest, ProviderConfig, ProviderIdentity, SignInRefused
from gateway.auth.providers.oidc import parse_token_response
from gateway.contract import Json
from gateway.errors import Fault, Kind

_GITHUB: Final = "https://github.com"
_PAGE_SIZE: Final = 100
_MAX_PAGES: Final = 10


class GithubProvider:
    """`gateway.auth.providers.identity.IdentityProvider` for GitHub and GitHub Enterprise Server."""

    def __init__(self, config: ProviderConfig, http: httpx.AsyncClient, redirect_uri: str) -> None:
        self.config = config
        self._http = http
        self._redirect_uri = redirect_uri
        issuer = config.issuer.rstrip("/")
        self._api = "https://api.github.com" if issuer == _GITHUB else f"{issuer}/api/v3"
        self._oauth = f"{issuer}/login/oauth"

    async def authorization_url(self, *, state: str, nonce: str, challenge: str, prompt: str) -> str:
        query = {
            "client_id": self.config.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(self.config.scopes),
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **({"prompt": "select_account"} if prompt else {}),
        }
        return f"{self._oauth}/authorize?{urlencode(query)}"

    async def check_issuer(self, received: str | None) -> None:
        # GitHub's own value is an address below the issuer; the redirect address of its own separates the providers.
        if received is not None and received not in (self.config.issuer, self._oauth):
            raise SignInRefused("The response comes from another identity provider. Start again.")

    async def exchange(self, code: str, *, verifier: str, nonce: str) -> ProviderIdentity:
        tokens = await self._request_tokens({"code": code, "code_verifier": verifier})
        return await self._identity(tokens)

    async def recheck(self, issuer: str, subject: str, credential: Json) -> ProviderIdentity:
        """Ask with the refresh token or, for an OAuth app without one, with the access token."""
        tokens = credential
        if "refresh_token" in credential:
            form = {"grant_type": "refresh_token", "refresh_token": str(credential["refresh_token"])}
            tokens = await self._request_tokens(form)
        found = await self._identity(tokens)
        if (found.issuer, found.subject) != (issuer, subject):
            raise SignInRefused("The provider answered for another user.")
        return found

    async def verify_logout(self, token: str) -> LogoutRequest:
        raise SignInRefused("GitHub has no back-channel logout.")

    async def _request_tokens(self, form: dict[str, str]) -> Json:
        config = self.config
        client = {"client_id": config.client_id, "client_secret": config.client_secret}
        sent = {**client, **form, "redirect_uri": self._redirect_uri}
        answer = await self._http.post(f"{self._oauth}/access_token", data=sent, headers={"Accept": "application/json"})
        return parse_token_response(config, _with_standard_error(answer))

    async def _identity(self, tokens: Json) -> ProviderIdentity:
        token = str(tokens.get("access_token", ""))
        user = await self._get(token, "/user")
        described = cast("Json", user) if isinstance(user, dict) else {}
        number: Any = described.get("id")
        if not isinstance(number, int) or isinstance(number, bool):
            raise Fault(Kind.UNAVAILABLE, f"{self.config.label} did not name the user. Try again later.")
        email = await self._verified_email(token)
        domains = self.config.allowed_domains
        if domains and email.rpartition("@")[2].lower() not in domains:
            raise SignInRefused(f"Your account is not of an allowed domain. {self.config.contact}".rstrip())
        refresh: Any = tokens.get("refresh_token")
        return ProviderIdentity(
            issuer=self.config.issuer,
            subject=str(number),
            name=str(described.get("login") or "")[:200],
            email=email,
            groups=await self._groups(token),
            scim_value=str(number),
            credential={"refresh_token": refresh} if isinstance(refresh, str) else {"access_token": token},
        )

    async def _verified_email(self, token: str) -> str:
        for entry in await self._pages(token, "/user/emails"):
            if entry.get("primary") is True and entry.get("verified") is True:
                return str(entry.get("email", ""))[:254]
        return ""

    async def _groups(self, token: str) -> frozenset[str]:
        groups = {str(entry["login"]) for entry in await self._pages(token, "/user/orgs") if "login" in entry}
        for entry in await self._pages(token, "/user/teams"):
            organisation: Any = entry.get("organization")
            if isinstance(organisation, dict) and "slug" in entry:
                groups.add(f"{cast('Json', organisation).get('login')}/{entry['slug']}")
        return frozenset(groups)

    async def _pages(self, token: str, path: str) -> list[Json]:
        found: list[Json] = []
        for page in range(1, _MAX_PAGES + 1):
            listed = await self._get(token, f"{path}?per_page={_PAGE_SIZE}&page={page}")
            entries = cast("list[Any]", listed) if isinstance(listed, list) else []
            found += [cast("Json", entry) for entry in entries if isinstance(entry, dict)]
            if len(entries) < _PAGE_SIZE:
                break
        return found

    async def _get(self, token: str, path: str) -> Any:
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
        answer = await self._http.get(self._api + path, headers=headers)
        if answer.status_code == 401:
            raise SignInRefused(f"{self.config.label} no longer answers for this user. Sign in again.")
        if answer.status_code in (403, 404) and path.startswith(("/user/emails", "/user/teams", "/user/orgs")):
            if "0" in answer.headers.get_list("x-ratelimit-remaining"):
                raise Fault(Kind.UNAVAILABLE, f"{self.config.label} limits the gateway's requests. Try again later.")
            return []  # the scope was not granted
        if answer.status_code != 200:
            raise Fault(Kind.UNAVAILABLE, f"{self.config.label} answered with status {answer.status_code}.")
        try:
            return answer.json()
        except (ValueError, RecursionError) as exc:
            raise Fault(Kind.UNAVAILABLE, f"{self.config.label} sent an invalid answer.") from exc


def _with_standard_error(answer: httpx.Response) -> httpx.Response:
    """Name GitHub's errors about codes and refresh tokens as the standard does."""
    for error in (b"bad_verification_code", b"bad_refresh_token"):
        if error in answer.content:
            return httpx.Response(400, json={"error": "invalid_grant"})
    return answer
