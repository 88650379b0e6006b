"""Writes `docs/settings.md` from the settings themselves: `python docs/make_settings.py`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from gateway.settings import (
    CommandBackend,
    Introspection,
    Issuer,
    ModuleBackend,
    Settings,
    Tenant,
    UrlBackend,
    VirtualServer,
)
from gateway.settings.backends import OAuthClient, ProcessLimits
from gateway.settings.limits import LimitRule

PAGE: Final = Path(__file__).with_name("settings.md")

NOTES: Final[dict[str, str]] = {}
"""What is true of this release beside what the setting is for."""

ENTRIES: Final[tuple[tuple[str, str, type[BaseModel]], ...]] = (
    (
        "`tenants.NAME`",
        "What one tenant may see and do. With no `tenants:` there is one, `default`. What the settings name they set "
        "at every start; a tenant that they no longer name stays as it was.",
        Tenant,
    ),
    (
        "`limits.rules.NAME`",
        "One limit beside `limits.calls`; [docs/scaling.md](scaling.md#limits) has examples.",
        LimitRule,
    ),
    (
        "`auth.issuers`, each",
        "An identity provider whose tokens are taken, with `auth.mode: external`.",
        Issuer,
    ),
    ("`auth.issuers.N.introspection`", "Where opaque tokens are asked about.", Introspection),
    ("`servers.NAME`", "Some backends under an address of their own, `/mcp/NAME`.", VirtualServer),
    (
        "`backends.NAMESPACE`, with `module`",
        "A backend in this process. The namespace is a lower-case letter, then at most 19 of a-z, 0-9 and hyphen.",
        ModuleBackend,
    ),
    (
        "`backends.NAMESPACE`, with `url`",
        "A remote MCP server.",
        UrlBackend,
    ),
    ("`backends.NAMESPACE.oauth`", "A token of the gateway's own, by the client credentials grant.", OAuthClient),
    (
        "`backends.NAMESPACE`, with `command`",
        "A program that speaks MCP on its standard streams, run as a child process.",
        CommandBackend,
    ),
    ("`backends.NAMESPACE.limits`", "What each process of a command may use; 0 is no limit.", ProcessLimits),
)
"""The parts of which there may be many: title, what it is, and its model."""

DERIVED: Final = frozenset({"server.ops_public_url", "auth.client_documents", "max_calls_per_tenant", "resource"})
"""Settings whose default is worked out of others, though their own is none."""

HEAD: Final = """\
# Settings

<!-- Written by `python docs/make_settings.py`; change the descriptions in `gateway/settings/`, not this page. -->

Every setting has a default that is right for most. They are read from the first of these that there is:

1. the file of `--config FILE`,
2. the file that the environment variable `GATEHOUSE_CONFIG` names,
3. `gatehouse.yaml` in the working folder,
4. none: the defaults.

The environment is laid over the file. `GATEHOUSE__SERVER__PORT=9000` sets `server.port`: the prefix `GATEHOUSE__`,
then the path in capitals with `__` between its parts; a hyphen in the name of a backend or virtual server is written
`_`. Lists and mappings are written as JSON, and `null` unsets.

In the file, `${NAME}` is the environment variable of that name and must be set; `${NAME:-default}` need not be; `$${`
is a plain `${`. Relative paths count from the working folder.

An unknown key, a value of the wrong kind or a key given twice is one line with its file, line and column (or its
variable), and nothing starts. `gatehouse check` looks without starting.

While the gateway runs, a change of the file or `SIGHUP` applies `backends`, `servers` and `tenants` without dropping
a call; all else is read at the start. A file with a mistake changes nothing but the log. A setting whose name ends in
`_file` names files that hold the values, so that secrets need not stand in this one.

Some variables are older than Gatehouse and work as they did: `READ_ONLY_MODE=true` makes every tenant read-only that
the settings name; `GOX_BRIDGE_ENABLED` sets `bridge_enabled` of a backend `roblox`, and `GODOT_PATH`,
`ALLOW_DANGEROUS_OPS` and `ALLOW_EXTERNAL_TOOLS` set `godot_path`, `allow_dangerous_ops` and `allow_external_tools` of
a backend `godot`, where the settings have one.
"""


Row = tuple[str, FieldInfo]


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(line for section in sections() for line in _table(*section))])


def sections() -> Iterator[tuple[str, str, list[Row]]]:
    """Title, words and settings of each part; every setting is in one of them."""
    parts = {name: field for name, field in Settings.model_fields.items() if _is_model(field.annotation)}
    yield "The top", "", [(name, field) for name, field in Settings.model_fields.items() if name not in parts]
    for name, field in parts.items():
        model: Any = field.annotation
        yield f"`{name}`", field.description or "", list(_rows(name, model))
    for title, words, entry in ENTRIES:
        # What makes the entry what it is comes before what all entries have.
        own = entry.__annotations__
        rows = sorted(entry.model_fields.items(), key=lambda row: row[0] not in own)
        yield title, words, rows


def _rows(name: str, model: type[BaseModel]) -> Iterator[Row]:
    """Each setting of a part, and of the parts within it."""
    for key, field in model.model_fields.items():
        within: Any = field.annotation
        if _is_model(within):
            yield from _rows(f"{name}.{key}", within)
        else:
            yield f"{name}.{key}", field


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _table(title: str, words: str, rows: list[Row]) -> Iterator[str]:
    yield f"## {title}\n"
    if words:
        yield f"{words}\n"
    yield "| setting | default | |\n|---|---|---|"
    paths = {path for path, _ in rows}
    for path, field in rows:
        yield f"| `{path}` | {_default(path, field, paths)} | {' '.join(_words(path, field))} |"
    yield ""


def _words(path: str, field: FieldInfo) -> Iterator[str]:
    yield (field.description or "").replace("|", "\\|")
    if choices := list(_choices(field.annotation)):
        yield f"One of {', '.join(f'`{choice}`' for choice in choices)}."
    if path in NOTES:
        yield f"*{NOTES[path]}*"


def _choices(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Literal:
        if len(get_args(annotation)) > 1:
            yield from get_args(annotation)
    else:
        for part in get_args(annotation):
            yield from _choices(part) if part is not type(None) else ()


def _default(path: str, field: FieldInfo, paths: set[str]) -> str:
    """`paths` are those of the same part: what is required may also be given as a file."""
    if field.is_required():
        return f"required, or `{path}_file`" if f"{path}_file" in paths else "required"
    if field.default_factory is not None or path in DERIVED:
        return "derived"
    return _shown(field.default)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "none"
        case BaseModel():
            return _shown(value.model_dump(mode="json"))
        case SecretStr():
            return "none"
        case Path() | str():
            return f"`{value}`"
        case tuple() | dict() if not value:
            return "none"
        case dict():
            return f"`{json.dumps({key: _plain(inner) for key, inner in value.items()})}`"
        case _:
            return f"`{json.dumps(value)}`"


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
