"""Connecting and disconnecting accounts: authorization code flow with PKCE, state and issuer check; personal keys.

The state of a flow is in a sealed cookie of the browser that started it, together with the person who did: a callback
in another browser, or for another person, is refused.
"""

import base64
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from hmac import compare_digest
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec

from gateway.accounts.access import AccountBackends, BackendAccounts, Seal
from gateway.accounts.authorization import RemoteAuthorization
from gateway.accounts.credentials import ProofKeys, decode_access, encode_access
from gateway.accounts.store import Account, AccountInfo, AccountStore, Secret
from gateway.contract import Caller
from gateway.errors import Fault, Kind
from gateway.outbound.oauth import ClientAuthentication, ServerMetadata, TokenRefused

log = logging.getLogger("gatehouse.accounts")

FLOW_SECONDS: Final = 900.0
MAX_KEY_CHARS: Final = 4096
_FLOW: Final = "account flow"
_STATE: Final = re.compile(r"[A-Za-z0-9_-]{32}")


class PendingConnection(msgspec.Struct, frozen=True):
    """A flow in progress. The endpoints are those of the issuer that the person was sent to."""

    state: str
    verifier: str
    principal: str
    backend: str
    issuer: str
    token_endpoint: str
    revocation_endpoint: str
    resource: str
    client_id: str
    method: str
    scopes: list[str]
    proof_key: str | None
    needs_issuer: bool
    expires: float


