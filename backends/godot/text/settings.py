"""`project.godot`, `export_presets.cfg` and other settings files, read and edited by span."""

from typing import Any

from backends.godot.text.literal import plain
from backends.godot.text.scan import Section, apply, property_name, scan


def sections(text: str) -> dict[str, dict[str, str]]:
    """Section -> key -> the value as written; keys before the first section are in the one called ``."""
    found: dict[str, dict[str, str]] = {}
    for section in scan(text):
        keys = found.setdefault(section.tag, {})
        keys.update((each.name, each.value) for each in section.properties)
    return found


def values(text: str) -> dict[str, dict[str, Any]]:
    """The same, with simple values as JSON."""
    return {name: {key: plain(value) for key, value in keys.items()} for name, keys in sections(text).items()}


def get(text: str, section: str, key: str) -> str | None:
    return sections(text).get(section, {}).get(key)


def put(text: str, section: str, key: str, value: str) -> str:
    """The text with that key set, and nothing else changed."""
    line = f"{property_name(key)}={value}"
    home = _last(text, section)
    for each in scan(text):
        if each.tag == section and (found := each.property(key)) is not None:
            return apply(text, [(found.value_start, found.end, value)])
    if home is not None:
        gap = "\n" if home.properties or not section else "\n\n"
        return apply(text, [(home.content_end, home.content_end, gap + line)])
    if not section:
        return f"{line}\n\n{text}" if text.strip() else f"{line}\n"
    lead = text.rstrip("\n")
    return f"{lead}\n\n[{section}]\n\n{line}\n" if lead else f"[{section}]\n\n{line}\n"


def drop(text: str, section: str, key: str) -> str:
    """The text without that key; the text itself when it has none."""
    for each in scan(text):
        if each.tag == section and (found := each.property(key)) is not None:
            end = found.end
            while text[end : end + 1] in (" ", "\t", "\r"):
                end += 1
            return apply(text, [(found.start, end + 1 if text[end : end + 1] == "\n" else end, "")])
    return text


def _last(text: str, section: str) -> Section | None:
    return next((each for each in reversed(scan(text)) if each.tag == section), None)
