"""Sign-in at an OpenID Connect provider: authorization code flow with PKCE, rechecks and logout tokens."""

import time
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import quote_plus, urlencode

import httpx

from gateway.auth.jwks import IssuerKeys
from gateway.auth.jwt import ALGORITHMS, InvalidToken, UnverifiedToken, parse_unverified, verify_signature
from gateway.auth.providers.discovery import ProviderDocument
from gateway.auth.providers.entra import has_group_overage, read_groups
from gateway.auth.providers.identity import LogoutRequest, ProviderConfig, ProviderIdentity, SignInRefused
from gateway.auth.providers.presets import PRESETS
from gateway.auth.tokens import LEEWAY, check_lifetime, parse_audiences, text_claim, time_claim
from gateway.contract import Json
from gateway.errors import Fault, Kind

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"
_ID_TOKEN_TYPES: Final = frozenset(("", "jwt"))
_LOGOUT_TYPES: Final = frozenset(("", "jwt", "logout+jwt"))
_LOGOUT_SECONDS: Final = 300.0
"""Maximum age of a logout token."""
_REFUSALS: Final = frozenset(("invalid_grant", "access_denied", "interaction_required", "consent_required"))
"""Errors of the token endpoint that concern the user. Others concern the gateway's own registration."""


class OidcProvider:
    """`gateway.auth.providers.identity.IdentityProvider` for OpenID Connect."""

    def __init__(
        self,
        config: ProviderConfig,
        http: httpx.AsyncClient,
        redirect_uri: str,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self._http = http
        self._redirect_uri = redirect_uri
        self._clock = clock
        self._document = ProviderDocument(http, config.issuer)
        self._keys = IssuerKeys(http, config.issuer, find_document=self._document.fetch)

    async def authorization_url(self, *, state: str, nonce: str, challenge: str, prompt: str) -> str:
        document = await self._document.get()
        endpoint = endpoint_of(document, "authorization_endpoint")
        query = {
            "response_type": "code",
            "client_id": self.config.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(self.config.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **dict(PRESETS[self.config.preset].parameters),
            **({"prompt": prompt} if prompt else {}),
        }
        if "offline_access" in self.config.scopes and self.config.preset == "oidc" and not prompt:
            # OpenID Connect Core, 11: without this prompt, a provider ignores offline_access.
            query["prompt"] = "consent"
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def check_issuer(self, received: str | None) -> None:
        document = await self._document.get()
        required = document.get("authorization_response_iss_parameter_supported") is True
        if received is None and not required:
            return
        # A template of several directories names none; the ID token is checked below.
        if received != document["issuer"] and not (received and self._is_allowed_template(received)):
            raise SignInRefused("The response comes from another identity provider. Start again.")

    async def exchange(self, code: str, *, verifier: str, nonce: str) -> ProviderIdentity:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
        }
        tokens = await self._request_tokens(form)
        if not isinstance(tokens.get("id_token"), str):
            raise Fault(Kind.UNAVAILABLE, f"{self.config.label} returned no ID token. Request the scope openid.")
        claims = await self._verify_id_token(str(tokens["id_token"]))
        if claims.get("nonce") != nonce:
            raise SignInRefused("The ID token belongs to another sign-in. Start again.")
        return await self._identity(claims, tokens, {})

    async def recheck(self, issuer: str, subject: str, credential: Json) -> ProviderIdentity:
        form = {"grant_type": "refresh_token", "refresh_token": str(credential.get("refresh_token", ""))}
        tokens = await self._request_tokens(form)
        if isinstance(tokens.get("id_token"), str):
            claims = await self._verify_id_token(str(tokens["id_token"]))
        else:
            claims = await self._user_info(tokens)
            claims = {**claims, "iss": issuer}
        if (claims.get("iss"), claims.get("sub")) != (issuer, subject):
            raise SignInRefused("The provider answered for another user.")
        return await self._identity(claims, tokens, credential)

    async def verify_logout(self, token: str) -> LogoutRequest:
        """Verify a logout token (OpenID Connect Back-Channel Logout, 2.6)."""
        try:
            unverified = parse_unverified(token)
            claims = await self._verify(unverified, _LOGOUT_TYPES)
            events: Any = claims.get("events")
            if not isinstance(events, dict) or _LOGOUT_EVENT not in events or "nonce" in claims:
                raise InvalidToken
            if time_claim(claims, "iat") < self._clock() - _LOGOUT_SECONDS:
                raise InvalidToken
            text_claim(claims, "jti")
            subject = text_claim(claims, "sub") if "sub" in claims else ""
            sid = text_claim(claims, "sid") if "sid" in claims else ""
            if not subject and not sid:
                raise InvalidToken
        except InvalidToken as exc:
            raise SignInRefused("The logout token is not valid.") from exc
        return LogoutRequest(unverified.issuer, subject, sid)

    # ---- tokens

    async def _verify_id_token(self, text: str) -> Json:
        try:
            claims = await self._verify(parse_unverified(text), _ID_TOKEN_TYPES)
            check_lifetime(claims, self._clock())
            text_claim(claims, "sub")
            time_claim(claims, "iat")
            if len(parse_audiences(claims)) > 1 and claims.get("azp") != self.config.client_id:
                raise InvalidToken
        except (InvalidToken, Fault) as exc:
            if isinstance(exc, Fault) and exc.kind is not Kind.UNAUTHENTICATED:
                raise
            raise SignInRefused("The ID token is not valid. Start again.") from exc
        return claims

    async def _verify(self, token: UnverifiedToken, types: frozenset[str]) -> Json:
        if token.typ not in types:
            raise InvalidToken
        key = await self._keys.get(token.kid)
        if key is None:
            raise InvalidToken
        claims = verify_signature(token, key, ALGORITHMS)
        await self._check_token_issuer(claims)
        if self.config.client_id not in parse_audiences(claims):
            raise InvalidToken
        if time_claim(claims, "exp", self._clock()) <= self._clock() - LEEWAY:
            raise InvalidToken
        return claims

    async def _check_token_issuer(self, claims: Json) -> None:
        issuer: Any = claims.get("iss")
        expected = str((await self._document.get())["issuer"])
        if issuer != expected and not (
            isinstance(issuer, str)
            and self._is_allowed_template(issuer)
            and issuer == expected.replace("{tenantid}", str(claims.get("tid")))
        ):
            raise InvalidToken

    def _is_allowed_template(self, issuer: str) -> bool:
        """Whether this is the issuer of an allowed directory of a provider with several directories."""
        template = self._document.template
        return template is not None and any(
            issuer == template.replace("{tenantid}", each) for each in self.config.allowed_tenants
        )

    async def _request_tokens(self, form: dict[str, str]) -> Json:
        document = await self._document.get()
        endpoint = endpoint_of(document, "token_endpoint")
        form, auth = self._authenticate(form, document, endpoint)
        answer = await self._http.post(
            endpoint, data=form, auth=auth or httpx.USE_CLIENT_DEFAULT, headers={"Accept": "application/json"}
        )
        return parse_token_response(self.config, answer)

    def _authenticate(
        self, form: dict[str, str], document: Json, endpoint: str
    ) -> tuple[dict[str, str], httpx.BasicAuth | None]:
        config = self.config
        if config.client_key is not None:
            assertion = config.client_key.sign_assertion(endpoint)
            return {
                **form,
                "client_id": config.client_id,
                "client_assertion_type": ASSERTION_TYPE,
                "client_assertion": assertion,
            }, None
        supported: Any = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if not config.client_secret:
            return {**form, "client_id": config.client_id}, None
        if "client_secret_basic" not in supported and "client_secret_post" in supported:
            return {**form, "client_id": config.client_id, "client_secret": config.client_secret}, None
        return form, httpx.BasicAuth(quote_plus(config.client_id), quote_plus(config.client_secret))

    # ---- claims

    async def _identity(self, claims: Json, tokens: Json, before: Json) -> ProviderIdentity:
        config = self.config
        if config.groups_claim and read_claim(claims, config.groups_claim) is None:
            if config.preset == "entra" and has_group_overage(claims):
                groups = await read_groups(self._http, config.graph_url, str(tokens.get("access_token", "")))
                claims = {**claims, config.groups_claim: groups}
            else:
                claims = {**await self._optional_user_info(claims, tokens), **claims}
        self._check_allowed(claims)
        refresh: Any = tokens.get("refresh_token") or before.get("refresh_token")
        return ProviderIdentity(
            issuer=str(claims["iss"]),
            subject=text_claim(claims, "sub"),
            name=_display_name(claims),
            email=_verified_email(claims),
            groups=text_set(read_claim(claims, config.groups_claim)),
            scim_value=str(claims.get(config.scim_id) or "")[:256],
            sid=str(claims.get("sid") or "")[:256],
            credential={"refresh_token": refresh} if isinstance(refresh, str) else {},
        )

    async def _optional_user_info(self, claims: Json, tokens: Json) -> Json:
        if "userinfo_endpoint" not in await self._document.get():
            return {}
        found = await self._user_info(tokens)
        # OpenID Connect Core, 5.3.4: another subject means a substituted token.
        if found.get("sub") != claims.get("sub"):
            raise SignInRefused("The provider answered for another user.")
        return {name: value for name, value in found.items() if name != "iss"}

    async def _user_info(self, tokens: Json) -> Json:
        endpoint = endpoint_of(await self._document.get(), "userinfo_endpoint")
        answer = await self._http.get(
            endpoint,
            headers={"Authorization": f"Bearer {tokens.get('access_token', '')}", "Accept": "application/json"},
        )
        if answer.status_code in (401, 403):
            raise SignInRefused(f"{self.config.label} no longer answers for this user.")
        return parse_object(self.config, answer)

    def _check_allowed(self, claims: Json) -> None:
        config = self.config
        if config.allowed_tenants and claims.get("tid") not in config.allowed_tenants:
            raise SignInRefused(f"Your directory at {config.label} has no access here. {config.contact}".rstrip())
        if config.allowed_domains:
            email = _verified_email(claims)
            domain = claims.get("hd") if config.preset == "google" else email.rpartition("@")[2].lower()
            if not domain or domain not in config.allowed_domains:
                raise SignInRefused(f"Your account is not of an allowed domain. {config.contact}".rstrip())


def endpoint_of(document: Json, name: str) -> str:
    value: Any = document.get(name)
    # The browser follows the authorization endpoint, so another scheme could run a script.
    if not isinstance(value, str) or not value.startswith(("https://", "http://")):
        raise Fault(Kind.UNAVAILABLE, f"The identity provider has no valid {name}.")
    return value


def parse_token_response(config: ProviderConfig, answer: httpx.Response) -> Json:
    """Return the tokens. GitHub reports errors with the status 200."""
    body = parse_object(config, answer, (200, 400, 401, 403))
    error: Any = body.get("error")
    if error in _REFUSALS:
        raise SignInRefused(f"{config.label} did not confirm the sign-in ({error}). Start again.")
    if answer.status_code != 200 or error is not None or not isinstance(body.get("access_token"), str):
        message = f"{config.label} rejected the gateway's request ({str(error)[:60]}). Check client id and secret."
        raise Fault(Kind.UNAVAILABLE, message)
    return body


def parse_object(config: ProviderConfig, answer: httpx.Response, statuses: tuple[int, ...] = (200,)) -> Json:
    try:
        body: Any = answer.json()
    except (ValueError, RecursionError):
        body = None
    if answer.status_code not in statuses or not isinstance(body, dict):
        raise Fault(Kind.UNAVAILABLE, f"{config.label} answered with status {answer.status_code}. Try again later.")
    return cast("Json", body)


def read_claim(claims: Json, path: str) -> Any:
    """Return a claim: `a.b` is the member `b` of `a`, unless a claim has that name itself."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = cast("Json", found).get(part) if isinstance(found, dict) else None
    return found


def text_set(value: Any) -> frozenset[str]:
    """Return the texts in a claim: a list, or a single text."""
    if isinstance(value, str):
        return frozenset((value,))
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    return frozenset(each for each in listed if isinstance(each, str))


def _display_name(claims: Json) -> str:
    value: Any = claims.get("name") or claims.get("preferred_username") or ""
    return value[:200] if isinstance(value, str) and value.isprintable() else ""


def _verified_email(claims: Json) -> str:
    value: Any = claims.get("email")
    verified = claims.get("email_verified") is True
    return value[:254] if verified and isinstance(value, str) and value.isprintable() else ""
