"""Generates `docs/settings.md` from the settings models: `python docs/make_settings.py`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from gateway.settings import (
    CommandBackend,
    IntrospectionSettings,
    IssuerSettings,
    ModuleBackend,
    OpenApiBackend,
    OperationPatterns,
    Settings,
    TenantSettings,
    UrlBackend,
    VirtualServer,
)
from gateway.settings.backends import OAuthClient, ProcessLimits
from gateway.settings.limits import LimitRule
from gateway.settings.providers import AccessRuleSettings, ProviderSettings
from gateway.settings.shape import ToolListSettings, ToolRuleSettings

PAGE: Final = Path(__file__).with_name("settings.md")

NOTES: Final[dict[str, str]] = {}
"""Notes about settings that apply to this release only."""

ENTRIES: Final[tuple[tuple[str, str, type[BaseModel]], ...]] = (
    (
        "`tenants.NAME`",
        "Permissions of one tenant. Without `tenants:` there is one tenant, `default`. The settings of a tenant are "
        "applied at every start; a tenant that is removed from the settings keeps its last state.",
        TenantSettings,
    ),
    (
        "`limits.rules.NAME`",
        "An additional limit besides `limits.calls`; [docs/scaling.md](scaling.md#limits) has examples.",
        LimitRule,
    ),
    (
        "`auth.issuers`, each",
        "An identity provider whose tokens are accepted with `auth.mode: external`.",
        IssuerSettings,
    ),
    ("`auth.issuers.N.introspection`", "The token introspection endpoint for opaque tokens.", IntrospectionSettings),
    (
        "`auth.providers.NAME`",
        "An identity provider at which users sign in. [docs/company-sign-in.md](company-sign-in.md) shows each preset.",
        ProviderSettings,
    ),
    (
        "`auth.providers.NAME.rules`, each",
        "Access of one group of the provider. The first rule that matches applies.",
        AccessRuleSettings,
    ),
    ("`servers.NAME`", "A virtual server: a subset of the backends at its own path, `/mcp/NAME`.", VirtualServer),
    (
        "`servers.NAME.tools`",
        "The tools of a virtual server. A list is short for `rules`, a word for `view`; "
        "[docs/tool-lists.md](tool-lists.md) has examples.",
        ToolListSettings,
    ),
    (
        "`servers.NAME.tools.rules`, each",
        "A rule for tools; also of `tools` in an entry of `backends`. Rules of `prompts` have all of these settings "
        "but `set` and `hide`, those of `resources` have no `name` either.",
        ToolRuleSettings,
    ),
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
    (
        "`backends.NAMESPACE.oauth`",
        "OAuth client credentials with which the gateway obtains its own token.",
        OAuthClient,
    ),
    (
        "`backends.NAMESPACE`, with `openapi`",
        "An HTTP API; each operation of its OpenAPI document is a tool.",
        OpenApiBackend,
    ),
    (
        "`backends.NAMESPACE.include` and `exclude`",
        "Operations of an API; an operation is selected if any pattern matches. `*` matches any text.",
        OperationPatterns,
    ),
    (
        "`backends.NAMESPACE`, with `command`",
        "A program that speaks MCP on its standard streams, run as a child process.",
        CommandBackend,
    ),
    ("`backends.NAMESPACE.limits`", "Resource limits of each process of a command; 0 means no limit.", ProcessLimits),
)
"""Repeatable sections: title, description and model."""

DERIVED: Final = frozenset(
    {
        "server.ops_public_url", "auth.client_documents", "auth.local_users", "max_calls_per_tenant", "resource",
    }
)  # fmt: skip
"""Settings without a fixed default; it is derived from other settings."""

HEAD: Final = """\
# Settings

<!-- Written by `python docs/make_settings.py`; change the descriptions in `gateway/settings/`, not this page. -->

Every setting has a default that suits most installations. The settings are read from the first of these that exists:

1. the file of `--config FILE`,
2. the file that the environment variable `GATEHOUSE_CONFIG` names,
3. `gatehouse.yaml` in the working folder,
4. no file: the defaults.

