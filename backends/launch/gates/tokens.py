"""Gate `template_token_lint`: pages contain no unfilled template tokens."""

import re
from collections.abc import Iterator
from typing import Final

from backends.launch.gates.context import Finding, GateContext
from backends.launch.workers import markdown

TOKEN: Final = re.compile(r"__[A-Z][A-Z0-9_]*?__|\{\{[^{}]*\}\}")


def check(context: GateContext) -> Iterator[Finding]:
    for path, page in context.pages.items():
        for line in markdown.lines(page):
            for token in [] if line.is_code else TOKEN.findall(re.sub(r"`[^`]*`", "", line.text)):
                message = f"The template token {token[:60]} was not filled in."
                yield Finding("GATE_TEMPLATE_TOKEN", message, "error", path, line.number)
