"""Reading and span-based editing of settings files such as `project.godot` and `export_presets.cfg`."""

from typing import Any

from backends.godot.text.literal import from_literal
from backends.godot.text.scan import Section, apply_edits, format_property_name, scan


def sections(text: str) -> dict[str, dict[str, str]]:
    """Return section -> key -> literal. Keys before the first section are in the section with an empty name."""
    found: dict[str, dict[str, str]] = {}
    for section in scan(text):
        keys = found.setdefault(section.tag, {})
        keys.update((each.name, each.value) for each in section.properties)
    return found


def values(text: str) -> dict[str, dict[str, Any]]:
    """Return section -> key -> value, with simple literals converted to JSON."""
    return {name: {key: from_literal(value) for key, value in keys.items()} for name, keys in sections(text).items()}


def get_value(text: str, section: str, key: str) -> str | None:
    return sections(text).get(section, {}).get(key)


def set_value(text: str, section: str, key: str, value: str) -> str:
    """Return the text with the key set and everything else unchanged."""
    line = f"{format_property_name(key)}={value}"
    existing = _last_section(text, section)
    for each in scan(text):
        if each.tag == section and (found := each.property(key)) is not None:
            return apply_edits(text, [(found.value_start, found.end, value)])
    if existing is not None:
        gap = "\n" if existing.properties or not section else "\n\n"
        return apply_edits(text, [(existing.content_end, existing.content_end, gap + line)])
    if not section:
        return f"{line}\n\n{text}" if text.strip() else f"{line}\n"
    lead = text.rstrip("\n")
    return f"{lead}\n\n[{section}]\n\n{line}\n" if lead else f"[{section}]\n\n{line}\n"


def remove_key(text: str, section: str, key: str) -> str:
    """Return the text without the key; unchanged if the key is missing."""
    for each in scan(text):
        if each.tag == section and (found := each.property(key)) is not None:
            end = found.end
            while text[end : end + 1] in (" ", "\t", "\r"):
                end += 1
            return apply_edits(text, [(found.start, end + 1 if text[end : end + 1] == "\n" else end, "")])
    return text


def _last_section(text: str, section: str) -> Section | None:
    return next((each for each in reversed(scan(text)) if each.tag == section), None)
