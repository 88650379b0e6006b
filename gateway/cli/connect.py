"""Prints what a client must be told, or writes it."""

import json
from pathlib import Path

from gateway.cli.client_config import CLIENTS, VARIABLE, ClientApp, ConnectInstructions, ConnectRequest, FileEdit, write
from gateway.cli.failure import CommandError, say


def connect(client: str, wish: ConnectRequest, file: Path | None, *, writing: bool, as_json: bool) -> None:
    known = CLIENTS[client]
    told = known.tell(wish)
    place = file or (known.file() if known.file is not None else None)
    if not writing:
        _print(known, told, wish, place, as_json)
        return
    if place is None or told.entry is None:
        raise CommandError(
            f"{known.title} keeps no file; run the line that `gatehouse connect {client}` prints", code=2
        )
    if client == "claude-desktop" and wish.key and wish.token is None:
        raise CommandError(f"its file holds the key itself: give --token, or set {VARIABLE}", code=2)
    written = write(place, wish.name, told)
    if as_json:
        backup = None if written.backup is None else str(written.backup)
        print(json.dumps({"file": str(written.file), "changed": written.changed, "backup": backup}))
    else:
        _say_written(written, told, wish)


def _print(
    known: ClientApp, told: ConnectInstructions, wish: ConnectRequest, place: Path | None, as_json: bool
) -> None:
    if as_json:
        shown = {"client": known.title, "command": told.line or None, "file": str(place) if place else None}
        print(json.dumps({**shown, "entry": told.entry}, indent=2))
        return
    if told.line:
        print(told.line)
    elif place is not None:
        say(f"in {_short(place)} (--write puts it there):")
        print(told.text(wish.name))
    if told.after:
        say(f"then {told.after}")


def _say_written(written: FileEdit, told: ConnectInstructions, wish: ConnectRequest) -> None:
    if not written.changed:
        print(f"{_short(written.file)} has {wish.name} already; nothing was changed")
        return
    kept = f"; what it was is in {written.backup.name}" if written.backup is not None else ""
    print(f"{wish.name} is in {_short(written.file)}{kept}")
    if told.after:
        say(f"then {told.after}")


def _short(path: Path) -> str:
    absolute = path.absolute()
    return f"~/{absolute.relative_to(Path.home())}" if absolute.is_relative_to(Path.home()) else str(path)
