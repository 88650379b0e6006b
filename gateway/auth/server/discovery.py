"""What the authorization server says of itself (RFC 8414, OpenID discovery)."""

from collections.abc import Iterable

from gateway.contract import Json


def document(public_url: str, scopes: Iterable[str], *, documents: bool) -> Json:
    """`documents`: whether a client's id may be the address of a document about it."""
    at = f"{public_url}/oauth"
    methods = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
    return {
        "issuer": public_url,
        "authorization_endpoint": f"{at}/authorize",
        "token_endpoint": f"{at}/token",
        "registration_endpoint": f"{at}/register",
        "revocation_endpoint": f"{at}/revoke",
        "jwks_uri": f"{at}/jwks",
        "scopes_supported": sorted(scopes),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": methods,
        "token_endpoint_auth_signing_alg_values_supported": ["ES256", "RS256"],
        "revocation_endpoint_auth_methods_supported": methods,
        "revocation_endpoint_auth_signing_alg_values_supported": ["ES256", "RS256"],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": documents,
    }


def openid(document: Json) -> Json:
    """The same for clients that only know OpenID's address; no ID tokens are issued."""
    return {**document, "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"]}
