"""`gatehouse init`: asks three questions and writes a commented settings file."""

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import typer

from gateway.cli.failure import BAD_SETTINGS, CommandError, print_stderr
from gateway.cli.settings_file import existing_parent
from gateway.contract.shipped import ShippedBackend, shipped_backends
from gateway.settings import FILE, SettingsError, default_backends, is_loopback, load

ADDRESS: Final = "http://127.0.0.1:8080"
EMBEDDED: Final = "embedded"


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
        raise CommandError(f"{path} already exists; --force overwrites it and keeps a backup as {path.name}.bak")
    existing_parent(path)
    answers = InitAnswers(
        _prompt(address, "URL that clients use", ADDRESS, yes=yes).rstrip("/"),
        _prompt(sign_in, "Sign-in: embedded, or the URL of your identity provider", EMBEDDED, yes=yes),
        _parse_backends(_prompt(serve, "Backends to serve", ",".join(default_backends()), yes=yes)),
    )
    text = render_settings(answers)
    _check(text, path)
    if path.exists():
        path.replace(path.with_name(f"{path.name}.bak"))
    path.write_text(text, "utf-8")
    path.chmod(0o600)
    print("the examples of servers in it have trust: client: the gateway asks for no approval, clients ask their users")
    print(f"wrote {path}; check it with `gatehouse check`, start the gateway with `gatehouse serve`")


def _prompt(value: str | None, question: str, default: str, *, yes: bool) -> str:
    if value is not None:
        return value
    return default if yes else str(typer.prompt(question, default, err=not sys.stdout.isatty()))


def _parse_backends(text: str) -> tuple[str, ...]:
    names = tuple(name for name in (part.strip() for part in text.split(",")) if name)
    shipped = shipped_backends()
    if unknown := [name for name in names if name not in shipped]:
        known = ", ".join(shipped)
        raise CommandError(
            f"{unknown[0]} is not a built-in backend (known: {known}); add others with `gatehouse import`", code=2
        )
    return names


def render_settings(answers: InitAnswers) -> str:
    """Render the complete settings file."""
    return "\n".join([*_server(answers), *_auth(answers), *_backends(answers), _REST])


_HEAD: Final = "# Settings of Gatehouse. `gatehouse check` shows what they serve. All other settings: docs/settings.md."


def _server(answers: InitAnswers) -> list[str]:
    host = urlsplit(answers.address).hostname or ""
    port = urlsplit(answers.address).port
    lines = [_HEAD, "", "server:"]
    if is_loopback(host):
        return [*lines, f"  host: {host}            # this machine only", f"  port: {port or 80}", ""]
    return [
        *lines,
        "  host: 0.0.0.0              # reachable from other machines; terminate TLS in a proxy",
        "  port: 8080",
        f"  public_url: {json.dumps(answers.address)}   # the URL that clients use",
        "  # trusted_proxies: [10.0.0.0/8]   # proxies whose X-Forwarded-For is trusted",
        "",
    ]


def _auth(answers: InitAnswers) -> list[str]:
    if answers.sign_in == EMBEDDED:
        return [
            "auth:",
            "  mode: embedded             # users: `gatehouse user add NAME`; scripts: `gatehouse key create`",
            "",
        ]
    return [
        "auth:",
        "  mode: external             # users sign in at your identity provider; API keys work as well",
        "  issuers:",
        f"    - issuer: {json.dumps(answers.sign_in)}   # exactly the value of iss in its tokens",
        "      tenant: default        # tenant of all its users",
        "      # audiences: [gatehouse]     # accepted values of aud besides the URL of /mcp",
        "      # types: [jwt]               # for Keycloak, whose access tokens have typ JWT",
        "",
    ]


def _backends(answers: InitAnswers) -> list[str]:
    lines = ["backends:                    # each key is a namespace; its tools are named KEY_tool"]
    entries = [(f"{name}: {shipped.entry}", shipped.summary) for name, shipped in _chosen(answers)]
    width = max((len(entry) for entry, _ in entries), default=0)
    lines += [f"  {entry:<{width}}   # {summary}" for entry, summary in entries]
    if not answers.serve:
        lines[0] = "backends: {}                 # add some: `gatehouse import .mcp.json`, `gatehouse backends add`"
    return [*lines, *_OTHERS.splitlines(), ""]


def _chosen(answers: InitAnswers) -> list[tuple[str, ShippedBackend]]:
    shipped = shipped_backends()
    return [(name, shipped[name]) for name in answers.serve]


_OTHERS: Final = """\
  # tracker: {url: "https://mcp.example.org/mcp", headers: {Authorization: "Bearer ${TRACKER_TOKEN}"}, trust: client}
  # files: {command: npx, args: ["-y", "@modelcontextprotocol/server-filesystem", "/srv/docs"], trust: client}
  # trust: client: the users' clients ask before a tool is called. With annotations, the default, the gateway requires
  # approval of tools that a server calls destructive; with strict, of all tools that write."""

_REST: Final = """\
tenants:
  default: {}                # all backends; restrict with {backends: [core], read_only: true}

limits:
  calls: 600/minute          # per user or service

# For several workers or machines: database.url (PostgreSQL) and bus.url (Redis), docs/scaling.md.
# database: {url_file: /run/secrets/database-url}
# bus: {url: "redis://127.0.0.1:6379/0"}
"""


def _check(text: str, path: Path) -> None:
    """Validate the file before it is written. Errors refer to the settings, as in `gatehouse check`."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as draft:
        draft.write(text)
        draft.flush()
        try:
            load(Path(draft.name), {})
        except SettingsError as exc:
            for line in exc.lines[:-1]:
                print_stderr(line.replace(draft.name, str(path)))
            last = exc.lines[-1].replace(draft.name, str(path))
            raise CommandError(last, f"{path} was not written", code=BAD_SETTINGS) from exc
