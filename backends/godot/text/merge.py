"""Takes over property values that the engine saved: into a node's section or into a resource file.

The engine saves the values in a file of its own. Sub-resources keep their ids there, so what is unchanged stays as it
is, and a changed value of a sub-resource changes its line alone.
"""

import re
import secrets
from collections.abc import Collection, Mapping
from typing import Final

from backends.godot.text.literal import from_literal
from backends.godot.text.scan import Section, format_property_name, quote, unquote
from backends.godot.text.scene import Scene, removal_edit

Edit = tuple[int, int, str]
_REFERENCE: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|(Ext|Sub)Resource\(\s*(\"(?:[^\"\\]|\\.)*\"|\d+)\s*\)")


def merge_properties(scene: Scene, section: Section, saved: Scene, names: Mapping[str, str]) -> Scene:
    """Return the scene with properties of `section` set to values of the saved file's `[resource]` section.

    `names` maps each property of the section to the property of the saved file. An empty name removes the property, and
    `null` sets it to null, which the engine does not save.
    """
    merge = _Merge(scene, saved)
    values = {each.name: each.value for each in saved.sections[-1].properties}
    wanted = {name: values.get(key, "null") for name, key in names.items() if key}
    removed = [name for name, key in names.items() if not key]
    before = [each.value for each in section.properties if each.name in names]
    merge.update(section, wanted, removed)
    return _without_unused(merge.apply(), _sub_references(before))


def merge_resource(scene: Scene, saved: Scene) -> Scene:
    """Return a resource file with the values of a newly saved one, and everything else unchanged."""
    merge = _Merge(scene, saved)
    target, source = scene.sections[-1], saved.sections[-1]
    values = {each.name: each.value for each in source.properties}
    removed = [each.name for each in target.properties if each.name not in values]
    before = [each.value for section in scene.sections for each in section.properties]
    merge.update(target, values, removed)
    return _without_unused(merge.apply(), _sub_references(before))


class _Merge:
    """Collects the edits of one text, so that it is parsed once."""

    def __init__(self, scene: Scene, saved: Scene) -> None:
        self._scene = scene
        self._edits: list[Edit] = []
        self._references: dict[tuple[str, str], str] = {}
        self._lines = ""
        self._blocks: list[tuple[str | None, str]] = []
        """New sub-resources: the id of the existing one that each must come before, and the text."""
        self._format = saved.sections[0].string("format")
        self._add_external(saved)
        sections = [section for section in saved.sections if section.tag == "sub_resource"]
        for section in sections:
            self._add_sub_resource(section, _first_user(sections, section, self._scene))

    def _add_external(self, saved: Scene) -> None:
        known = {each.string("path"): each.string("id") for each in self._scene.external_resources()}
        used = set(known.values())
        for section in saved.external_resources():
            path, old = section.string("path"), section.string("id") or ""
            if (key := known.get(path)) is None:
                key = old if old not in used else _new_id(old.partition("_")[0], used)
                used.add(key)
                uid = f" uid={quote(found)}" if (found := section.string("uid")) else ""
                kind = quote(section.string("type") or "Resource")
                self._lines += f"\n[ext_resource type={kind}{uid} path={quote(path or '')} id={quote(key)}]"
            self._references["Ext", old] = key

    def _add_sub_resource(self, section: Section, user: str | None) -> None:
        old, kind = section.string("id") or "", section.string("type") or "Resource"
        existing = self._scene.sub_resource(old)
        values = {each.name: each.value for each in section.properties}
        if existing is not None and existing.string("type") == kind:
            self._references["Sub", old] = old
            self.update(existing, values, [each.name for each in existing.properties if each.name not in values])
            return
        used = {each.string("id") for each in self._scene.sections if each.tag == "sub_resource"}
        used |= {key for (what, _), key in self._references.items() if what == "Sub"}
        key = old if old not in used else _new_id(kind, used)
        self._references["Sub", old] = key
        lines = "".join(f"\n{format_property_name(name)} = {self._mapped(value)}" for name, value in values.items())
        self._blocks.append((user, f"[sub_resource type={quote(kind)} id={quote(key)}]{lines}"))

    def _mapped(self, value: str) -> str:
        """Return a value of the saved file with the ids of this file."""

        def replace(found: re.Match[str]) -> str:
            if found[1] is None:
                return found[0]
            return f"{found[1]}Resource({quote(self._references[found[1], unquote(found[2])])})"

        return _REFERENCE.sub(replace, value)

    def update(self, section: Section, values: Mapping[str, str], removed: Collection[str]) -> None:
        """Set and remove properties of a section. A value that only reads differently stays as it is."""
        added = ""
        for name, value in values.items():
            new = self._mapped(value)
            found = section.property(name)
            if found is None:
                added += f"\n{format_property_name(name)} = {new}"
            elif found.value != new and from_literal(found.value) != from_literal(new):
                self._edits.append((found.value_start, found.end, new))
        if added:
            self._edits.append((section.content_end, section.content_end, added))
        for name in removed:
            if (found := section.property(name)) is not None:
                start = found.start
                # The line goes with its break: from the end of what is before it.
                while start and self._scene.text[start - 1] in " \t\r":
                    start -= 1
                self._edits.append((max(start - 1, section.header_end), found.end, ""))

    def apply(self) -> Scene:
        scene = self._scene
        external = scene.external_resources()
        if self._lines:
            at, lead = (external[-1].header_end, "") if external else (scene.sections[0].content_end, "\n")
            self._edits.append((at, at, lead + self._lines))
        subs = [each for each in scene.sections if each.tag == "sub_resource"]
        last = (subs or external or scene.sections[:1])[-1]
        for user, block in self._blocks:
            # The engine reads a file from top to bottom: a resource comes before those that use it.
            if user is not None and (section := scene.sub_resource(user)) is not None:
                self._edits.append((section.start, section.start, f"{block}\n\n"))
            else:
                self._edits.append((last.content_end, last.content_end, f"\n\n{block}"))
        if self._format == "4" and scene.sections[0].string("format") == "3":
            self._edits.append(scene.attribute_edit(scene.sections[0], "format", "4"))
        # New external resources come before new sub-resources where both go to the same offset.
        return scene.apply_edits(_joined(self._edits)) if self._edits else scene


def _first_user(sections: list[Section], wanted: Section, scene: Scene) -> str | None:
    """Return the first existing sub-resource that uses a new one, itself or through other new ones."""
    using = {wanted.string("id")}
    for section in sections[sections.index(wanted) + 1 :]:
        if _sub_references([each.value for each in section.properties]) & using:
            key = section.string("id")
            if key is not None and scene.sub_resource(key) is not None:
                return key
            using.add(key)
    return None


def _joined(edits: list[Edit]) -> list[Edit]:
    """Join insertions at the same offset in the order in which they were added."""
    joined: dict[tuple[int, int], str] = {}
    for start, end, text in edits:
        joined[start, end] = joined.get((start, end), "") + text
    return [(start, end, text) for (start, end), text in joined.items()]


def _new_id(stem: str, used: Collection[str | None]) -> str:
    while (key := f"{stem}_{secrets.token_hex(3)[:5]}") in used:
        pass
    return key


def _sub_references(values: Collection[str]) -> set[str]:
    return {unquote(found[2]) for value in values for found in _REFERENCE.finditer(value) if found[1] == "Sub"}


def _without_unused(scene: Scene, candidates: set[str]) -> Scene:
    """Remove those sub-resources among the candidates, and what only they used, that nothing refers to any more."""

    while candidates:
        used = _sub_references([each.value for section in scene.sections for each in section.properties])
        used |= _sub_references([each.value for section in scene.sections for each in section.attributes])
        unused = [
            section
            for section in scene.sections
            if section.tag == "sub_resource" and section.string("id") in candidates - used
        ]
        if not unused:
            break
        candidates = _sub_references([each.value for section in unused for each in section.properties])
        scene = scene.apply_edits([removal_edit(scene.text, section) for section in unused])
    return scene
