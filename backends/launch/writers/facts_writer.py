"""The writer without a model: puts the facts of a section together by rule, each with its claim marker."""

import re
from collections.abc import Iterator
from typing import Final

from backends.launch.surface import prose
from backends.launch.workers import reference_text
from backends.launch.workers.claims import claim_id
from backends.launch.workers.plan_reference import symbol_key
from backends.launch.writers.interface import SectionBrief
from gateway.contract import Json

_MAX_INDEX: Final = 600


class FactsWriter:
    """Writes every section from its claims, snippets and symbols."""

    name = "facts"

    def __init__(self, product: str, language: str, source_base: str | None) -> None:
        self._product = product
        self._language = language
        self._source_base = source_base
        """URL of the repository's files at the pinned commit, or None if they have no public URL."""

    def write(self, brief: SectionBrief) -> str | None:
        render = {
            "text": self._text, "list": self._list, "install": self._install, "code": self._code, "names": self._names,
            "pages": self._pages, "index": self._index, "module": self._module, "symbol": self._symbol,
        }[brief.kind]  # fmt: skip
        return join_blocks(render(brief)) or None

    # ---- prose ----

    def _text(self, brief: SectionBrief) -> Iterator[str]:
        for claim in brief.claims:
            yield _statement(claim, "")

    def _list(self, brief: SectionBrief) -> Iterator[str]:
        for claim in brief.claims:
            yield _statement(claim, "- ")

    def _install(self, brief: SectionBrief) -> Iterator[str]:
        commands = [claim for claim in brief.claims if claim["claim_kind"] == "install"]
        notes = [claim for claim in brief.claims if claim["claim_kind"] != "install"]
        for claim in commands[:1]:
            yield _statement(claim, "")
            yield f"```bash\n{install_command(claim)}\n```"
        for claim in (*commands[1:], *notes):
            yield _statement(claim, "- ")

    def _code(self, brief: SectionBrief) -> Iterator[str]:
        for snippet in brief.snippets:
            yield f"```{snippet['language']}\n{snippet['code']}```"
            yield self._source_line(snippet["source"]["path"], snippet["source"]["start_line"])

    def _pages(self, brief: SectionBrief) -> Iterator[str]:
        for page in brief.pages:
            yield f"- [{escape_title(page['title'])}]({page['url_path']})"

    # ---- the reference ----

    def _names(self, brief: SectionBrief) -> Iterator[str]:
        for symbol in brief.symbols:
            yield self._name(symbol, brief)

    def _index(self, brief: SectionBrief) -> Iterator[str]:
        for symbol in brief.symbols[:_MAX_INDEX]:
            yield self._name(symbol, brief)

    def _name(self, symbol: Json, brief: SectionBrief) -> str:
        url = brief.links.get(symbol_key(symbol))
        label = prose.code(symbol["qualified_name"])
        linked = f"[{label}]({url})" if url else label
        text = reference_text.summary(symbol)
        return f"- {linked}: {text} {self._marker(text)}" if text else f"- {linked}" if url else f"- {label}"

    def _module(self, brief: SectionBrief) -> Iterator[str]:
        for symbol in brief.symbols:
            yield from self._parts(symbol, 2)

    def _symbol(self, brief: SectionBrief) -> Iterator[str]:
        level = 3 if brief.symbols and brief.symbols[0]["container"] else 2
        for symbol in brief.symbols:
            yield f"```{self._language}\n{symbol['signature']}\n```"
            yield from self._parts(symbol, level + 1)
            yield self._source_line(symbol["path"], symbol["line"])

    def _parts(self, symbol: Json, level: int) -> Iterator[str]:
        titles: set[str] = set()
        for part in reference_text.parts(symbol):
            if part.kind == "code":
                yield f"```{part.language or 'text'}\n{part.text}```"
            elif part.kind == "heading":
                title = part.text.rstrip(".,;:!? ")
                if title and title not in titles:
                    titles.add(title)
                    yield f"{'#' * level} {title}"
            elif part.kind == "header":
                count = part.text.count(" | ") + 1
                yield f"| {part.text} |\n| {' | '.join(['---'] * count)} |"
            elif part.kind == "row":
                yield f"| {part.text} {self._marker(part.text)} |"
            else:
                yield f"{'- ' if part.kind == 'item' else ''}{part.text} {self._marker(part.text)}"

    def _source_line(self, path: str, line: int) -> str:
        return source_line(self._source_base, path, line)

    def _marker(self, text: str) -> str:
        return f"<!-- claim_id: {claim_id(text, 'api', self._product)} -->"


def escape_title(title: str) -> str:
    """Return a title as the text of a link."""
    return re.sub(r"([\[\]*_<`])", r"\\\1", title)


def source_line(base: str | None, path: str, line: int) -> str:
    """Return the line that names the source of code. `base` is the URL of the repository's files."""
    label = f"`{path.replace('`', '')}:{line}`"
    if base is None or re.search(r"[()\s<>`]", path):
        return f"Source: {label}"
    return f"Source: [{label}]({base}/{path}#L{line})"


def install_command(claim: Json) -> str:
    """Return the command of an install claim."""
    return claim["claim_text"].removeprefix("Install it with `").removesuffix("`.")


def _statement(claim: Json, bullet: str) -> str:
    return f"{bullet}{claim['claim_text']} <!-- claim_id: {claim['claim_id']} -->"


def join_blocks(blocks: Iterator[str]) -> str:
    """Join blocks with blank lines; items of one list and rows of one table stay together."""
    text, previous = "", ""
    for block in blocks:
        kind = "item" if block.startswith("- ") else "row" if block.startswith("| ") else "block"
        together = kind == previous and kind != "block"
        text += ("\n" if together else "\n\n" if text else "") + block
        previous = kind
    return text
