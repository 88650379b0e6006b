"""Edits gatehouse.yaml and preserves its comments, order and quotes. Used by `gatehouse backends` and `import`."""

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
from gateway.cli.load_settings import add_module_paths
from gateway.contract import Json
from gateway.settings import FILE, OpenApiBackend, Settings, SettingsError, UrlBackend, default_backends, load

CLIENT_TRUST: Final = "client"
"""`trust` of the servers that commands add: those of one user, whose client asks before it calls a tool."""
CLIENT_TRUST_NOTICE: Final = (
    "trust: client: the gateway asks for no approval, because clients ask their users; "
    "set trust: annotations to require approval of destructive tools"
)
_PRIVATE_HINT: Final = "`backends add --allow-private` allows private addresses, plain HTTP and any port"
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class SettingsFile:
    """A settings file in memory; `save` validates it and replaces the file atomically."""

    def __init__(self, config: Path | None) -> None:
        self.path = config or Path(os.environ.get("GATEHOUSE_CONFIG") or FILE)
        self.existed = self.path.exists()
        self._yaml = YAML()
        self._yaml.preserve_quotes = True
        self._yaml.width = 4096
        self._yaml.indent(mapping=2, sequence=4, offset=2)
        self._tree: Json = self._read()
        self._added: list[str] = []

    @property
    def backends(self) -> Mapping[str, Any]:
        """The entries of the file, without defaults."""
        return cast("Mapping[str, Any]", self._tree.get("backends") or {})

    @property
    def names_backends(self) -> bool:
        return bool(self.backends)

    def put(self, namespace: str, entry: Json) -> None:
        if not isinstance(self._tree.get("backends"), dict):
            self._tree["backends"] = CommentedMap()
        self._tree["backends"][namespace] = entry
        self._added.append(namespace)

    def remove(self, namespace: str) -> None:
        del self._tree["backends"][namespace]

    def save(self) -> None:
        """Validate and write the file. Raises `CommandError` and leaves the file unchanged if the result is invalid."""
        text = self._text()
        handle, name = tempfile.mkstemp(dir=existing_parent(self.path), prefix=f".{self.path.name}.")
        fresh = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            self._check(fresh, text)
            # The file may contain secrets: a new one is readable only by its owner.
            fresh.chmod(self.path.stat().st_mode & 0o777 if self.existed else 0o600)
            fresh.replace(self.path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise

    def unset_variables(self, namespace: str) -> list[str]:
        """Variables that the entry uses and that are not set in this environment."""
        return _unset_variables(str(self.backends[namespace]))

    def _check(self, fresh: Path, text: str) -> None:
        # A variable that is unset in this environment may be set for the gateway.
        unset = dict.fromkeys(_unset_variables(text), "unset")
        try:
            settings = load(fresh, {**os.environ, **unset})
        except SettingsError as exc:
            lines = (line.replace(str(fresh), str(self.path)) for line in exc.lines)
            raise CommandError(*lines, self._unchanged_message, code=BAD_SETTINGS) from exc
        if self._added:
            self._check_added(settings)

    def _check_added(self, settings: Settings) -> None:
        """Check the added backends as the gateway would: an invalid entry would block every later reload."""
        from gateway.upstream.health import LoadError
        from gateway.wiring.backends import check_backend

        add_module_paths(settings)
        for namespace in self._added:
            entry = settings.backends[namespace]
            try:
                check_backend(settings, namespace, entry)
            except LoadError as exc:
                private = (
                    isinstance(entry, UrlBackend | OpenApiBackend)
                    and not entry.allow_private
                    and exc.setting_path[-1] in ("url", "openapi")
                )
                hints = [_PRIVATE_HINT] if private else []
                raise CommandError(str(exc), *hints, self._unchanged_message, code=BAD_SETTINGS) from exc

    @property
    def _unchanged_message(self) -> str:
        return f"{self.path} was not changed" if self.existed else f"{self.path} was not written"

    def _read(self) -> Json:
        if not self.existed:
            return cast("Json", CommentedMap())
        try:
            tree: Any = cast("Any", self._yaml).load(self.path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as exc:
            raise CommandError(f"{self.path}: cannot be read: {exc}", code=BAD_SETTINGS) from exc
        except YAMLError as exc:
            raise CommandError(
                f"{self.path}: not valid YAML; `gatehouse check` shows the position", code=BAD_SETTINGS
            ) from exc
        if tree is not None and not isinstance(tree, CommentedMap):
            raise CommandError(f"{self.path}: not a mapping; expected settings such as backends:", code=BAD_SETTINGS)
        return cast("Json", tree if tree is not None else CommentedMap())

    def _text(self) -> str:
        out = io.StringIO()
        cast("Any", self._yaml).dump(self._tree, out)
        return out.getvalue()


def existing_parent(path: Path) -> Path:
    """The folder of a file. Raises `CommandError` if it does not exist."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise CommandError(
            f"folder {folder} does not exist; create it, or choose another file with --config", code=BAD_SETTINGS
        )
    return folder


def _unset_variables(text: str) -> list[str]:
    return [name for name in dict.fromkeys(_VARIABLE.findall(text)) if name not in os.environ]


def default_backends_notice(file: SettingsFile) -> str:
    """A notice if the first entry under `backends:` replaces the default backends; else an empty string."""
    if file.names_backends:
        return ""
    names = ", ".join(default_backends())
    return f"the default backends ({names}) are no longer served; add those you need to {file.path}"
