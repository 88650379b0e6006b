"""Secrets that can be recognised wherever they turn up, in every place where one is given."""

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
_TELLING = re.compile(r"secret|password|passphrase|credential|private_key|api_key|(^|_)token$")


def canary(slot: str) -> str:
    return f"{CANARY}-{slot}"


def forms(secret: str) -> set[str]:
    """As it is, in an address, and within base64, wherever in it the secret begins: Basic hides nothing."""
    found = {secret, quote(secret, safe=""), secret.replace("-", "_"), secret.replace("-", "")}
    for before in range(3):
        encoded = base64.b64encode(b"." * before + secret.encode()).decode().rstrip("=")
        found.add(encoded[4 if before else 0 : -2])
    return found


def traces(places: dict[str, str], *secrets: str) -> set[tuple[str, str]]:
    """Where something of the canaries, or of these, can be read."""
    wanted = forms(CANARY).union(*map(forms, secrets)) if secrets else forms(CANARY)
    return {(place, form) for place, text in places.items() for form in wanted if form in text}


def slots(found: Settings | BaseModel, at: str = "") -> Iterator[str]:
    """The places of these settings that hold a canary. What is named by an operator is `*`."""
    for name in type(found).model_fields:
        yield from _slots(getattr(found, name), f"{at}{name}")


def _slots(value: Any, at: str) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from slots(value, f"{at}.")
    elif isinstance(value, dict):
        for each in value.values():
            yield from _slots(each, f"{at}.*")
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _slots(each, f"{at}.*")
    elif isinstance(value, SecretStr) and CANARY in value.get_secret_value():
        yield at


def secret_settings() -> set[str]:
    """Every place in the settings, and in the options of the modules that ship, that is for a secret."""
    found = set(_fields(Settings, ""))
    for path in Path(backends.__path__[0]).iterdir():
        if path.name.startswith("_") or not (path.suffix == ".py" or path.is_dir()):
            continue
        manifest = getattr(importlib.import_module(f"backends.{path.stem}"), "manifest", None)
        if manifest is not None and manifest.options is not None:
            found |= set(_fields(manifest.options, "backends.*.options."))
    return found


def _fields(model: type[BaseModel], at: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield from _kinds(field.annotation, f"{at}{name}")
        # What is called a secret and is plain text would be in every dump of the settings.
        if _TELLING.search(name) and str in (field.annotation, *get_args(field.annotation)):
            yield f"{at}{name} (plain text)"


def _kinds(kind: Any, at: str) -> Iterator[str]:
    if kind is SecretStr:
        yield at
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from _fields(kind, f"{at}.")
    else:
        # The last of a mapping's are its values; a tuple's are its items.
        many = getattr(kind, "__origin__", None) in (dict, tuple, list)
        for each in get_args(kind):
            yield from _kinds(each, f"{at}.*" if many else at)


@dataclass(frozen=True)
class Echo:
    base: str
    heard: list[str]


@asynccontextmanager
async def echoing() -> AsyncIterator[Echo]:
    """A server that calls itself an identity provider, refuses everything, and says in its answer what it was sent."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = await reader.read(65536)
        status, said = b"401 Unauthorized", json.dumps({"error": sent.decode("latin-1")})
        if b" /.well-known/" in sent.split(b"\r\n")[0]:
            status, said = b"200 OK", json.dumps(document)
        body = said.encode()
        writer.write(b"HTTP/1.1 %b\r\ncontent-type: application/json\r\nconnection: close\r\n" % status)
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()
        heard.append(sent.decode("latin-1"))

    heard: list[str] = []
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    names = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
    document = {"issuer": base, **{name: f"{base}/{path}" for name, path in names.items()}}
    async with server:
        yield Echo(base, heard)
