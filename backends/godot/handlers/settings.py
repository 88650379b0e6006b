"""Handlers for `project.godot` (settings, autoloads, input map) and for saved game data."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from backends.godot import files
from backends.godot.envelope import Outcome
from backends.godot.paths import DATA_FOLDER, PROJECT_FILE, Project, ProjectPath
from backends.godot.text import settings
from backends.godot.text.literal import from_literal, to_literal
from backends.godot.text.scan import quote, unquote
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind

_NAME: Final = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
_KEYS: Final[Mapping[str, int]] = {
    "SPACE": 32, "ESCAPE": 4194305, "TAB": 4194306, "BACKSPACE": 4194308, "ENTER": 4194309, "KP_ENTER": 4194310,
    "INSERT": 4194311, "DELETE": 4194312, "HOME": 4194317, "END": 4194318, "LEFT": 4194319, "UP": 4194320,
    "RIGHT": 4194321, "DOWN": 4194322, "PAGEUP": 4194323, "PAGEDOWN": 4194324, "SHIFT": 4194325, "CTRL": 4194326,
    "ALT": 4194328, **{f"F{number}": 4194331 + number for number in range(1, 13)},
}  # fmt: skip


def settings_path(project: Project) -> ProjectPath:
    return ProjectPath(project.root, project.root / PROJECT_FILE)


def _read_settings(call: ToolCall) -> str:
    return files.read_text(settings_path(call.project), "The project's settings")


def _save(call: ToolCall, text: str, section: str, key: str, value: str | None) -> tuple[Json, ...]:
    """Write the settings file and verify the key."""
    location = settings_path(call.project)
    size = files.write_text(location, text)
    if settings.get_value(files.read_text(location), section, key) != value:
        raise Fault(Kind.INTERNAL, "The setting does not match what was written.")
    return (location.describe("settings", size),)


def _split_key(call: ToolCall) -> tuple[str, str]:
    """Return (section, key) of `section/key`, or of the separate `section` and `key` arguments."""
    key = call.text("key")
    if call.get("section"):
        return call.text("section"), key
    section, _, rest = key.partition("/")
    if not rest:
        raise Fault(
            Kind.INVALID_INPUT, "key must be section/name, or a name together with section.", details={"key": key}
        )
    return section, rest


def _validate_key(section: str, key: str) -> None:
    if not re.fullmatch(r"[\w.\-]+", section) or not re.fullmatch(r"[\w./\-:]+", key):
        raise Fault(Kind.INVALID_INPUT, "A section or key may contain only letters, digits and _ . - / :")


def get_settings(call: ToolCall) -> Outcome:
    values = settings.values(_read_settings(call))
    if call.get("key"):
        return _get_setting(call, values)
    if call.get("section"):
        section = call.text("section")
        if section not in values:
            raise Fault(Kind.NOT_FOUND, f"project.godot has no section {section}.")
        return Outcome(
            f"{section} has {len(values[section])} settings.", {"section": section, "settings": values[section]}
        )
    return Outcome(f"project.godot has {len(values)} sections.", {"settings": values})


def _get_setting(call: ToolCall, values: Json) -> Outcome:
    """Return one setting: as set in project.godot, else the engine's default, marked as such."""
    section, key = _split_key(call)
    shown: Json = {"section": section, "key": key}
    known = call.services.class_data.setting(f"{section}/{key}")
    if known is not None:
        shown["type"] = known[0]
    if key in values.get(section, {}):
        return Outcome(f"{section}/{key} is set.", {**shown, "value": values[section][key], "default": False})
    if known is None:
        raise Fault(Kind.NOT_FOUND, f"There is no setting {section}/{key}.")
    value = from_literal(known[1] or "null")
    return Outcome(f"{section}/{key} has its default value.", {**shown, "value": value, "default": True})


def set_setting(call: ToolCall) -> Outcome:
    section, key = _split_key(call)
    _validate_key(section, key)
    known = call.services.class_data.setting(f"{section}/{key}")
    written = _to_setting_literal(call.arguments.get("value"), known[0] if known else None, f"{section}/{key}")
    before = _read_settings(call)
    after = settings.set_value(before, section, key, written)
    written_files = _save(call, after, section, key, written)
    details: Json = {"section": section, "key": key, "value": from_literal(written), "changed": before != after}
    warnings = () if known else (f"The engine has no setting {section}/{key} of its own: it is stored as it is.",)
    return Outcome(f"Set {section}/{key}.", details, warnings=warnings, files=written_files)


