"""W5: drafts the pages of one section. Each part of a page is written by a writer from its own facts."""

import re
from pathlib import PurePosixPath
from typing import Final

from backends.launch.workers.context import WorkerContext
from backends.launch.workers.frontmatter import join
from backends.launch.workers.plan_reference import symbol_key
from backends.launch.writers.facts_writer import FactsWriter, escape_title
from backends.launch.writers.interface import SectionBrief, Writer
from backends.launch.writers.model_writer import ModelWriter, section_key
from gateway.contract import Json

_CANONICAL: Final = {"products": "product", "docs": "docs", "reference": "reference"}


def run(context: WorkerContext) -> None:
    section = context.scope
    drafting = Drafting(context)
    required = context.read("frontmatter_contract.json")["sections"][section]["required_keys"]
    for page in drafting.plan:
        if page["section"] == section:
            body = drafting.body(page)
            text = join(front_matter(page, required, context.config, drafting.source_base), body)
            path = f"drafts/{section}/{page['output_path']}"
            context.write_file(path, text.encode(), path)
    context.emit("SECTIONS_WRITTEN", section=section, writers=drafting.written_by)


class Drafting:
    """The inputs of all pages, read once."""

    def __init__(self, context: WorkerContext) -> None:
        self.plan: list[Json] = context.read("page_plan.json")["pages"]
        facts, surface = context.read("product_facts.json"), context.read("api_surface.json")
        self._config = context.config
        self._claims = {claim["claim_id"]: claim for claim in facts["claims"]}
        self._snippets = {each["snippet_id"]: each for each in context.read("snippet_catalog.json")["snippets"]}
        self._symbols: dict[str, Json] = {symbol_key(each): each for each in surface["symbols"]}
        self._by_url = {page["url_path"]: page for page in self.plan}
        self._links = {locale: _symbol_links(self.plan, locale) for locale in {page["locale"] for page in self.plan}}
        self.source_base = source_base(context.config, facts["repo_sha"])
        sections: Json = context.read("model_sections.json")["sections"] if context.has("model_sections.json") else {}
        facts_writer = FactsWriter(facts["product_name"], surface["language"], self.source_base)
        self._writers: tuple[Writer, ...] = (ModelWriter(sections), facts_writer)
        """The writers in order: the first that has a draft for a section writes it."""
        self.written_by: Json = {}
        """The writer of each section, by page and heading."""

    def body(self, page: Json) -> str:
        parts: list[str] = []
        is_nested = False
        for outline in page["outline"]:
            brief = self.brief(page, outline)
            text = self._write(brief)
            if text is None:
                continue
            if outline["heading"]:
                container = bool(brief.symbols and brief.symbols[0]["container"]) and outline["kind"] == "symbol"
                level = 3 if container and is_nested else 2
                is_nested = is_nested or level == 2
                title = f"`{outline['heading']}`" if outline["kind"] == "symbol" else outline["heading"]
                parts.append(f"{'#' * level} {title}")
            parts.append(text)
        parts.append(self._see_also(page))
        return "\n" + "\n\n".join(part for part in parts if part) + "\n"

    def _write(self, brief: SectionBrief) -> str | None:
        for writer in self._writers:
            text = writer.write(brief)
            if text is not None:
                self.written_by[section_key(brief.page, brief.heading)] = writer.name
                return text
        return None

    def brief(self, page: Json, outline: Json) -> SectionBrief:
        """Return one section of the page with its facts."""
        symbols = [self._symbols[key] for key in outline["symbols"] if key in self._symbols]
        if outline["kind"] == "index":
            symbols = [each for each in self._symbols.values() if not each["container"] and each["kind"] != "module"]
            symbols.sort(key=lambda each: (each["name"].lower(), each["module"]))
        return SectionBrief(
            page,
            outline["heading"],
            outline["kind"],
            [self._claims[each] for each in outline["claim_ids"] if each in self._claims],
            [self._snippets[each] for each in outline["snippet_ids"]],
            symbols,
            self._links[page["locale"]],
            [self._by_url[url] for url in outline["symbols"]] if outline["kind"] == "pages" else (),
        )

    def _see_also(self, page: Json) -> str:
        links = [f"- [{escape_title(self._by_url[url]['title'])}]({url})" for url in page["cross_links"]]
        url: str = self._config["github_repo_url"]
        source = f"- [Source code]({url})" if url.startswith("https://") and page["section"] != "reference" else ""
        lines = [*links, *([source] if source else [])]
        return "\n".join(["## See also", "", *lines]) if lines else ""


def source_base(config: Json, sha: str) -> str | None:
    """Return the URL of the repository's files at the commit, if the repository is public."""
    url: str = config["github_repo_url"].removesuffix(".git").rstrip("/")
    return f"{url}/blob/{sha}" if url.startswith("https://") else None


def _symbol_links(plan: list[Json], locale: str) -> dict[str, str]:
    """Return the address of each symbol: its page, and its heading if it is not the first of the page."""
    links: dict[str, str] = {}
    for page in plan:
        if page["section"] != "reference" or page["locale"] != locale:
            continue
        for number, outline in enumerate(page["outline"]):
            if outline["kind"] in ("symbol", "module"):
                anchor = "" if number == 0 else f"#{heading_anchor(outline['heading'])}"
                for key in outline["symbols"]:
                    links.setdefault(key, page["url_path"] + (anchor if outline["kind"] == "symbol" else ""))
    return links


def heading_anchor(heading: str) -> str:
    """Return the id that Hugo gives to a heading."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower()))


def canonical_url(page: Json, config: Json) -> str | None:
    """Return the canonical URL that the run's settings define for the index page of a section."""
    name = _CANONICAL.get(page["section"])
    index = PurePosixPath(page["output_path"])
    first = index.stem == "_index" and page["slug"] == page["section"]
    return config.get("canonical_urls", {}).get(name) if first else None


def front_matter(page: Json, required: list[str], config: Json, base: str | None = None) -> Json:
    """Build the front matter: the keys that existing pages of the section have, order, source and canonical URL."""
    known: Json = {
        "title": page["title"],
        "description": page["description"],
        "url": page["url_path"],
        "weight": page["weight"],
        "type": page["section"],
        "layout": "single",
        "keywords": [page["section"], page["slug"]],
    }
    matter = {key: known[key] for key in sorted({*required, "title", "description", "weight"}) if key in known}
    if base is not None and page["origin"] is not None:
        matter["source_url"] = f"{base}/{page['origin']['path']}#L{page['origin']['line']}"
    canonical = canonical_url(page, config)
    return {**matter, "canonical": canonical} if canonical else matter
