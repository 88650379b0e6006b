"""Settings of identity providers: what a platform team writes, and the mistakes that are reported."""

from typing import Any

import pytest
from pydantic import ValidationError

from gateway.settings import Settings

Json = dict[str, Any]
RULES = [{"group": "*"}]


def settings(entry: Json, **auth: Any) -> Settings:
    providers = {"p": {"client_id": "c", "client_secret": "s", "rules": RULES, **entry}}
    return Settings.model_validate({"auth": {"providers": providers, **auth}})


@pytest.mark.parametrize(
    "entry",
    [
        {"preset": "entra", "issuer": "https://login.microsoftonline.com/8f0c/v2.0"},
        {
            "preset": "entra",
            "issuer": "https://login.microsoftonline.com/organizations/v2.0",
            "allowed_tenants": ["8f0c"],
        },
        {"preset": "google", "allowed_domains": ["example.com"]},
        {"preset": "okta", "issuer": "https://example.okta.com"},
        {"preset": "auth0", "issuer": "https://example.eu.auth0.com/", "groups_claim": "https://example.com/groups"},
        {"preset": "keycloak", "issuer": "http://keycloak.internal/realms/a", "allow_private": True},
        {"preset": "github"},
        {"preset": "gitlab"},
        {"issuer": "https://idp.example", "rules": [], "admin_group": "chiefs"},
    ],
)
def test_provider_of_each_preset_is_accepted(entry: Json) -> None:
    provider = settings(entry).auth.providers["p"]
    assert provider.effective_issuer.startswith(("https://", "http://keycloak.internal"))


@pytest.mark.parametrize(
    ("entry", "auth", "message"),
    [
        ({}, {}, "is required for the preset oidc"),
        ({"issuer": "http://idp.example"}, {}, "must use https"),
        ({"issuer": "https://idp.example?x"}, {}, "pattern"),
        ({"issuer": "https://idp.example", "rules": []}, {}, "every user is refused"),
        ({"issuer": "https://idp.example", "client_key": "{}"}, {}, "either client_secret or client_key"),
        ({"preset": "entra", "issuer": "https://login.microsoftonline.com/common/v2.0"}, {}, "list the directory ids"),
        ({"preset": "github"}, {"mode": "none"}, "in mode embedded only"),
        ({"preset": "github", "groupz": 1}, {}, "Extra inputs"),
    ],
)
def test_mistake_in_a_provider_is_reported(entry: Json, auth: Json, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        settings(entry, **auth)


def test_secret_of_a_provider_is_not_shown() -> None:
    assert "s3cret" not in repr(settings({"preset": "github", "client_secret": "s3cret"}))
