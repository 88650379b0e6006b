"""One entry into a client's file; everything else in it stays as it was written, comments included."""

import json
import os
import re
import shutil
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from gateway.cli.connect.clients import Told, table
from gateway.cli.failure import Failure
from gateway.cli.imports.clients import plain_json
from gateway.contract import Json

_BLANK: Final = re.compile(r"\s*")
_decode: Final = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class Written:
    file: Path
    changed: bool
    backup: Path | None = None


def write(file: Path, name: str, told: Told) -> Written:
    """Raises `Failure`, the file being as it was."""
    file = file.resolve() if file.is_symlink() else file
    before = _text(file)
    try:
        after = _toml(before, name, told) if told.form == "toml" else _json(before, name, told)
    except (ValueError, tomllib.TOMLDecodeError) as exc:
        raise Failure(f"{file}: cannot be read, so it is left as it was: {exc}") from exc
    if after == before:
        return Written(file, False)
    backup = None
    if before:
        backup = file.with_name(f"{file.name}.{time.strftime('%Y%m%d-%H%M%S')}.bak")
        shutil.copy2(file, backup)
    _replace(file, after)
    return Written(file, True, backup)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig") if file.exists() else ""
    except (OSError, UnicodeDecodeError) as exc:
        raise Failure(f"{file}: cannot be read: {exc}") from exc


def _replace(file: Path, text: str) -> None:
    """At once or not at all; a new file may hold a key and is its owner's alone."""
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(draft, mode)
        os.replace(draft, file)
    except OSError as exc:
        raise Failure(f"{file}: cannot be written: {exc.strerror}") from exc


# ---- JSON, with the comments that some clients allow ----


def _json(text: str, name: str, told: Told) -> str:
    tree = _tree(text)
    if _object(tree.get(told.holder, {})).get(name) != told.entry:
        text = _put(text, (told.holder, name), told.entry)
    if told.inputs is not None and all(each.get("id") != told.inputs["id"] for each in _inputs(tree)):
        text = _put(text, ("inputs",), [*_inputs(tree), told.inputs])
    _tree(text)  # what was made must be readable
    return text


def _tree(text: str) -> Json:
    if not text.strip():
        return {}
    return _object(json.loads(plain_json(text)))


def _object(found: Any) -> Json:
    if not isinstance(found, dict):
        raise ValueError("expected an object")
    return cast("Json", found)


def _inputs(tree: Json) -> list[Json]:
    return cast("list[Json]", tree.get("inputs") or [])


def _put(text: str, path: tuple[str, ...], value: Any) -> str:
    if not text.strip():
        text = "{}\n"
    # Blanks stand where comments were, so places in the one are places in the other.
    plain = plain_json(text)
    return _put_in(text, plain, _blank(plain, 0), path, value, 1)


def _put_in(text: str, plain: str, start: int, path: tuple[str, ...], value: Any, depth: int) -> str:
    key, *below = path
    there = list(_members(plain, start))
    for found, began, ended in there:
        if found == key and below and plain[began] == "{":
            return _put_in(text, plain, began, tuple(below), value, depth + 1)
        if found == key:
            return text[:began] + _shown(_nested(below, value), depth) + text[ended:]
    shown = f"\n{'  ' * depth}{json.dumps(key)}: {_shown(_nested(below, value), depth)}"
    if there:
        return f"{text[: start + 1]}{shown},{text[start + 1 :]}"
    end = plain.index("}", start)
    kept = text[start + 1 : end].rstrip()
    return f"{text[: start + 1]}{kept}{shown}\n{'  ' * (depth - 1)}{text[end:]}"


def _nested(path: list[str], value: Any) -> Any:
    return {path[0]: _nested(path[1:], value)} if path else value


def _shown(value: Any, depth: int) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{'  ' * depth}")


def _members(plain: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Key, and where its value begins and ends, of each member of the object that begins there."""
    at = _blank(plain, start + 1)
    while plain[at] != "}":
        key, at = _decode(plain, at)
        began = _blank(plain, _blank(plain, at) + 1)
        _, ended = _decode(plain, began)
        yield key, began, ended
        at = _blank(plain, ended)
        at = _blank(plain, at + 1) if plain[at] == "," else at


def _blank(plain: str, at: int) -> int:
    found = _BLANK.match(plain, at)
    assert found is not None
    return found.end()


# ---- TOML ----


def _toml(text: str, name: str, told: Told) -> str:
    wanted = told.entry or {}
    tree = tomllib.loads(text)
    if (_object(tree.get(told.holder, {}))).get(name) == wanted:
        return text
    block = f"{table(name, wanted)}\n"
    # From its heading to the next heading that is not one of its own parts.
    header = rf"^\[{told.holder}\.{re.escape(name)}\][^\n]*\n(?:(?!\[)[^\n]*(?:\n|\Z))*"
    after, found = re.subn(header, lambda _: f"{block}\n", text, count=1, flags=re.MULTILINE)
    if not found:
        after = f"{text.rstrip()}\n\n{block}".lstrip()
    if tomllib.loads(after).get(told.holder, {}).get(name) != wanted:
        raise ValueError(f"{told.holder}.{name} is written there in a way that is not ours to change")
    return after