class Connections:
    """Connects and disconnects the accounts of persons who are signed in at the gateway."""

    def __init__(
        self, backends: AccountBackends, store: AccountStore, seal: Seal, keys: ProofKeys, *, secure: bool
    ) -> None:
        self._backends = backends
        self._store = store
        self._seal = seal
        self._keys = keys
        # Browsers accept the __Host- prefix only over TLS.
        self._cookie = "__Host-gatehouse-connect" if secure else "gatehouse-connect"
        self._cookie_end = "; Path=/; HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")

    def backend(self, name: str) -> BackendAccounts:
        """The backend of that name. Raises `Fault(NOT_FOUND)`."""
        found = self._backends.get(name)
        if found is None:
            raise Fault(Kind.NOT_FOUND, "There is no such server with accounts.")
        return found

    async def begin(self, person: Caller, name: str, scopes: Sequence[str]) -> tuple[str, str]:
        """Start a flow. Returns the URL of the authorization server and the cookie to set."""
        authorization = self._authorization(name)
        found = await authorization.discover()
        client = await authorization.client(found.metadata)
        granted = await self._granted_scopes(person, name) if scopes else ()
        asked = authorization.scopes_for(found, (*granted, *scopes))
        pending = PendingConnection(
            state=secrets.token_urlsafe(24),
            verifier=secrets.token_urlsafe(48),
            principal=person.principal,
            backend=name,
            issuer=found.metadata.issuer,
            token_endpoint=found.metadata.token_endpoint,
            revocation_endpoint=found.metadata.revocation_endpoint,
            resource=found.resource,
            client_id=client.client_id,
            method="assertion" if client.assertion is not None else client.method,
            scopes=list(asked),
            proof_key=self._keys.generate().export() if authorization.wants_proofs(found) else None,
            needs_issuer=found.metadata.has_issuer_parameter,
            expires=time.time() + FLOW_SECONDS,
        )
        challenge = base64.urlsafe_b64encode(hashlib.sha256(pending.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": authorization.redirect_uri,
            "state": pending.state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": found.resource,
        }
        if asked:
            query["scope"] = " ".join(asked)
        if "offline_access" in asked:
            query["prompt"] = "consent"  # OpenID Connect issues refresh tokens only with it
        endpoint = found.metadata.authorization_endpoint
        url = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"
        sealed = self._seal.seal(_FLOW, msgspec.json.encode(pending))
        return url, self._cookie_header(pending.state, sealed, FLOW_SECONDS)

    async def finish(
        self, person: Caller, name: str, query: Mapping[str, str], cookies: Mapping[str, str]
    ) -> tuple[Account, str]:
        """Complete a flow with the authorization response. Returns the account and the cookie to set."""
        authorization, pending = self._authorization(name), self._pending(query, cookies)
        if pending is None or pending.backend != name or pending.principal != person.principal:
            raise Fault(
                Kind.INVALID_INPUT,
                "This connection expired, or was started in another browser or by another person. Start again.",
            )
        _check_issuer(pending, query)
        if "code" not in query:
            raise _refusal(query.get("error", ""))
        metadata = ServerMetadata(issuer=pending.issuer, token_endpoint=pending.token_endpoint)
        client = await self._same_client(authorization, pending)
        key = self._keys.load(pending.proof_key) if pending.proof_key is not None else None
        form = {"code": query["code"], "code_verifier": pending.verifier, "resource": pending.resource}
        try:
            token = await authorization.exchange_code(client, metadata, form, key.sign if key is not None else None)
        except TokenRefused as refused:
            log.warning("accounts %s: the authorization code was refused: %s", name, refused.message)
            raise Fault(Kind.INVALID_INPUT, "The server refused the connection. Start again.") from refused
        bound = key if token.is_dpop else None
        account = Account(
            tenant=person.tenant,
            principal=person.principal,
            backend=name,
            kind="oauth",
            issuer=pending.issuer,
            access=Secret(encode_access(token.access, bound)),
            refresh=Secret(token.refresh) if token.refresh is not None else None,
            client={
                "client_id": pending.client_id,
                "method": client.method,
                "token_endpoint": pending.token_endpoint,
                "revocation_endpoint": pending.revocation_endpoint,
                "resource": pending.resource,
                "dpop": bound is not None,
            },
            scopes=token.scopes if token.scopes is not None else tuple(pending.scopes),
            expires_at=None if token.lifetime is None else time.time() + token.lifetime,
            lifetime=token.lifetime,
        )
        stored = await self._store.put(account)
        log.info("accounts %s: %s connected an account at %s", name, person.principal, pending.issuer)
        return stored, self._cookie_header(pending.state, "", 0)

    async def put_key(self, person: Caller, name: str, key: str) -> None:
        """Store a personal key. Raises `Fault(INVALID_INPUT)` for one that cannot be sent in a header."""
        backend = self.backend(name)
        text = key.strip()
        if backend.kind != "key":
            raise Fault(Kind.INVALID_INPUT, f"{name} takes no key: its account is connected in a browser.")
        if not text or len(text) > MAX_KEY_CHARS or not (text.isascii() and text.isprintable()):
            raise Fault(Kind.INVALID_INPUT, "A key has 1 to 4096 printable ASCII characters.")
        account = Account(
            tenant=person.tenant, principal=person.principal, backend=name, kind="key", access=Secret(text), client={}
        )
        await self._store.put(account)
        log.info("accounts %s: %s stored a personal key", name, person.principal)

    async def disconnect(self, tenant: str, principal: str, name: str) -> bool:
        """Delete an account and revoke its tokens at the server. False if there is none.

        The account is deleted even if its tokens cannot be revoked or opened.
        """
        backend, account = self._backends.get(name), None
        try:
            account = await self._store.find(tenant, principal, name)
        except Fault as fault:
            log.warning("accounts %s: tokens of %s are not revoked: %s", name, principal, fault.message)
        deleted = await self._store.delete(tenant, principal, name)
        authorization = backend.authorization if backend is not None else None
        if account is not None and account.kind == "oauth" and authorization is not None:
            tokens = [(decode_access(account)[0], "access_token")]
            if account.refresh is not None:
                tokens.insert(0, (account.refresh.value, "refresh_token"))
            if not await authorization.revoke(account, tokens):
                log.warning("accounts %s: the server did not revoke the tokens of %s", name, principal)
        return deleted

    async def list(self, tenant: str | None, principal: str | None = None) -> "list[AccountInfo]":
        await self._backends.flush()
        return await self._store.list(tenant, principal)

    # ---- internals ----

    async def _granted_scopes(self, person: Caller, name: str) -> tuple[str, ...]:
        """The scopes of the account so far: a step-up must not lose them."""
        return next((each.scopes for each in await self._store.list(person.tenant, person.principal)
                     if each.backend == name), ())  # fmt: skip

    async def _same_client(
        self, authorization: RemoteAuthorization, pending: PendingConnection
    ) -> ClientAuthentication:
        found = await authorization.discover()
        client = await authorization.client(found.metadata)
        if (found.metadata.issuer, client.client_id) != (pending.issuer, pending.client_id):
            raise Fault(Kind.INVALID_INPUT, "The server changed while you were connecting. Start again.")
        return client

    def _authorization(self, name: str) -> RemoteAuthorization:
        authorization = self.backend(name).authorization
        if authorization is None:
            raise Fault(Kind.INVALID_INPUT, f"{name} needs a personal key.")
        return authorization

    def _pending(self, query: Mapping[str, str], cookies: Mapping[str, str]) -> PendingConnection | None:
        state = query.get("state", "")
        if not _STATE.fullmatch(state):
            return None
        payload = self._seal.open(_FLOW, cookies.get(self._cookie_name(state), ""))
        pending = msgspec.json.decode(payload, type=PendingConnection) if payload is not None else None
        if pending is None or pending.expires <= time.time() or not compare_digest(pending.state, state):
            return None
        return pending

    def _cookie_name(self, state: str) -> str:
        """One cookie per flow: a person may connect several accounts at once."""
        return f"{self._cookie}-{hashlib.sha256(state.encode()).hexdigest()[:12]}"

    def _cookie_header(self, state: str, value: str, max_age: float) -> str:
        return f"{self._cookie_name(state)}={value}; Max-Age={int(max_age)}{self._cookie_end}"


def _check_issuer(pending: PendingConnection, query: Mapping[str, str]) -> None:
    """RFC 9207: an answer of another authorization server is refused, so that no code is sent to the wrong one."""
    issuer = query.get("iss")
    if (issuer is None and pending.needs_issuer) or (issuer is not None and issuer != pending.issuer):
        raise Fault(
            Kind.INVALID_INPUT, "The answer comes from another authorization server than the one asked. Start again."
        )


def _refusal(error: str) -> Fault:
    if error == "access_denied":
        return Fault(Kind.DENIED, "The connection was declined at the server. Nothing was stored.")
    shown = error if re.fullmatch(r"[a-z_]{1,40}", error) else "unknown"
    return Fault(Kind.UNAVAILABLE, f"The server answered with the error {shown}. Start again, or ask an operator.")


def host_of(url: str) -> str:
    """The host that a person sees on a page."""
    return urlsplit(url).hostname or url
