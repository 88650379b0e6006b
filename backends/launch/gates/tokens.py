"""No template token was left unfilled."""

import re
from collections.abc import Iterator
from typing import Final

from backends.launch.gates.context import Finding, Subject
from backends.launch.workers import markdown

TOKEN: Final = re.compile(r"__[A-Z][A-Z0-9_]*?__|\{\{[^{}]*\}\}")


def check(subject: Subject) -> Iterator[Finding]:
    for path, page in subject.pages.items():
        for line in markdown.lines(page):
            for token in [] if line.code else TOKEN.findall(line.text):
                message = f"The template token {token[:60]} was not filled in."
                yield Finding("GATE_TEMPLATE_TOKEN", message, "error", path, line.number)