def set_values(call: ToolCall, section: str, values: dict[str, str], summary: str) -> Outcome:
    """Set several keys of one section to literals."""
    text = _read_settings(call)
    for key, value in values.items():
        _validate_key(section, key)
        text = settings.set_value(text, section, key, value)
    last = next(reversed(values))
    written_files = _save(call, text, section, last, values[last])
    return Outcome(
        summary, {"settings": {f"{section}/{key}": from_literal(values[key]) for key in values}}, files=written_files
    )


def _to_setting_literal(value: Any, kind: str | None, key: str) -> str:
    """Return the literal of a value of the setting's type. Text may spell a number, a boolean or another literal."""
    if kind in (None, "Nil"):
        return _guess_literal(value)
    if isinstance(value, str) and kind not in ("String", "StringName", "NodePath"):
        value = from_literal(value)
    elif isinstance(value, str) and re.fullmatch(r'"(?:[^"\\\n]|\\.)*"', value):
        value = unquote(value)
    converted: Any = value
    if isinstance(value, list) and kind.startswith("Packed"):
        converted = {"$type": kind, "values": cast("list[Any]", value)}
    if not _fits(converted, kind):
        raise Fault(
            Kind.INVALID_INPUT, f"{key} is a {kind}: it does not take this value.", details={"key": key, "type": kind}
        )
    match kind:
        case "String":
            return quote(str(converted))
        case "int":
            return str(int(converted))
        case "float":
            return to_literal(float(converted))
        case _:
            return to_literal(converted)


def _fits(value: Any, kind: str) -> bool:
    fits: dict[str, bool] = {
        "bool": isinstance(value, bool),
        "int": isinstance(value, int | float) and not isinstance(value, bool) and value == int(value),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "String": isinstance(value, str),
        "Array": isinstance(value, list),
    }
    typed = cast("Json", value).get("$type") if isinstance(value, dict) else None
    if kind == "Dictionary":
        fits[kind] = isinstance(value, dict) and typed in (None, "Dictionary")
    return fits.get(kind, typed == kind)


def _guess_literal(value: Any) -> str:
    """Return the literal of a setting of unknown type. A number, boolean or quoted string in text is a literal."""
    if isinstance(value, str):
        if re.fullmatch(r"true|false|null|-?\d+(\.\d+)?(e[-+]?\d+)?", value):
            return value
        if re.fullmatch(r'"(?:[^"\\\n]|\\.)*"', value):
            return quote(unquote(value))
    return to_literal(value)


def autoloads(call: ToolCall) -> Outcome:
    text = _read_settings(call)
    current = {name: unquote(value) for name, value in settings.sections(text).get("autoload", {}).items()}
    if call.text("action") == "list":
        shown = [{"name": name, "path": path.lstrip("*"), "enabled": path[:1] == "*"} for name, path in current.items()]
        return Outcome(f"There are {len(shown)} autoloads.", {"autoloads": shown})
    name = call.text("name")
    if not _NAME.fullmatch(name):
        raise Fault(Kind.INVALID_INPUT, "name must start with a letter or _ and contain only letters, digits and _.")
    if call.text("action") == "remove":
        if name not in current:
            raise Fault(Kind.NOT_FOUND, f"There is no autoload {name}.")
        written_files = _save(call, settings.remove_key(text, "autoload", name), "autoload", name, None)
        return Outcome(f"Removed the autoload {name}.", {"name": name}, files=written_files)
    location = call.resolve_path("path")
    if not files.exists(location):
        raise Fault(Kind.NOT_FOUND, f"There is no file {location.res}.")
    value = quote("*" + location.res)
    written_files = _save(call, settings.set_value(text, "autoload", name, value), "autoload", name, value)
    return Outcome(f"{name} is loaded at startup.", {"name": name, "path": location.res}, files=written_files)


