"""The HTTP clients of this backend: the gateway's guarded client, and an unguarded one for trusted URLs."""

import os
from collections.abc import Iterable

import httpx

from backends.launch.options import Options
from gateway.contract import Host, Json
from gateway.errors import Fault, Kind


class OutboundClients:
    """Selects the client for a URL and adds operator tokens only for the URLs they are configured for."""

    def __init__(self, host: Host) -> None:
        options: Options = host.options
        self._host = host
        self._trusted_prefixes = _prefixes((*options.endpoints, options.github_api or ""))
        self._token_prefixes = {variable: _prefixes(addresses) for variable, addresses in options.tokens.items()}
        self._unguarded: httpx.AsyncClient | None = None

    def client(self, url: str) -> httpx.AsyncClient:
        """Return the client for a URL of a run: guarded, unless the operator configured the URL."""
        if not _is_under(url, self._trusted_prefixes):
            return self._host.http
        if self._unguarded is None:  # created on first use: loading the CA certificates is slow
            self._unguarded = httpx.AsyncClient(timeout=60, follow_redirects=False, trust_env=False)
        return self._unguarded

    def bearer_header(self, variable: str | None, url: str) -> Json:
        """Return the authorization header with the operator's token from the environment variable.

        The variable and the URL come from the run's settings, which a tenant wrote. Raises `Fault` unless the operator
        configured this token for this URL.
        """
        if variable is None:
            return {}
        if variable not in self._token_prefixes or variable not in os.environ:
            raise Fault(
                Kind.DENIED,
                "The run names a token that the operator has not configured.",
                code="INVALID_INPUT",
                details={"variable": variable[:100]},
                suggested_fix="Ask the operator to add it to `token_envs` in the backend's options.",
            )
        if not _is_under(url, self._token_prefixes[variable]):
            raise Fault(
                Kind.DENIED,
                "The run names a token that may not be sent to this URL.",
                code="INVALID_INPUT",
                details={"variable": variable[:100], "endpoint_url": url[:200]},
                suggested_fix="Ask the operator to add it to `endpoints` or `token_envs` in the backend's options.",
            )
        return {"authorization": f"Bearer {os.environ[variable]}"}

    def github_token_header(self) -> Json:
        """Return the authorization header for the GitHub API; empty without a configured token."""
        variable = self._host.options.github_token_env
        token = os.environ.get(variable, "") if variable else ""
        return {"authorization": f"Bearer {token}"} if token else {}

    async def close(self) -> None:
        if self._unguarded is not None:
            await self._unguarded.aclose()


def _prefixes(addresses: Iterable[str]) -> tuple[str, ...]:
    return tuple(each.rstrip("/") + "/" for each in addresses if each)


def _is_under(url: str, prefixes: tuple[str, ...]) -> bool:
    """Whether the URL starts with one of the prefixes and contains no `..` path segment."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return url.startswith(prefixes) and str(parsed).startswith(prefixes) and ".." not in parsed.path.split("/")
