"""Groups of Entra users who are members of more groups than fit into an ID token.

The token then names a claim source instead. Its address is not followed, because it comes from the token and belongs to
a retired service; Microsoft Graph is asked with the user's access token.
"""

from typing import Any, cast

import httpx

from gateway.auth.providers.identity import SignInRefused
from gateway.contract import Json
from gateway.errors import Fault, Kind


def has_group_overage(claims: Json) -> bool:
    names: Any = claims.get("_claim_names")
    return isinstance(names, dict) and "groups" in names


async def read_groups(http: httpx.AsyncClient, graph_url: str, access_token: str) -> list[str]:
    """Return the ids of all security groups of the token's user, direct and nested."""
    answer = await http.post(
        f"{graph_url}/v1.0/me/getMemberObjects",
        json={"securityEnabledOnly": True},
        headers={"Authorization": f"Bearer {access_token}", "Accept": "application/json"},
    )
    if answer.status_code in (401, 403):
        raise SignInRefused(
            "You are a member of too many groups for one token, and Microsoft Graph does not permit this gateway to "
            "read them. Ask an administrator to grant User.Read, or to assign groups to the application."
        )
    try:
        body: Any = answer.json()
    except (ValueError, RecursionError):
        body = None
    value: Any = cast("Json", body).get("value") if isinstance(body, dict) else None
    if answer.status_code != 200 or not isinstance(value, list):
        raise Fault(Kind.UNAVAILABLE, "Microsoft Graph cannot be asked for the groups. Try again later.")
    return [each for each in cast("list[Any]", value) if isinstance(each, str)]