Environment variables override the file. `GATEHOUSE__SERVER__PORT=9000` sets `server.port`: the prefix `GATEHOUSE__`,
then the path in upper case with `__` between its parts. A hyphen in the name of a backend or virtual server is written
as `_`. Lists and mappings are written as JSON; `null` unsets a value.

In the file, `${NAME}` is replaced by an environment variable, which must be set; `${NAME:-default}` supplies a
default; `$${` is a literal `${`. Relative paths are relative to the working folder.

An unknown key, a value of the wrong type or a duplicate key is reported in one line with its file, line and column (or
its variable), and the gateway does not start. `gatehouse check` validates the settings without starting.

While the gateway runs, a change of the file or `SIGHUP` reloads `backends`, `servers` and `tenants` without dropping
a call; all other settings are read at start. An invalid file is logged and otherwise ignored. A setting whose name
ends in `_file` names files that contain the values, so that secrets can be kept out of the settings file.

Some environment variables predate Gatehouse and keep their meaning. `READ_ONLY_MODE=true` makes every tenant in the
settings read-only. Modules declare variables for their own options, which apply to the entry that has the name of the
module: `GOX_BRIDGE_ENABLED` sets `bridge_enabled` of a backend `roblox`. `GODOT_PATH`, `ALLOW_DANGEROUS_OPS` and
`ALLOW_EXTERNAL_TOOLS` set `godot_path`, `allow_dangerous_ops` and `allow_external_tools` of a backend `godot`.
"""


Row = tuple[str, FieldInfo]


def page() -> str:
    """Return the complete page."""
    return "\n".join([HEAD, *(line for section in sections() for line in _table(*section))])


def sections() -> Iterator[tuple[str, str, list[Row]]]:
    """Yield title, description and settings of each section; every setting is in exactly one."""
    parts = {name: field for name, field in Settings.model_fields.items() if _is_model(field.annotation)}
    yield "Top level", "", [(name, field) for name, field in Settings.model_fields.items() if name not in parts]
    for name, field in parts.items():
        model: Any = field.annotation
        yield f"`{name}`", field.description or "", list(_rows(name, model))
    for title, description, entry in ENTRIES:
        # Settings specific to this kind of entry come before the inherited ones.
        own_fields = entry.__annotations__
        rows = sorted(entry.model_fields.items(), key=lambda row: row[0] not in own_fields)
        yield title, description, rows


def _rows(name: str, model: type[BaseModel]) -> Iterator[Row]:
    """Yield each setting of a section and of its nested sections."""
    for key, field in model.model_fields.items():
        annotation: Any = field.annotation
        if _is_model(annotation):
            yield from _rows(f"{name}.{key}", annotation)
        else:
            yield f"{name}.{key}", field


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _table(title: str, description: str, rows: list[Row]) -> Iterator[str]:
    yield f"## {title}\n"
    if description:
        yield f"{description}\n"
    yield "| setting | default | description |\n|---|---|---|"
    paths = {path for path, _ in rows}
    for path, field in rows:
        yield f"| `{path}` | {_default(path, field, paths)} | {' '.join(_description(path, field))} |"
    yield ""


def _description(path: str, field: FieldInfo) -> Iterator[str]:
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
    """Return the default. `paths` are the settings of the section: a required one may have a `_file` alternative."""
    if field.is_required():
        return f"required, or `{path}_file`" if f"{path}_file" in paths else "required"
    if field.default_factory is not None or path in DERIVED:
        return "derived"
    return _format(field.default)


def _format(value: Any) -> str:
    match value:
        case None:
            return "none"
        case BaseModel():
            return _format(value.model_dump(mode="json"))
        case SecretStr():
            return "none"
        case Path() | str():
            return f"`{value}`"
        case tuple() | dict() if not value:
            return "none"
        case dict():
            return f"`{json.dumps({key: _to_plain(inner) for key, inner in value.items()})}`"
        case _:
            return f"`{json.dumps(value)}`"


def _to_plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
