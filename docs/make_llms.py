"""Generates `docs/llms.txt`, the site's table of contents for language models: `python docs/make_llms.py`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
FILE: Final = ROOT / "docs" / "llms.txt"

HEAD: Final = """\
# Gatehouse

> A gateway for MCP servers: clients of every protocol revision connect to one address and get the tools, resources and
> prompts of all servers behind it, with authentication, tenants, policies, limits, audit log and traces.
"""


def text() -> str:
    site: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    return "\n".join([HEAD, *(line for part in site["nav"] for line in _part(part))])


def _part(part: dict[str, Any]) -> Iterator[str]:
    ((title, pages),) = part.items()
    yield f"## {title}\n"
    for page in pages:
        ((name, file),) = page.items()
        yield f"- [{name}]({file.removesuffix('.md')}.html): {_sentence(file)}"
    yield ""


def _sentence(file: str) -> str:
    """Return the first sentence of the page's first paragraph."""
    path = ROOT / "docs" / file
    if not path.exists():
        path = ROOT / ("README.md" if file == "overview.md" else file)
    plain = re.sub(r"<!--.*?-->", "", path.read_text("utf-8"), flags=re.DOTALL)
    first = next(
        part for part in re.split(r"\n\s*\n", plain) if part.strip() and not part.lstrip().startswith(("#", "!"))
    )
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    return re.split(r"(?<=[.]) ", words)[0].rstrip(":")


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
