"""`gatehouse connect`: prints how to connect a client, or writes the entry into the client's configuration file."""

import json
from pathlib import Path

from gateway.cli.client_apps import CLIENTS, ClientApp
from gateway.cli.client_config import VARIABLE, ConnectInstructions, ConnectRequest, FileEdit, write
from gateway.cli.failure import CommandError, print_stderr


def connect(client: str, request: ConnectRequest, file: Path | None, *, write_file: bool, as_json: bool) -> None:
    app = CLIENTS[client]
    instructions = app.instructions(request)
    path = file or (app.file() if app.file is not None else None)
    if not write_file:
        _print(app, instructions, request, path, as_json)
        return
    if path is None or instructions.entry is None:
        raise CommandError(
            f"{app.title} has no configuration file; run the command that `gatehouse connect {client}` prints", code=2
        )
    if app.needs_token and request.key and request.token is None:
        raise CommandError(f"the file must contain the key; give --token, or set {VARIABLE}", code=2)
    edit = write(path, request.name, instructions)
    if as_json:
        backup = None if edit.backup is None else str(edit.backup)
        print(json.dumps({"file": str(edit.file), "changed": edit.changed, "backup": backup}))
    else:
        _print_edit(edit, instructions, request)


def _print(
    app: ClientApp, instructions: ConnectInstructions, request: ConnectRequest, path: Path | None, as_json: bool
) -> None:
    if as_json:
        shown = {"client": app.title, "command": instructions.command or None, "file": str(path) if path else None}
        print(json.dumps({**shown, "entry": instructions.entry}, indent=2))
        return
    if instructions.command:
        print(instructions.command)
    elif path is not None:
        print_stderr(f"add to {_short(path)} (or use --write):")
        print(instructions.text(request.name))
    if instructions.next_step:
        print_stderr(f"next: {instructions.next_step}")


def _print_edit(edit: FileEdit, instructions: ConnectInstructions, request: ConnectRequest) -> None:
    if not edit.changed:
        print(f"{_short(edit.file)} already contains {request.name}; nothing changed")
        return
    backup = f"; the previous file is {edit.backup.name}" if edit.backup is not None else ""
    print(f"added {request.name} to {_short(edit.file)}{backup}")
    if instructions.next_step:
        print_stderr(f"next: {instructions.next_step}")


def _short(path: Path) -> str:
    absolute = path.absolute()
    return f"~/{absolute.relative_to(Path.home())}" if absolute.is_relative_to(Path.home()) else str(path)
