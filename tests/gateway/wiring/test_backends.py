"""Environment variables that a module declares for its options."""

from pathlib import Path
from typing import Any

import pytest

from gateway.settings import ModuleBackend, Settings, UrlBackend, load
from gateway.upstream.health import LoadError
from gateway.upstream.module_loader import import_backend
from gateway.wiring.backends import _options_reader, find_load_errors, module_scopes

ROBLOX = "backends: {roblox: {module: backends.roblox}}"
GODOT = "backends: {godot: {module: backends.godot, options: {roots: [p]}}}"


def read(folder: Path, text: str, environ: dict[str, str]) -> Settings:
    (folder / "gatehouse.yaml").write_text(text)
    return load(folder / "gatehouse.yaml", environ)


def options(settings: Settings, namespace: str) -> dict[str, Any]:
    """The options that the module sees and that differ from its defaults."""
    entry = settings.backends[namespace]
    assert isinstance(entry, ModuleBackend)
    _, _, validated = import_backend(namespace, *entry.target, _options_reader(settings, namespace, entry))
    return validated.model_dump(exclude_unset=True)


@pytest.mark.parametrize(
    ("text", "environ", "namespace", "expected"),
    [
        (ROBLOX, {}, "roblox", {}),
        (ROBLOX, {"GOX_BRIDGE_ENABLED": "true"}, "roblox", {"bridge_enabled": True}),
        (ROBLOX, {"GOX_BRIDGE_ENABLED": " YES "}, "roblox", {"bridge_enabled": True}),
        (ROBLOX, {"GOX_BRIDGE_ENABLED": ""}, "roblox", {"bridge_enabled": False}),
        (
            "backends: {roblox: {module: backends.roblox, options: {bridge_enabled: true}}}",
            {"GOX_BRIDGE_ENABLED": "0"},
            "roblox",
            {"bridge_enabled": False},
        ),
        (
            ROBLOX,
            {"GOX_BRIDGE_ENABLED": "true", "GATEHOUSE__BACKENDS__ROBLOX__OPTIONS__BRIDGE_ENABLED": "false"},
            "roblox",
            {"bridge_enabled": False},
        ),
        (
            GODOT,
            {"GODOT_PATH": "/g", "ALLOW_DANGEROUS_OPS": "1", "ALLOW_EXTERNAL_TOOLS": "no"},
            "godot",
            {"roots": ("p",), "godot_path": "/g", "allow_dangerous_ops": True, "allow_external_tools": False},
        ),
        # A path that looks like a flag stays a path.
        (GODOT, {"GODOT_PATH": "1"}, "godot", {"roots": ("p",), "godot_path": "1"}),
        # Another variable, another module, another name.
        (ROBLOX, {"GODOT_PATH": "/g"}, "roblox", {}),
        ("backends: {games: {module: backends.godot}}", {"ALLOW_DANGEROUS_OPS": "1"}, "games", {}),
    ],
)
def test_variable_sets_an_option_of_the_entry_with_the_name_of_its_module(
    tmp_path: Path, text: str, environ: dict[str, str], namespace: str, expected: dict[str, Any]
) -> None:
    assert options(read(tmp_path, text, environ), namespace) == expected


def test_invalid_flag_is_reported_with_its_variable(tmp_path: Path) -> None:
    settings = read(tmp_path, ROBLOX, {"GOX_BRIDGE_ENABLED": "maybe"})
    (error,) = find_load_errors(settings)
    assert settings.with_origin(error.setting_path, str(error)) == (
        "environment GOX_BRIDGE_ENABLED: backends.roblox.options.bridge_enabled: expected true or false"
    )


@pytest.mark.parametrize("name", ["GOX_BRIDGE_ENABLED", "ALLOW_DANGEROUS_OPS", "ALLOW_EXTERNAL_TOOLS", "GODOT_PATH"])
def test_variable_of_a_module_does_not_apply_to_a_remote_server_with_its_name(tmp_path: Path, name: str) -> None:
    settings = read(tmp_path, "backends: {godot: {url: 'https://x.example'}, roblox: {command: x}}", {name: "maybe"})
    assert isinstance(settings.backends["godot"], UrlBackend)
    assert list(find_load_errors(settings)) == []


def test_settings_built_in_code_read_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOX_BRIDGE_ENABLED", "true")
    settings = Settings.model_validate({"backends": {"roblox": {"module": "backends.roblox"}}})
    assert options(settings, "roblox") == {}


def test_scopes_of_modules_are_those_of_enabled_entries_that_can_be_imported(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        "backends: {roblox: {module: backends.roblox}, godot: {module: backends.godot, enabled: false},"
        " broken: {module: no.such.module}, core: {module: backends.core}}",
        {},
    )
    assert module_scopes(settings) == {
        "bridge:roblox": ("Connect Roblox Studio", "roblox"),
        "roblox:undo-tenant": ("Undo changes of other users in Roblox Studio", "roblox"),
    }
    with pytest.raises(LoadError):
        raise next(iter(find_load_errors(settings)))
