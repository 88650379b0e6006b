"""What pages are planned from: facts, snippets and the public surface, and the address of each page."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backends.launch.surface import usage
from backends.launch.workers import languages, markdown
from backends.launch.workers.context import WorkerContext
from gateway.contract import Json

_MIN_EXAMPLE_LINES: Final = 2


@dataclass(frozen=True, slots=True)
class PageSources:
    """The facts, snippets and symbols from which pages are planned."""

    tier: str
    facts: Json
    snippets: list[Json]
    symbols: list[Json]

    @property
    def name(self) -> str:
        return self.facts["product_name"]

    @property
    def introduction(self) -> list[str]:
        identity = self.facts["positioning"]["claim_id"]
        return [*([identity] if identity else []), *self.facts["overview"]]

    def group(self, name: str) -> list[str]:
        return self.facts["claim_groups"][name]

    def text(self, claim_id: str) -> str:
        return next(claim["claim_text"] for claim in self.facts["claims"] if claim["claim_id"] == claim_id)

    def first_example(self) -> list[Json]:
        """Return the shortest example that uses the product, as a list of at most one snippet."""
        found = [each for each in self.snippets if _code_lines(each["code"]) >= _MIN_EXAMPLE_LINES]
        own = [each for each in found if usage.uses_product(each["language"], each["code"], self.symbols, self.package)]
        documented = [each for each in own if "example" not in each["tags"]]
        return sorted(documented or own or found, key=lambda each: len(each["code"]))[:1]

    @property
    def package(self) -> str:
        return self.facts.get("package_name", "")


def _code_lines(code: str) -> int:
    return sum(1 for line in code.splitlines() if line.strip() and not re.match(r"\s*(?:#|//)", line))


def usable_snippets(context: WorkerContext, symbols: Sequence[Json]) -> list[Json]:
    """Return the snippets in the platform's language that parse and use only public names."""
    platform = context.config["target_platform"]
    language: str = languages.LANGUAGE_BY_PLATFORM.get(platform) or platform
    accepted = ("javascript", "typescript") if language in ("javascript", "typescript") else (language,)
    catalog = context.read("snippet_catalog.json")["snippets"]
    return [
        each
        for each in catalog
        if each["language"] in accepted
        and each["validation"]["syntax_ok"]
        and not usage.unknown_names(each["language"], each["code"], symbols)
    ]


@dataclass(frozen=True, slots=True)
class OutlinePart:
    """One section of a page: its heading and the facts that fill it."""

    heading: str
    kind: str
    claim_ids: Sequence[str] = ()
    snippet_ids: Sequence[str] = ()
    symbols: Sequence[str] = ()

    def as_json(self) -> Json:
        return {
            "heading": self.heading,
            "kind": self.kind,
            "claim_ids": list(dict.fromkeys(self.claim_ids)),
            "snippet_ids": list(self.snippet_ids),
            "symbols": list(self.symbols),
        }


@dataclass(frozen=True, slots=True)
class SectionTarget:
    """One section in one locale, for which pages are planned."""

    config: Json
    section: str
    locale: str

    def page(
        self, slug: str, title: str, description: str, outline: Sequence[OutlinePart], origin: Json | None = None
    ) -> Json:
        path = _path(self.config, self.section, self.locale, slug)
        parts = [part.as_json() for part in outline]
        claims = [each for part in parts for each in part["claim_ids"]]
        return {
            "section": self.section,
            "slug": slug.removesuffix("/") or self.section,
            "output_path": path,
            "url_path": _url(self.config, path, self.locale),
            "title": title,
            "description": description,
            "purpose": f"{self.section}: {slug or 'index'}",
            "locale": self.locale,
            "required_headings": [part["heading"] for part in parts if part["heading"] and part["kind"] != "symbol"],
            "required_claim_ids": list(dict.fromkeys(claims)),
            "required_snippet_tags": [],
            "snippet_ids": [each for part in parts for each in part["snippet_ids"]],
            "cross_links": [],
            "outline": parts,
            "origin": origin,
        }


def section_folder(config: Json, section: str, locale: str) -> str:
    """Return the folder of a section's pages for this product, locale and platform."""
    layout = config["site_layout"]
    by_folder = layout["localization"]["mode_by_section"][section] == "dir"
    platform = [] if config.get("layout_mode") == "v1" else [config["target_platform"]]
    return "/".join([layout["subdomain_roots"][section], config["family"], *([locale] if by_folder else []), *platform])


def _path(config: Json, section: str, locale: str, slug: str) -> str:
    """Return the path of a page. A slug that ends with a slash names the index of a folder."""
    folder = section_folder(config, section, locale)
    if config["site_layout"]["localization"]["mode_by_section"][section] == "filename":
        suffix = "" if locale == "en" else f".{locale}"
        return f"{folder}/{slug or 'overview'}/index{suffix}.md"
    if slug.endswith("/"):
        return f"{folder}/{slug}_index.md"
    return f"{folder}/{slug}.md" if slug else f"{folder}/_index.md"


def _url(config: Json, path: str, locale: str) -> str:
    """Return the URL path that Hugo derives from the file's path."""
    inner = path.removeprefix(config["site_layout"]["content_root"].rstrip("/") + "/")
    for ending in ("/_index.md", f"/index.{locale}.md", "/index.md", ".md"):
        if inner.endswith(ending):
            inner = inner.removesuffix(ending)
            break
    return f"/{inner.lower()}/"


def plain(text: str) -> str:
    """Return inline Markdown as plain text for front matter, at most 300 characters."""
    text = (
        re.sub(r"\\([\[\]*_|#>+=-])|`", r"\1", text).replace("&lt;", "<").replace("&amp;", "&").replace("&#92;", "\\")
    )
    return text if len(text) <= 300 else text[:297].rsplit(" ", 1)[0] + "…"


class Slugs:
    """Unique slugs of the pages in one folder."""

    def __init__(self) -> None:
        self._taken: set[str] = {"index", "_index"}

    def take(self, text: str) -> str:
        base = markdown.slugify(text)
        slug, number = base, 2
        while slug in self._taken:
            slug, number = f"{base}-{number}", number + 1
        self._taken.add(slug)
        return slug
