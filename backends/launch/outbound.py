"""The HTTP clients of this backend: the guarded one, and a plain one for addresses the operator vouches for."""

import os
from collections.abc import Iterable

import httpx

from backends.launch.options import Options
from gateway.contract import Host, Json
from gateway.errors import Fault, Kind


class Outward:
    def __init__(self, home: Host) -> None:
        options: Options = home.options
        self._home = home
        self._vouched = _prefixes((*options.endpoints, options.github_api or ""))
        self._tokens = {variable: _prefixes(addresses) for variable, addresses in options.tokens.items()}
        self._plain: httpx.AsyncClient | None = None

    def client(self, url: str) -> httpx.AsyncClient:
        """For a URL of a run: guarded, unless the operator named it."""
        if not _under(url, self._vouched):
            return self._home.http
        if self._plain is None:  # made when first needed: reading the machine's certificates takes its time
            self._plain = httpx.AsyncClient(timeout=60, follow_redirects=False, trust_env=False)
        return self._plain

    def bearer(self, variable: str | None, url: str) -> Json:
        """The header for a token that the operator lets runs name, in a request to an address that it is for.

        Both come from the run's settings, which a tenant wrote: no token goes where the operator did not say.
        """
        if variable is None:
            return {}
        if variable not in self._tokens or variable not in os.environ:
            raise Fault(
                Kind.DENIED,
                "The run names a token that the operator does not provide.",
                code="INVALID_INPUT",
                details={"variable": variable[:100]},
                suggested_fix="Have the operator add it to `token_envs` of the backend's options.",
            )
        if not _under(url, self._tokens[variable]):
            raise Fault(
                Kind.DENIED,
                "The run names a token that is not for this address.",
                code="INVALID_INPUT",
                details={"variable": variable[:100], "endpoint_url": url[:200]},
                suggested_fix="Have the operator name it in `endpoints` or `token_envs` of the backend's options.",
            )
        return {"authorization": f"Bearer {os.environ[variable]}"}

    def own_token(self) -> Json:
        """The header for the operator's own token for the GitHub API."""
        variable = self._home.options.github_token_env
        token = os.environ.get(variable, "") if variable else ""
        return {"authorization": f"Bearer {token}"} if token else {}

    async def close(self) -> None:
        if self._plain is not None:
            await self._plain.aclose()


def _prefixes(addresses: Iterable[str]) -> tuple[str, ...]:
    return tuple(each.rstrip("/") + "/" for each in addresses if each)


def _under(url: str, prefixes: tuple[str, ...]) -> bool:
    """Whether it begins like one of them, and stays there: no `..` leads out again."""
    try:
        meant = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return url.startswith(prefixes) and str(meant).startswith(prefixes) and ".." not in meant.path.split("/")
