"""Checks that retired names and figures of speech do not return, and that the gateway names no product of a backend;
`make check` runs it.

Identifiers, comments, docstrings, log and error messages are read with `tokenize`; documents, policies and the values
and notes of the chart line by line. `ALLOWED` lists ordinary uses: texts that a contract fixes, keys of JSON output,
example names, and engine code.
"""

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = ("gateway", "backends", "bench", "tests", "docs", "deploy")

PHRASES: Final = re.compile(
    r"\b(?:house|stranger|strangers|whoever|nobody|somebody|told|tells? of|mends?|mended|mending|so many|come over|"
    r"comes over|the lane|rooms?|doors?|the floor|the ground|word of|goes away|went away|is away|was away)\b",
    re.IGNORECASE,
)
"""Figures of speech, in comments and string literals."""

DOCUMENT_PHRASES: Final = re.compile(
    PHRASES.pattern + "|"
    r"\b(?:at hand|came along|be an MCP server|a wood|leav(?:es|ing) the (?:house|organisation)|went bad|"
    r"(?:is|are|stays?|still) good|good (?:once|until)|on your word|(?:last|own|person's) word|whose affair|"
    r"never (?:were|was)|dearer?|vouch(?:es|ed)?|walks? the (?:whole )?path|before your eyes|the very|an ear|"
    r"to be seen to|unseen|deeds|(?:is|are|not) spoken|knows? OAuth|in more words|begins? anew|start it anew|"
    r"told in one form|is told of|all that guards|what stands between)\b",
    re.IGNORECASE,
)
"""Figures of speech, in texts for users."""

DOCUMENTS: Final = ("*.md", "*/values.yaml", "*/NOTES.txt", "*.cedar", "*.cedarschema", "docs/examples/*.yaml")

IDENTIFIERS: Final = frozenset(
    (
        *("house", "stranger", "whoever", "nobody", "somebody", "told", "mend", "mended", "mending"),
        *("lane", "turnstile", "tenure", "tenures", "census"),
    )
)
"""Words that no identifier contains."""

NAMES: Final = frozenset(
    (
        *("Advice", "Asked", "Away", "Beside", "Books", "Desk", "Door", "Ear", "Ears", "Far"),
        *("Floor", "Ground", "Home", "House", "Hub", "Inside", "Judgement", "Lane"),
        *("Looking", "Manner", "Most", "News", "Nobody", "Outlet", "Paper", "Parking"),
        *("Person", "Piece", "Room", "Rounds", "Setback", "Shelf", "Sight", "Standing", "Talk"),
        *("Tenures", "Told", "Trip", "Turn", "Turnstile", "Watching", "Way", "What"),
        *("Who", "Wish", "take_turn", "whose", "floor", "hub", "news", "standing", "door", "watchdog", "sight"),
    )
)
"""Retired class, function and variable names."""

PRODUCTS: Final = re.compile("roblox|godot", re.IGNORECASE)
"""Products that backends serve: no file of the package `gateway` contains their names."""

ALLOWED: Final[tuple[tuple[str, str], ...]] = (
    ("tests/repo/vocabulary.py", r""),
    ("tests/repo/test_vocabulary.py", r""),
    ("backends/godot/engine/sandbox_launcher.py", r"`nobody`"),  # the Unix user
    ("gateway/cli/", r'"mend"'),  # a key of the JSON output
    ("tests/gateway/cli/", r'"mend"'),
    ("tests/", r"""["'=/]nobody|Nobody["']"""),  # example names
    ("tests/backends/knowledge/test_primitives.py", r"fold\("),
    ("docs/roblox.md", r"Workspace\."),  # names of instances
    ("tests/", r"gate[ +]house"),  # an OAuth client id with a blank
)
"""Path prefix, and a pattern of the lines that are exempt there."""


def main() -> int:
    findings = [
        finding
        for scan, patterns in ((scan_source, [f"{each}/*.py" for each in FOLDERS]), (scan_text, DOCUMENTS))
        for path in _files(*patterns)
        for finding in scan(str(path.relative_to(ROOT)), path.read_text("utf-8"))
    ]
    products = [
        finding
        for path in _files("gateway/*")
        for finding in scan_products(str(path.relative_to(ROOT)), path.read_text("utf-8", errors="replace"))
    ]
    for finding in (*findings, *products):
        print(finding)
    if findings:
        print(f"{len(findings)} retired words; use the terms of CONTRIBUTING.md, or add an ordinary use to ALLOWED")
    if products:
        print(f"{len(products)} names of products in gateway/; move what is specific to a product to its module")
    return 1 if findings or products else 0


def _files(*patterns: str) -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    yield from (ROOT / name for name in listed.splitlines() if (ROOT / name).is_file())


def scan_source(name: str, source: str) -> Iterator[str]:
    """Yield one line `path:line: word: text` for each retired word."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        for line, word in _retired(token):
            if not _is_allowed(name, lines[line - 1]):
                yield f"{name}:{line}: {word}: {lines[line - 1].strip()[:100]}"


def scan_products(name: str, text: str) -> Iterator[str]:
    """Yield one line `path:line: word: text` for each name of a product, also in the path."""
    for number, line in enumerate([name, *text.splitlines()]):
        if (found := PRODUCTS.search(line)) is not None:
            yield f"{name}:{number}: {found[0]}: {line.strip()[:100]}"


def scan_text(name: str, text: str) -> Iterator[str]:
    """Yield one line `path:line: phrase: text` for each figure of speech in a text for users."""
    for number, line in enumerate(text.splitlines(), 1):
        if (found := DOCUMENT_PHRASES.search(line)) is not None and not _is_allowed(name, line):
            yield f"{name}:{number}: {found[0]}: {line.strip()[:100]}"


def _retired(token: tokenize.TokenInfo) -> Iterator[tuple[int, str]]:
    if token.type == tokenize.NAME:
        parts = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", token.string)
        if token.string in NAMES or any(part.lower() in IDENTIFIERS for part in parts):
            yield token.start[0], token.string
    elif token.type in (tokenize.COMMENT, tokenize.STRING):
        for offset, text in enumerate(token.string.split("\n")):
            if (found := PHRASES.search(text)) is not None:
                yield token.start[0] + offset, found[0]


def _is_allowed(path: str, line: str) -> bool:
    return any(path.startswith(prefix) and re.search(pattern, line) for prefix, pattern in ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
