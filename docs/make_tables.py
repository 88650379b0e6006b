"""Writes the tables of pages that are otherwise written by hand: `python docs/make_tables.py`.

A table stands between `<!-- table: NAME -->` and the next blank line.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from gateway.errors import TABLE

ROOT: Final = Path(__file__).resolve().parents[1]

THREATS: Final[Mapping[int, tuple[str, str]]] = {
    1: ("reading another tenant's data", "the tenant comes from the credential; every row and key begins with it"),
    2: ("getting another caller's answer", "an answer belongs to its own exchange, never to an id alone"),
    3: ("a consent used for another client", "consent for each sign-in, bound to the browser and the request"),
    4: ("a caller's token sent on to a backend", "backends get what their entry says, and nothing of the caller's"),
    5: ("a token made for another service", "the audience must be an endpoint of this gateway"),
    6: (
        "forged tokens: algorithm, key id, embedded keys",
        "ES256 and RS256; keys only from the issuer's own set",
    ),
    7: ("tokens and streams that outlive their time", "30 s of leeway; streams end with their credential"),
    8: ("late revocation", "noticed by every process within seconds; open streams end"),
    9: ("codes and refresh tokens used twice", "one use, decided by the database; a replay ends the family"),
    10: ("somebody else's session", "ids are sealed and bound to their principal; to others they are unknown"),
    11: ("web pages and DNS rebinding", "allow-lists of Host and Origin, before any work"),
    12: ("a Host header that changes the path", "only the parsed path decides"),
    13: ("requests to private addresses", "every address is judged, and the judged address is the one connected to"),
    14: ("paths smuggled into REST backends", "there are no REST backends in this release"),
    15: ("two parsers that read differently", "one strict reader; what goes on is what was checked"),
    16: ("headers that contradict the body", "refused in 2026-07-28, not believed before it"),
    17: ("hidden text in tool definitions", "definitions with it are not listed; suspicious words are logged"),
    18: ("a definition that changes after it was trusted", "definitions are pinned by digest"),
    19: ("a tool that takes another's name", "the namespace is ours; look-alikes are left out"),
    20: ("orders hidden in results", "results are bounded, and cleaned where the entry asks for it"),
    21: ("schemas that take for ever to check", "a linear-time engine; the network is never asked for references"),
    22: ("patterns that take for ever", "no pattern of a user's runs in a backtracking engine"),
    23: ("huge and deep JSON", "bounds on bytes, depth, keys and strings, before the work"),
    24: ("slow and greedy connections", "time and size limits for head, body, idling and reading; caps by address"),
    25: ("streams without end", "caps by principal, tenant and process; slow readers are cut"),
    26: ("batches", "refused"),
    27: ("ids that smuggle headers", "only plain ids are taken over, others are replaced"),
    28: ("forged log lines", "one line of escaped JSON for each record"),
    29: ("secrets in logs, spans, errors", "cut before they are written; errors hold no exception text"),
    30: ("paths that leave their folder", "resolved, then held to the folder"),
    31: (
        "commands smuggled into programs",
        "only what the settings name is run, without a shell, with a clean environment",
    ),
    32: (
        "an idempotency key used by another",
        "it belongs to tenant, principal, tool and arguments",
    ),
    33: ("decompression bombs", "encodings are refused, upstream asked for none"),
    34: ("keys guessed by timing", "the same work for unknown ids, constant-time comparison"),
    35: ("guessing in bulk", "bad credentials and registrations are counted by address"),
    36: ("the sign-in pages turned on people", "exact redirects, escaped names, no scripts, no frames"),
    37: ("the operator's side left open", "its own scope, its own port if you like, no default secrets"),
    38: ("a second way in without the checks", "one path; every route is probed without a credential"),
    39: ("a store that is away", "who may call and what they may do is refused, not guessed"),
    40: ("what we are built from", "the image and the workflows are pinned by hash, and no lock names a host"),
}
"""What could be done to a gateway, and what stands against it."""


def errors() -> Iterator[str]:
    yield "| kind | HTTP | up to 2025-11-25 | 2026-07-28 | retryable | category |"
    yield "|---|---|---|---|---|---|"
    for kind, row in TABLE.items():
        again = "yes" if row.retryable else "no"
        yield f"| `{kind.value}` | {row.http} | {row.handshake} | {row.modern} | {again} | {row.category} |"


def threats() -> Iterator[str]:
    tested = tests_by_threat()
    yield "| against | what stands there | tried in |"
    yield "|---|---|---|"
    for number, (threat, stands) in THREATS.items():
        files = ", ".join(f"`{name}`" for name in tested.get(number, [])) or "no test yet"
        yield f"| **{number}** {threat} | {stands} | {files} |"


def tests_by_threat() -> dict[int, list[str]]:
    """The files with a test named after each threat."""
    found: dict[int, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text("utf-8")
        if "test_threat_" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
                number := re.match(r"test_threat_0*(\d+)_", node.name)
            ):
                found.setdefault(int(number[1]), set()).add(path.relative_to(ROOT / "tests").as_posix())
    return {number: sorted(files) for number, files in found.items()}


TABLES: Final[Mapping[str, tuple[str, Callable[[], Iterator[str]]]]] = {
    "errors": ("errors.md", errors),
    "threats": ("security-model.md", threats),
}


def pages() -> dict[Path, str]:
    """Each page with its tables as they should be."""
    made: dict[Path, str] = {}
    for name, (page, rows) in TABLES.items():
        path = ROOT / "docs" / page
        text = made.get(path) or path.read_text("utf-8")
        place = rf"(<!-- table: {name} -->\n\n)(?:\|[^\n]*\n)*"
        made[path], count = re.subn(place, lambda found, rows=rows: found[1] + "\n".join(rows()) + "\n", text)
        assert count == 1, f"{page} has no place for the table {name}"
    return made


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
