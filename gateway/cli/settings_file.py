"""Editing gatehouse.yaml as a person would: comments, order and quotes of what is there stay."""

import io
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

from gateway.cli.failure import BAD_SETTINGS, CommandError
from gateway.cli.load_settings import make_importable
from gateway.contract import Json
from gateway.settings import FILE, Settings, SettingsError, UrlBackend, default_backends, load

_MEND_PRIVATE: Final = "`backends add --allow-private` takes private networks, http and any port"
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class SettingsFile:
    """One file, read whole; `save` writes it at once or not at all."""

    def __init__(self, config: Path | None) -> None:
        self.path = config or Path(os.environ.get("GATEHOUSE_CONFIG") or FILE)
        self.existed = self.path.exists()
        self._yaml = YAML()
        self._yaml.preserve_quotes = True
        self._yaml.width = 4096
        self._yaml.indent(mapping=2, sequence=4, offset=2)
        self._tree: Json = self._read()
        self._put: list[str] = []

    @property
    def backends(self) -> Mapping[str, Any]:
        """What the file itself names."""
        return cast("Mapping[str, Any]", self._tree.get("backends") or {})

    @property
    def says_what_is_served(self) -> bool:
        return bool(self.backends)

    def put(self, namespace: str, entry: Json) -> None:
        if not isinstance(self._tree.get("backends"), dict):
            self._tree["backends"] = CommentedMap()
        self._tree["backends"][namespace] = entry
        self._put.append(namespace)

    def drop(self, namespace: str) -> None:
        del self._tree["backends"][namespace]

    def save(self) -> None:
        """Raises `Failure` when the result would be no good; then the file is as it was."""
        text = self._text()
        handle, name = tempfile.mkstemp(dir=folder_of(self.path), prefix=f".{self.path.name}.")
        fresh = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            self._check(fresh, text)
            # It may hold secrets: nobody else reads it, unless they could before.
            fresh.chmod(self.path.stat().st_mode & 0o777 if self.existed else 0o600)
            fresh.replace(self.path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise

    def unset(self, namespace: str) -> list[str]:
        """Variables that this entry relies on and that are not set here."""
        return _unset(str(self.backends[namespace]))

    def _check(self, fresh: Path, text: str) -> None:
        # A variable that is not set here may be set where the gateway runs.
        unset = dict.fromkeys(_unset(text), "unset")
        try:
            settings = load(fresh, {**os.environ, **unset})
        except SettingsError as exc:
            lines = (line.replace(str(fresh), str(self.path)) for line in exc.lines)
            raise CommandError(*lines, self._as_it_was, code=BAD_SETTINGS) from exc
        if self._put:
            self._judge(settings)

    def _judge(self, settings: Settings) -> None:
        """What a gateway would refuse must not stand there: one that runs would take in no change any more."""
        from gateway.upstream.health import LoadError
        from gateway.wiring.backends import judge

        make_importable(settings)
        for namespace in self._put:
            entry = settings.backends[namespace]
            try:
                judge(settings, namespace, entry)
            except LoadError as exc:
                private = isinstance(entry, UrlBackend) and not entry.allow_private and exc.at[-1] == "url"
                mend = [_MEND_PRIVATE] if private else []
                raise CommandError(str(exc), *mend, self._as_it_was, code=BAD_SETTINGS) from exc

    @property
    def _as_it_was(self) -> str:
        return f"{self.path} is left as it was" if self.existed else f"{self.path} is not written"

    def _read(self) -> Json:
        if not self.existed:
            return cast("Json", CommentedMap())
        try:
            tree: Any = cast("Any", self._yaml).load(self.path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as exc:
            raise CommandError(f"{self.path}: cannot be read: {exc}", code=BAD_SETTINGS) from exc
        except YAMLError as exc:
            raise CommandError(f"{self.path}: not YAML; `gatehouse check` says where", code=BAD_SETTINGS) from exc
        if tree is not None and not isinstance(tree, CommentedMap):
            raise CommandError(f"{self.path}: expected settings, such as backends:", code=BAD_SETTINGS)
        return cast("Json", tree if tree is not None else CommentedMap())

    def _text(self) -> str:
        out = io.StringIO()
        cast("Any", self._yaml).dump(self._tree, out)
        return out.getvalue()


def folder_of(path: Path) -> Path:
    """Where that file lies. Raises `Failure` when there is no such folder."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise CommandError(
            f"there is no folder {folder}; make it, or name another file with --config", code=BAD_SETTINGS
        )
    return folder


def _unset(text: str) -> list[str]:
    return [name for name in dict.fromkeys(_VARIABLE.findall(text)) if name not in os.environ]


def no_longer_served(file: SettingsFile) -> str:
    """What a file that says nothing of `backends:` serves, and will not once it does; empty when nothing is lost."""
    if file.says_what_is_served:
        return ""
    names = ", ".join(default_backends())
    return f"{file.path} named no backends before, so {names} were served; add those that you want to keep"
