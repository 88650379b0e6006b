"""Validation of dynamic client registrations (RFC 7591)."""

import json
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.auth.server.redirect_uris import can_register
from gateway.contract import Json

MAX_BYTES: Final = 16 * 1024
_METHODS: Final = ("none", "client_secret_basic", "client_secret_post")
_GRANTS: Final = ("authorization_code", "refresh_token")
_MAX_REDIRECTS: Final = 10
_MAX_NAME_CHARS: Final = 64


class InvalidRegistration(Exception):
    """Invalid client metadata, with the error code of RFC 7591 and a description."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error
        self.description = description


@dataclass(frozen=True, slots=True)
class Registration:
    """The accepted metadata of a client."""

    name: str
    redirect_uris: tuple[str, ...]
    auth_method: str
    grant_types: tuple[str, ...]

    def as_metadata(self) -> Json:
        """Return the metadata for the response; it may differ from the request."""
        return {
            "client_name": self.name,
            "redirect_uris": list(self.redirect_uris),
            "token_endpoint_auth_method": self.auth_method,
            "grant_types": list(self.grant_types),
            "response_types": ["code"],
        }


def parse_registration(body: bytes, *, local: bool, allowed: Iterable[str]) -> Registration:
    """Parse and validate a registration; ignore unknown members, grants and scopes. Raises `InvalidRegistration`."""
    try:
        body_json: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRegistration("invalid_client_metadata", "The body is not JSON.") from None
    if not isinstance(body_json, dict):
        raise InvalidRegistration("invalid_client_metadata", "The body is not an object.")
    metadata = cast("Json", body_json)
    return Registration(
        name=clean_name(metadata.get("client_name")),
        redirect_uris=parse_redirect_uris(metadata.get("redirect_uris"), local=local, allowed=allowed),
        auth_method=_auth_method(metadata.get("token_endpoint_auth_method")),
        grant_types=_grant_types(metadata.get("grant_types")),
    )


def parse_redirect_uris(value: Any, *, local: bool, allowed: Iterable[str]) -> tuple[str, ...]:
    values = cast("list[Any]", value) if isinstance(value, list) else []
    if not 0 < len(values) <= _MAX_REDIRECTS:
        raise InvalidRegistration("invalid_redirect_uri", f"redirect_uris must have 1 to {_MAX_REDIRECTS} entries.")
    for uri in values:
        if not isinstance(uri, str) or not can_register(uri, local=local, allowed=allowed):
            accepted = "loopback or a known client's callback" if local else "loopback or https"
            raise InvalidRegistration("invalid_redirect_uri", f"A redirect_uri must be {accepted}.")
    return tuple(dict.fromkeys(cast("list[str]", values)))


def clean_name(value: Any) -> str:
    """Return a display name without control, bidirectional, zero-width and private-use characters."""
    text = unicodedata.normalize("NFC", value) if isinstance(value, str) else ""
    visible = "".join(each for each in text[:1000] if unicodedata.category(each)[0] not in "CZ" or each == " ")
    return " ".join(visible.split())[:_MAX_NAME_CHARS] or "Unnamed application"


def _auth_method(value: Any) -> str:
    # RFC 7591 defaults to client_secret_basic, but clients that omit it send no secret. The response says `none`.
    if value is None:
        return "none"
    if value not in _METHODS:
        raise InvalidRegistration(
            "invalid_client_metadata", f"token_endpoint_auth_method must be one of {', '.join(_METHODS)}."
        )
    return value


def _grant_types(value: Any) -> tuple[str, ...]:
    requested = cast("list[Any]", value) if isinstance(value, list) else []
    # Every client that uses the authorization code grant also gets the refresh grant.
    if requested and "authorization_code" not in requested:
        raise InvalidRegistration("invalid_client_metadata", "grant_types must include authorization_code.")
    return _GRANTS