def input_actions(call: ToolCall) -> Outcome:
    text = _read_settings(call)
    current = settings.sections(text).get("input", {})
    if call.text("action") == "list":
        return Outcome(f"The project defines {len(current)} actions.", {"actions": sorted(current)})
    name = call.text("name")
    if not re.fullmatch(r"[\w.\-]{1,64}", name):
        raise Fault(Kind.INVALID_INPUT, "name is required and may contain only letters, digits and _ . -")
    if call.text("action") == "remove":
        if name not in current:
            raise Fault(Kind.NOT_FOUND, f"There is no action {name}.")
        written_files = _save(call, settings.remove_key(text, "input", name), "input", name, None)
        return Outcome(f"Removed the action {name}.", {"name": name}, files=written_files)
    value = _action_literal(
        float(call.get("deadzone", 0.5)), [_event_literal(event) for event in call.get("events", [])]
    )
    written_files = _save(call, settings.set_value(text, "input", name, value), "input", name, value)
    return Outcome(
        f"Set the action {name}.", {"name": name, "events": len(call.get("events", []))}, files=written_files
    )


def input_map(call: ToolCall) -> Outcome:
    """Set several actions at once. Keys are names or key codes."""
    text = _read_settings(call)
    for action in call.get("actions"):
        events = [_event_literal({"type": "key", "keycode": str(key)}) for key in action.get("keys", [])]
        value = _action_literal(float(action.get("deadzone", 0.5)), events)
        if not re.fullmatch(r"[\w.\-]{1,64}", action["name"]):
            raise Fault(Kind.INVALID_INPUT, "An action name may contain only letters, digits and _ . -")
        text = settings.set_value(text, "input", action["name"], value)
    names = [action["name"] for action in call.get("actions")]
    written_files = _save(call, text, "input", names[-1], settings.get_value(text, "input", names[-1]))
    return Outcome(f"Set {len(names)} actions.", {"actions": names}, files=written_files)


def _action_literal(deadzone: float, events: list[str]) -> str:
    return "{\n" + f'"deadzone": {deadzone},\n"events": [{", ".join(events)}]' + "\n}"


def _event_literal(event: Json) -> str:
    match event["type"]:
        case "key":
            return (
                f'Object(InputEventKey,"resource_local_to_scene":false,"resource_name":"","device":-1,"window_id":0,'
                f'"alt_pressed":false,"shift_pressed":false,"ctrl_pressed":false,"meta_pressed":false,"pressed":false,'
                f'"keycode":0,"physical_keycode":{_key_code(str(event.get("keycode", "")))},"key_label":0,"unicode":0,'
                f'"location":0,"echo":false,"script":null)'
            )
        case "joypad_axis":
            axis, value = int(event.get("axis", 0)), float(event.get("axisValue", 1))
            return f'Object(InputEventJoypadMotion,"device":-1,"axis":{axis},"axis_value":{value},"script":null)'
        case kind:
            shape = "InputEventMouseButton" if kind == "mouse_button" else "InputEventJoypadButton"
            return (
                f'Object({shape},"device":-1,"button_index":{int(event.get("button", 0))},"pressed":true,"script":null)'
            )


def _key_code(key_name: str) -> int:
    name = key_name.upper().removeprefix("KEY_")
    if name in _KEYS:
        return _KEYS[name]
    if len(name) == 1 and name.isascii() and name.isprintable():
        return ord(name)
    if name.isdigit():
        return int(name)
    raise Fault(Kind.INVALID_INPUT, f"There is no key {key_name!r}.", details={"known": sorted(_KEYS)})


# ---- saved game data ----------------------------------------------------------------------------------------------


def _load_saved_data(call: ToolCall) -> tuple[ProjectPath, Json]:
    location = ProjectPath(call.project.root, call.project.root / DATA_FOLDER / "game_data.json")
    if not files.exists(location):
        return location, {}
    try:
        return location, json.loads(files.read_text(location))
    except ValueError as exc:
        raise Fault(Kind.INTERNAL, "The saved data is not valid JSON.") from exc


def save_data(call: ToolCall) -> Outcome:
    location, data = _load_saved_data(call)
    data[call.text("key")] = call.arguments.get("value")
    size = files.write_text(location, json.dumps(data, ensure_ascii=False, indent=1))
    return Outcome(f"Saved {call.text('key')}.", {"key": call.text("key")}, files=(location.describe("data", size),))


def load_data(call: ToolCall) -> Outcome:
    _, data = _load_saved_data(call)
    key = call.text("key")
    if key not in data and "defaultValue" not in call.arguments:
        raise Fault(Kind.NOT_FOUND, f"Nothing is saved as {key}.")
    return Outcome(f"Read {key}.", {"key": key, "value": data.get(key, call.arguments.get("defaultValue"))})
