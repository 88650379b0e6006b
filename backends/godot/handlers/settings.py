"""`project.godot`: settings, autoloads, the input map; and a project's saved data."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from backends.godot import files
from backends.godot.envelope import Outcome
from backends.godot.paths import OURS, PROJECT_FILE, Place, Project
from backends.godot.text import settings
from backends.godot.text.literal import literal
from backends.godot.text.scan import quoted, unquoted
from backends.godot.tool import Job
from gateway.contract import Json
from gateway.errors import Fault, Kind

_NAME: Final = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
_KEYS: Final[Mapping[str, int]] = {
    "SPACE": 32, "ESCAPE": 4194305, "TAB": 4194306, "BACKSPACE": 4194308, "ENTER": 4194309, "KP_ENTER": 4194310,
    "INSERT": 4194311, "DELETE": 4194312, "HOME": 4194317, "END": 4194318, "LEFT": 4194319, "UP": 4194320,
    "RIGHT": 4194321, "DOWN": 4194322, "PAGEUP": 4194323, "PAGEDOWN": 4194324, "SHIFT": 4194325, "CTRL": 4194326,
    "ALT": 4194328, **{f"F{number}": 4194331 + number for number in range(1, 13)},
}  # fmt: skip


def place_of(project: Project) -> Place:
    return Place(project.root, project.root / PROJECT_FILE)


def _text(job: Job) -> str:
    return files.read_text(place_of(job.project), "The project's settings")


def _save(job: Job, text: str, section: str, key: str, value: str | None) -> tuple[Json, ...]:
    """Written, and read back."""
    place = place_of(job.project)
    size = files.write_text(place, text)
    if settings.get(files.read_text(place), section, key) != value:
        raise Fault(Kind.INTERNAL, "The setting does not read back as it was written.")
    return (place.described("settings", size),)


def _split(job: Job) -> tuple[str, str]:
    """`application/run/main_scene`, or the section apart."""
    key = job.text("key")
    if job.get("section"):
        return job.text("section"), key
    section, _, rest = key.partition("/")
    if not rest:
        raise Fault(Kind.INVALID_INPUT, "key is section/name, or name with the section apart.", details={"key": key})
    return section, rest


def _checked(section: str, key: str) -> None:
    if not re.fullmatch(r"[\w.\-]+", section) or not re.fullmatch(r"[\w./\-:]+", key):
        raise Fault(Kind.INVALID_INPUT, "A section or key has letters, digits and _ . - / : only.")


def get(job: Job) -> Outcome:
    values = settings.values(_text(job))
    if job.get("key"):
        section, key = _split(job)
        if key not in values.get(section, {}):
            raise Fault(Kind.NOT_FOUND, f"project.godot does not set {section}/{key}: it has its default.")
        return Outcome(f"{section}/{key} is set.", {"section": section, "key": key, "value": values[section][key]})
    if job.get("section"):
        section = job.text("section")
        if section not in values:
            raise Fault(Kind.NOT_FOUND, f"project.godot has no section {section}.")
        return Outcome(
            f"{section} has {len(values[section])} settings.", {"section": section, "settings": values[section]}
        )
    return Outcome(f"project.godot has {len(values)} sections.", {"settings": values})


def put(job: Job) -> Outcome:
    section, key = _split(job)
    _checked(section, key)
    given = job.arguments.get("value")
    written = _as_setting(given)
    before = _text(job)
    after = settings.put(before, section, key, written)
    made = _save(job, after, section, key, written)
    details = {"section": section, "key": key, "value": written, "changed": before != after}
    return Outcome(f"Set {section}/{key}.", details, files=made)


def _as_setting(given: Any) -> str:
    """A caller may give every value as text: a number, boolean or Godot literal in it is meant as such."""
    if isinstance(given, str):
        if re.fullmatch(r"true|false|null|-?\d+(\.\d+)?(e[-+]?\d+)?", given):
            return given
        if re.fullmatch(r'"(?:[^"\\\n]|\\.)*"', given):
            return quoted(unquoted(given))
    return literal(given)


def autoloads(job: Job) -> Outcome:
    text = _text(job)
    now = {name: unquoted(value) for name, value in settings.sections(text).get("autoload", {}).items()}
    if job.text("action") == "list":
        shown = [{"name": name, "path": path.lstrip("*"), "enabled": path[:1] == "*"} for name, path in now.items()]
        return Outcome(f"There are {len(shown)} autoloads.", {"autoloads": shown})
    name = job.text("name")
    if not _NAME.fullmatch(name):
        raise Fault(Kind.INVALID_INPUT, "name is needed: a letter or _, then letters, digits and _.")
    if job.text("action") == "remove":
        if name not in now:
            raise Fault(Kind.NOT_FOUND, f"There is no autoload {name}.")
        made = _save(job, settings.drop(text, "autoload", name), "autoload", name, None)
        return Outcome(f"Removed the autoload {name}.", {"name": name}, files=made)
    place = job.place("path")
    if not files.exists(place):
        raise Fault(Kind.NOT_FOUND, f"There is no file {place.res}.")
    value = quoted("*" + place.res)
    made = _save(job, settings.put(text, "autoload", name, value), "autoload", name, value)
    return Outcome(f"{name} is loaded at start.", {"name": name, "path": place.res}, files=made)


def input_actions(job: Job) -> Outcome:
    text = _text(job)
    now = settings.sections(text).get("input", {})
    if job.text("action") == "list":
        return Outcome(f"There are {len(now)} actions of the project's own.", {"actions": sorted(now)})
    name = job.text("name")
    if not re.fullmatch(r"[\w.\-]{1,64}", name):
        raise Fault(Kind.INVALID_INPUT, "name is needed: letters, digits and _ . - only.")
    if job.text("action") == "remove":
        if name not in now:
            raise Fault(Kind.NOT_FOUND, f"There is no action {name}.")
        made = _save(job, settings.drop(text, "input", name), "input", name, None)
        return Outcome(f"Removed the action {name}.", {"name": name}, files=made)
    value = _action(float(job.get("deadzone", 0.5)), [_event(event) for event in job.get("events", [])])
    made = _save(job, settings.put(text, "input", name, value), "input", name, value)
    return Outcome(f"Set the action {name}.", {"name": name, "events": len(job.get("events", []))}, files=made)


def input_map(job: Job) -> Outcome:
    """Several actions at once, keys by name or number."""
    text = _text(job)
    for action in job.get("actions"):
        events = [_event({"type": "key", "keycode": str(key)}) for key in action.get("keys", [])]
        value = _action(float(action.get("deadzone", 0.5)), events)
        if not re.fullmatch(r"[\w.\-]{1,64}", action["name"]):
            raise Fault(Kind.INVALID_INPUT, "An action's name has letters, digits and _ . - only.")
        text = settings.put(text, "input", action["name"], value)
    names = [action["name"] for action in job.get("actions")]
    made = _save(job, text, "input", names[-1], settings.get(text, "input", names[-1]))
    return Outcome(f"Set {len(names)} actions.", {"actions": names}, files=made)


def _action(deadzone: float, events: list[str]) -> str:
    return "{\n" + f'"deadzone": {deadzone},\n"events": [{", ".join(events)}]' + "\n}"


def _event(event: Json) -> str:
    match event["type"]:
        case "key":
            return (
                f'Object(InputEventKey,"resource_local_to_scene":false,"resource_name":"","device":-1,"window_id":0,'
                f'"alt_pressed":false,"shift_pressed":false,"ctrl_pressed":false,"meta_pressed":false,"pressed":false,'
                f'"keycode":0,"physical_keycode":{_key(str(event.get("keycode", "")))},"key_label":0,"unicode":0,'
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


def _key(word: str) -> int:
    name = word.upper().removeprefix("KEY_")
    if name in _KEYS:
        return _KEYS[name]
    if len(name) == 1 and name.isascii() and name.isprintable():
        return ord(name)
    if name.isdigit():
        return int(name)
    raise Fault(Kind.INVALID_INPUT, f"There is no key {word!r}.", details={"known": sorted(_KEYS)})


# ---- data that a game keeps ---------------------------------------------------------------------------------------


def _data(job: Job) -> tuple[Place, Json]:
    place = Place(job.project.root, job.project.root / OURS / "game_data.json")
    if not files.exists(place):
        return place, {}
    try:
        return place, json.loads(files.read_text(place))
    except ValueError as exc:
        raise Fault(Kind.INTERNAL, "The saved data is not JSON any more.") from exc


def save_data(job: Job) -> Outcome:
    place, data = _data(job)
    data[job.text("key")] = job.arguments.get("value")
    size = files.write_text(place, json.dumps(data, ensure_ascii=False, indent=1))
    return Outcome(f"Saved {job.text('key')}.", {"key": job.text("key")}, files=(place.described("data", size),))


def load_data(job: Job) -> Outcome:
    _, data = _data(job)
    key = job.text("key")
    if key not in data and "defaultValue" not in job.arguments:
        raise Fault(Kind.NOT_FOUND, f"Nothing is saved as {key}.")
    return Outcome(f"Read {key}.", {"key": key, "value": data.get(key, job.arguments.get("defaultValue"))})
