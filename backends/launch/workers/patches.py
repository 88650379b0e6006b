"""The patch engine: applies changes to the site's worktree, each at most once and only within the allowed paths."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from backends.launch.paths import resolve_allowed
from backends.launch.serialization import digest, write_atomic
from backends.launch.workers.frontmatter import join, split
from gateway.contract import Json

Conflict = Literal["anchor_missing", "range_out_of_bounds", "key_missing", "hash_mismatch"]
Outcome = Literal["applied", "already_applied"] | Conflict

EMPTY_DIGEST: Final = digest(b"")


def apply(patch: Json, root: Path, allowed: Iterable[str]) -> Outcome:
    """Apply a patch. A conflict changes nothing. Raises `ALLOWED_PATHS_VIOLATION`."""
    target = resolve_allowed(root, patch["path"], allowed)
    before = target.read_bytes() if target.is_file() else None
    if digest(before or b"") == patch["content_hash"] and (before is None) == (patch["type"] == "delete_file"):
        return "already_applied"
    if digest(before or b"") != patch.get("expected_before_hash", EMPTY_DIGEST):
        return "hash_mismatch"
    if patch["type"] == "delete_file":
        target.unlink()
        return "applied"
    after = _apply_to_text(patch, (before or b"").decode("utf-8", "replace"))
    if after in _CONFLICTS:
        return _CONFLICTS[after]
    data = after.encode()
    if digest(data) != patch["content_hash"]:
        return "hash_mismatch"
    write_atomic(target, data)
    return "applied"


def _apply_to_text(patch: Json, before: str) -> str | Conflict:
    kind, content = patch["type"], patch.get("content", "")
    if kind == "create_file":
        return content
    if kind == "update_frontmatter_keys":
        return _update_keys(before, patch["keys"])
    lines = before.splitlines(keepends=True)
    if kind == "update_by_anchor":
        at = next((number for number, line in enumerate(lines) if line.rstrip("\n") == patch["anchor"]), None)
        return "anchor_missing" if at is None else "".join([*lines[: at + 1], content, *lines[at + 1 :]])
    start, end = patch["start_line"], patch["end_line"]
    if not 1 <= start <= len(lines) + 1 or not start - 1 <= end <= len(lines):
        return "range_out_of_bounds"
    return "".join([*lines[: start - 1], content, *lines[end:]])


def _update_keys(before: str, keys: Json) -> str | Conflict:
    try:
        matter, body = split(before)
    except ValueError:
        return "key_missing"
    return "key_missing" if matter is None else join({**matter, **keys}, body)


_CONFLICTS: Final[dict[str, Conflict]] = {
    "anchor_missing": "anchor_missing",
    "range_out_of_bounds": "range_out_of_bounds",
    "key_missing": "key_missing",
    "hash_mismatch": "hash_mismatch",
}


def build_patch(patch_id: str, path: str, before: bytes | None, after: bytes) -> Json:
    """Return the patch that replaces the whole file by `after`, or creates it."""
    patch: Json = {"patch_id": patch_id, "path": path, "content_hash": digest(after), "content": after.decode()}
    if before is None:
        return {**patch, "type": "create_file"}
    count = len(before.decode("utf-8", "replace").splitlines())
    return {
        **patch,
        "type": "update_file_range",
        "expected_before_hash": digest(before),
        "start_line": 1,
        "end_line": count,
    }


def format_patch_id(number: int) -> str:
    return f"patch_{number:03}"
