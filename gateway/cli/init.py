"""`gatehouse init`: three questions, and a settings file with comments."""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import typer

from gateway.cli.failure import BAD_SETTINGS, CommandError, say
from gateway.cli.settings_file import folder_of
from gateway.settings import FILE, SettingsError, default_backends, is_loopback, load

ADDRESS: Final = "http://127.0.0.1:8080"
EMBEDDED: Final = "embedded"

SHIPPED: Final[Mapping[str, tuple[str, str]]] = {
    "core": ("{module: backends.core}", "a ping"),
    "project": ('{module: "backends.core:project"}', "counts the files of a workspace"),
    "workflow": ("{module: backends.workflow}", "steps over every backend, in runs that outlive the call"),
    "knowledge": ("{module: backends.knowledge}", "a shared memory"),
    "launch": ("{module: backends.launch}", "documentation sites from a repository"),
    "godot": ("{module: backends.godot, options: {roots: [projects]}}", "Godot projects below ./projects"),
    "roblox": ("{module: backends.roblox, options: {bridge_enabled: true}}", "Roblox Studio, through its plugin"),
}
"""What can be served without another program: how, and what it is for."""


@dataclass(frozen=True, slots=True)
class InitAnswers:
    address: str
    sign_in: str
    serve: tuple[str, ...]


def init(
    config: Path | None, address: str | None, sign_in: str | None, serve: str | None, *, yes: bool, force: bool
) -> None:
    path = config or Path(os.environ.get("GATEHOUSE_CONFIG") or FILE)
    if path.exists() and not force:
        raise CommandError(f"{path} is there already; --force writes over it and keeps the old one as {path.name}.bak")
    folder_of(path)
    answers = InitAnswers(
        _asked(address, "Address that clients will use", ADDRESS, yes=yes).rstrip("/"),
        _asked(sign_in, "Who signs people in: embedded, or your identity provider's address", EMBEDDED, yes=yes),
        _names(_asked(serve, "Backends to serve", ",".join(default_backends()), yes=yes)),
    )
    text = page(answers)
    _check(text, path)
    if path.exists():
        path.replace(path.with_name(f"{path.name}.bak"))
    path.write_text(text, "utf-8")
    path.chmod(0o600)
    print(f"{path} is written; `gatehouse check` shows what it serves, `gatehouse serve` serves it")


def _asked(given: str | None, question: str, default: str, *, yes: bool) -> str:
    if given is not None:
        return given
    return default if yes else str(typer.prompt(question, default, err=not sys.stdout.isatty()))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name for name in (part.strip() for part in text.split(",")) if name)
    if unknown := [name for name in names if name not in SHIPPED]:
        known = ", ".join(SHIPPED)
        raise CommandError(
            f"{unknown[0]} does not ship with Gatehouse (known: {known}); `gatehouse import` has others", code=2
        )
    return names


def page(answers: InitAnswers) -> str:
    """The whole file."""
    return "\n".join([*_server(answers), *_auth(answers), *_backends(answers), _REST])


_HEAD: Final = (
    "# Settings of Gatehouse. `gatehouse check` says what they serve; all others have a default: docs/settings.md."
)


def _server(answers: InitAnswers) -> list[str]:
    host = urlsplit(answers.address).hostname or ""
    port = urlsplit(answers.address).port
    lines = [_HEAD, "", "server:"]
    if is_loopback(host):
        return [*lines, f"  host: {host}            # this machine only", f"  port: {port or 80}", ""]
    return [
        *lines,
        "  host: 0.0.0.0              # others reach it, through the proxy that has the certificate",
        "  port: 8080",
        f"  public_url: {json.dumps(answers.address)}   # the address that clients use",
        "  # trusted_proxies: [10.0.0.0/8]   # whose X-Forwarded-For is believed",
        "",
    ]


def _auth(answers: InitAnswers) -> list[str]:
    if answers.sign_in == EMBEDDED:
        return [
            "auth:",
            "  mode: embedded             # people sign in here: `gatehouse user add NAME`; scripts have keys",
            "",
        ]
    return [
        "auth:",
        "  mode: external             # people sign in at your identity provider; keys work beside it",
        "  issuers:",
        f"    - issuer: {json.dumps(answers.sign_in)}   # letter by letter as its tokens have it in iss",
        "      tenant: default        # everybody it vouches for",
        "      # audiences: [gatehouse]     # what may stand in aud beside the address of /mcp",
        "      # types: [jwt]               # for Keycloak, whose access tokens have typ JWT",
        "",
    ]


def _backends(answers: InitAnswers) -> list[str]:
    lines = ["backends:                    # the key is the namespace: tools are called KEY_tool"]
    width = max((len(f"{name}: {SHIPPED[name][0]}") for name in answers.serve), default=0)
    for name in answers.serve:
        entry = f"{name}: {SHIPPED[name][0]}"
        lines.append(f"  {entry:<{width}}   # {SHIPPED[name][1]}")
    if not answers.serve:
        lines[0] = "backends: {}                 # nothing yet: `gatehouse import .mcp.json`, `gatehouse backends add`"
    return [*lines, *_OTHERS.splitlines(), ""]


_OTHERS: Final = """\
  # tracker: {url: "https://mcp.example.org/mcp", headers: {Authorization: "Bearer ${TRACKER_TOKEN}"}}
  # files: {command: npx, args: ["-y", "@modelcontextprotocol/server-filesystem", "/srv/docs"]}"""

_REST: Final = """\
tenants:
  default: {}                # sees every backend; {backends: [core], read_only: true} would see and do less

limits:
  calls: 600/minute          # of one person or service

# Several workers or machines: database.url (PostgreSQL) and bus.url (Redis), docs/scaling.md.
# database: {url_file: /run/secrets/database-url}
# bus: {url: "redis://127.0.0.1:6379/0"}
"""


def _check(text: str, path: Path) -> None:
    """What is written must be accepted; a wrong answer is told in the words of the settings."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as draft:
        draft.write(text)
        draft.flush()
        try:
            load(Path(draft.name), {})
        except SettingsError as exc:
            for line in exc.lines[:-1]:
                say(line.replace(draft.name, str(path)))
            last = exc.lines[-1].replace(draft.name, str(path))
            raise CommandError(last, f"{path} is not written", code=BAD_SETTINGS) from exc
