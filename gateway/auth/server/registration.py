"""Dynamic registration (RFC 7591): what a program may say of itself, and what is made of it."""

import json
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.auth.server.redirect_uris import acceptable
from gateway.contract import Json

MAX_BYTES: Final = 16 * 1024
_METHODS: Final = ("none", "client_secret_basic", "client_secret_post")
_GRANTS: Final = ("authorization_code", "refresh_token")
_MOST_REDIRECTS: Final = 10
_LONGEST_NAME: Final = 64


class InvalidRegistration(Exception):
    """Metadata that no client can be made of: the error of RFC 7591, and why."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error
        self.description = description


@dataclass(frozen=True, slots=True)
class Registration:
    """What is kept of it."""

    name: str
    redirect_uris: tuple[str, ...]
    auth_method: str
    grant_types: tuple[str, ...]

    def shown(self) -> Json:
        """As the answer repeats it: what differs from the request is what counts."""
        return {
            "client_name": self.name,
            "redirect_uris": list(self.redirect_uris),
            "token_endpoint_auth_method": self.auth_method,
            "grant_types": list(self.grant_types),
            "response_types": ["code"],
        }


def read(body: bytes, *, local: bool, allowed: Iterable[str]) -> Registration:
    """Raises `Unfit`. Unknown members, grants and scopes are left out; every redirect must be acceptable."""
    try:
        said: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRegistration("invalid_client_metadata", "The body is not JSON.") from None
    if not isinstance(said, dict):
        raise InvalidRegistration("invalid_client_metadata", "The body is not an object.")
    metadata = cast("Json", said)
    return Registration(
        name=clean_name(metadata.get("client_name")),
        redirect_uris=redirects(metadata.get("redirect_uris"), local=local, allowed=allowed),
        auth_method=_auth_method(metadata.get("token_endpoint_auth_method")),
        grant_types=_grant_types(metadata.get("grant_types")),
    )


def redirects(given: Any, *, local: bool, allowed: Iterable[str]) -> tuple[str, ...]:
    values = cast("list[Any]", given) if isinstance(given, list) else []
    if not 0 < len(values) <= _MOST_REDIRECTS:
        raise InvalidRegistration("invalid_redirect_uri", f"1 to {_MOST_REDIRECTS} redirect_uris are needed.")
    for uri in values:
        if not isinstance(uri, str) or not acceptable(uri, local=local, allowed=allowed):
            where = "loopback or a known client's callback" if local else "loopback or https"
            raise InvalidRegistration("invalid_redirect_uri", f"A redirect_uri must be {where}.")
    return tuple(dict.fromkeys(cast("list[str]", values)))


def clean_name(given: Any) -> str:
    """A name that shows what it is: no control, bidi, zero-width or private character is left in it."""
    text = unicodedata.normalize("NFC", given) if isinstance(given, str) else ""
    visible = "".join(each for each in text[:1000] if unicodedata.category(each)[0] not in "CZ" or each == " ")
    return " ".join(visible.split())[:_LONGEST_NAME] or "A program without a name"


def _auth_method(given: Any) -> str:
    # Left out, RFC 7591 means a secret in the header; real clients then come without it. The answer says `none`.
    if given is None:
        return "none"
    if given not in _METHODS:
        raise InvalidRegistration(
            "invalid_client_metadata", f"token_endpoint_auth_method must be one of {', '.join(_METHODS)}."
        )
    return given


def _grant_types(given: Any) -> tuple[str, ...]:
    wanted = cast("list[Any]", given) if isinstance(given, list) else []
    # A client that may sign somebody in may also stay signed in.
    if wanted and "authorization_code" not in wanted:
        raise InvalidRegistration(
            "invalid_client_metadata", "Only clients that sign people in may register themselves."
        )
    return _GRANTS
