"""Canary secrets for every setting that takes a secret, and a search for leaks of them."""

import asyncio
import base64
import importlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

import backends
from gateway.settings import Settings

Json = dict[str, Any]

CANARY = "canary-7f3a91c4"
_SECRET_NAME = re.compile(r"secret|password|passphrase|credential|private_key|api_key|(^|_)token$")


def canary(slot: str) -> str:
    return f"{CANARY}-{slot}"


def encodings(secret: str) -> set[str]:
    """The secret in plain text, URL-encoded, and in base64 at any of the three offsets (as in Basic credentials)."""
    found = {secret, quote(secret, safe=""), secret.replace("-", "_"), secret.replace("-", "")}
    for before in range(3):
        encoded = base64.b64encode(b"." * before + secret.encode()).decode().rstrip("=")
        found.add(encoded[4 if before else 0 : -2])
    return found


def find_leaks(places: dict[str, str], *secrets: str) -> set[tuple[str, str]]:
    """Return every place whose text contains a canary or one of `secrets`, with the form found."""
    wanted = encodings(CANARY).union(*map(encodings, secrets)) if secrets else encodings(CANARY)
    return {(place, form) for place, text in places.items() for form in wanted if form in text}


def slots(found: Settings | BaseModel, prefix: str = "") -> Iterator[str]:
    """The paths of these settings that hold a canary. Names chosen by the operator are `*`."""
    for name in type(found).model_fields:
        yield from _slots(getattr(found, name), f"{prefix}{name}")


def _slots(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from slots(value, f"{path}.")
    elif isinstance(value, dict):
        for each in value.values():
            yield from _slots(each, f"{path}.*")
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _slots(each, f"{path}.*")
    elif isinstance(value, SecretStr) and CANARY in value.get_secret_value():
        yield path


def secret_settings() -> set[str]:
    """The paths of all secret fields, in the settings and in the options of the shipped backends."""
    found = set(_fields(Settings, ""))
    for path in Path(backends.__path__[0]).iterdir():
        if path.name.startswith("_") or not (path.suffix == ".py" or path.is_dir()):
            continue
        manifest = getattr(importlib.import_module(f"backends.{path.stem}"), "manifest", None)
        if manifest is not None and manifest.options is not None:
            found |= set(_fields(manifest.options, "backends.*.options."))
    return found


def _fields(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield from _secret_types(field.annotation, f"{prefix}{name}")
        # A secret stored as plain `str` would appear in every dump of the settings.
        if _SECRET_NAME.search(name) and str in (field.annotation, *get_args(field.annotation)):
            yield f"{prefix}{name} (plain text)"


def _secret_types(kind: Any, path: str) -> Iterator[str]:
    if kind is SecretStr:
        yield path
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from _fields(kind, f"{path}.")
    else:
        # The type arguments of a container are the types of its items.
        many = getattr(kind, "__origin__", None) in (dict, tuple, list)
        for each in get_args(kind):
            yield from _secret_types(each, f"{path}.*" if many else path)


@dataclass(frozen=True)
class EchoServer:
    base: str
    requests: list[str]


@asynccontextmanager
async def echo_server() -> AsyncIterator[EchoServer]:
    """Run an identity provider that rejects every request and echoes the request in its response."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = await reader.read(65536)
        status, text = b"401 Unauthorized", json.dumps({"error": sent.decode("latin-1")})
        if b" /.well-known/" in sent.split(b"\r\n")[0]:
            status, text = b"200 OK", json.dumps(document)
        body = text.encode()
        writer.write(b"HTTP/1.1 %b\r\ncontent-type: application/json\r\nconnection: close\r\n" % status)
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()
        received.append(sent.decode("latin-1"))

    received: list[str] = []
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    names = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
    document = {"issuer": base, **{name: f"{base}/{path}" for name, path in names.items()}}
    async with server:
        yield EchoServer(base, received)
