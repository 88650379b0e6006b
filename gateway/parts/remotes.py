"""From an entry of `backends:` with a url or a command to a backend."""

from pydantic import SecretStr

from gateway.auth.client_key import ClientKey
from gateway.contract import Json, Manifest
from gateway.outbound import client as outbound_client
from gateway.settings import CommandBackend, UrlBackend
from gateway.upstream.bulkhead import Room
from gateway.upstream.http.credentials import ClientCredentials, Grant
from gateway.upstream.http.link import HttpLink
from gateway.upstream.http.make import http_head, http_link
from gateway.upstream.refusal import LoadError
from gateway.upstream.remote import RemoteBackend
from gateway.upstream.stdio.link import StdioLink
from gateway.upstream.stdio.process import Bounds, Program
from gateway.upstream.stdio.watchdog import Watchdog


def remote_backend(
    namespace: str,
    entry: UrlBackend | CommandBackend,
    manifest: Manifest,
    *,
    info: Json,
    max_bytes: int,
    watchdog: Watchdog,
) -> RemoteBackend:
    """Raises `LoadError` for an entry that cannot be served."""
    room = Room(entry.max_calls, entry.per_tenant, entry.max_waiting)
    if isinstance(entry, CommandBackend):
        return RemoteBackend(namespace, manifest, _process(namespace, entry, info, watchdog), info, room)
    return RemoteBackend(namespace, manifest, _server(namespace, entry, info, max_bytes), info, room)


def judge_remote(namespace: str, entry: UrlBackend | CommandBackend) -> None:
    """Whether it could be made, with nothing opened. Raises the same `LoadError`."""
    if isinstance(entry, UrlBackend):
        http_head(namespace, entry.url, _headers(entry), allow_private=entry.allow_private)
        if entry.oauth is not None and entry.oauth.client_key is not None:
            _key(namespace, entry.oauth.client_id, entry.oauth.client_key)


def _process(namespace: str, entry: CommandBackend, info: Json, watchdog: Watchdog) -> StdioLink:
    program = Program(
        namespace=namespace,
        command=entry.command,
        args=entry.args,
        env={name: value.get_secret_value() for name, value in entry.env.items()},
        cwd=entry.cwd,
        bounds=Bounds(**entry.limits.model_dump()),
        watchdog=watchdog,
    )
    return StdioLink(program, entry.isolation, info, entry.max_processes)


def _server(namespace: str, entry: UrlBackend, info: Json, max_bytes: int) -> HttpLink:
    return http_link(
        namespace,
        entry.url,
        _headers(entry),
        only_sse=entry.transport == "sse",
        allow_private=entry.allow_private,
        max_bytes=max_bytes,
        info=info,
        credential=_credential(namespace, entry),
    )


def _headers(entry: UrlBackend) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in entry.headers.items()}


def _credential(namespace: str, entry: UrlBackend) -> ClientCredentials | None:
    oauth = entry.oauth
    if oauth is None:
        return None
    grant = Grant(
        client_id=oauth.client_id,
        client_secret=None if oauth.client_secret is None else oauth.client_secret.get_secret_value,
        assertion=None if oauth.client_key is None else _key(namespace, oauth.client_id, oauth.client_key).assertion,
        token_url=oauth.token_url,
        issuer=oauth.issuer,
        scope=oauth.scope,
        resource=entry.url if oauth.resource is None else oauth.resource or None,
        method=oauth.method,
    )
    return ClientCredentials(namespace, grant, outbound_client(allow_private=entry.allow_private))


def _key(namespace: str, client_id: str, key: SecretStr) -> ClientKey:
    try:
        return ClientKey(client_id, key.get_secret_value())
    except ValueError as exc:
        # The cause could quote the key.
        raise LoadError(f"backends.{namespace}.oauth.client_key: {exc}") from None
