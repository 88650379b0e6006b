"""W4: which pages the site gets, where, and what each must say."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backends.launch.states import SECTIONS
from backends.launch.workers import languages, markdown
from backends.launch.workers.context import Bench
from gateway.contract import Json

_HOW_TOS: Final = {"minimal": 1, "standard": 3, "rich": 10}
_LINKS: Final = 4


def run(bench: Bench) -> None:
    facts, snippets = bench.read("product_facts.json"), usable(bench)
    tier = bench.config.get("launch_tier") or _tier(facts, snippets)
    matter = _Matter(bench.config["product_name"], tier, facts, snippets)
    wanted = [name for name in SECTIONS if name in bench.config["required_sections"]]
    pages = [
        page
        for locale in locales(bench.config)
        for section in wanted
        for page in _PAGES[section](_Place(bench.config, section, locale), matter)
    ]
    for page in pages:
        page["cross_links"] = _links(page, pages)
    slug = bench.config["product_slug"]
    bench.write("page_plan.json", {"schema_version": "1.0", "product_slug": slug, "launch_tier": tier, "pages": pages})


def locales(config: Json) -> list[str]:
    return list(config.get("locales") or [config["locale"]])


def usable(bench: Bench) -> list[Json]:
    """The snippets in the platform's language that parse."""
    platform = bench.config["target_platform"]
    language: str = languages.OF_PLATFORM.get(platform) or platform
    catalog = bench.read("snippet_catalog.json")["snippets"]
    return [each for each in catalog if each["language"] == language and each["validation"]["syntax_ok"]]


def _tier(facts: Json, snippets: list[Json]) -> str:
    claims = len(facts["claims"])
    if len(snippets) >= 5 and claims >= 10:
        return "rich"
    return "standard" if snippets and claims >= 3 else "minimal"


@dataclass(frozen=True, slots=True)
class _Matter:
    """What pages can be made of."""

    name: str
    tier: str
    facts: Json
    snippets: list[Json]

    @property
    def about(self) -> list[str]:
        identity = self.facts["positioning"]["claim_id"]
        return [identity] if identity else []

    def group(self, name: str) -> list[str]:
        return self.facts["claim_groups"][name]

    def of_kind(self, kind: str) -> list[str]:
        return [claim["claim_id"] for claim in self.facts["claims"] if claim["claim_kind"] == kind]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the pages of one section in one language go."""

    config: Json
    section: str
    locale: str

    def page(
        self,
        slug: str,
        title: str,
        purpose: str,
        headings: list[str],
        claims: Sequence[str] = (),
        snippets: Sequence[Json] = (),
    ) -> Json:
        path = _path(self.config, self.section, self.locale, slug)
        return {
            "section": self.section,
            "slug": slug or self.section,
            "output_path": path,
            "url_path": _url(self.config, path, self.locale),
            "title": title,
            "purpose": purpose,
            "locale": self.locale,
            "required_headings": headings,
            "required_claim_ids": list(dict.fromkeys(claims)),
            "required_snippet_tags": sorted({snippet["tags"][0] for snippet in snippets}),
            "snippet_ids": [snippet["snippet_id"] for snippet in snippets],
            "cross_links": [],
        }


def _products(at: _Place, of: _Matter) -> Iterator[Json]:
    claims = [*of.about, *of.group("key_features"), *of.group("install_steps")]
    purpose = "Introduce the product and how to get it."
    yield at.page("", of.name, purpose, ["Features", "Installation"], claims, of.snippets[:1])


def _docs(at: _Place, of: _Matter) -> Iterator[Json]:
    yield at.page("", f"{of.name} documentation", "Lead into the documentation.", ["Overview"], of.about)
    claims = [*of.group("install_steps"), *of.group("compatibility_notes")]
    purpose, headings = "Take a newcomer to the first working program.", ["Installation", "First steps"]
    title = f"Getting started with {of.name}"
    yield at.page("getting-started", title, purpose, headings, claims, of.snippets[:1])
    features = of.group("key_features")
    if features and of.tier != "minimal":
        claims = [*features, *of.group("limitations")]
        yield at.page("features", f"Features of {of.name}", "List what it can do.", ["Features"], claims)


def _reference(at: _Place, of: _Matter) -> Iterator[Json]:
    title, purpose = f"{of.name} API reference", "Name the public types and functions."
    yield at.page("", title, purpose, ["Public names"], of.of_kind("api"))


def _how_tos(at: _Place, of: _Matter) -> Iterator[Json]:
    seen = set[str]()
    for snippet in of.snippets[: _HOW_TOS[of.tier]]:
        topic = snippet.get("title") or "use it"
        slug = markdown.slug(f"how-to-{topic}")
        if slug not in seen:
            seen.add(slug)
            purpose = "Show one task as a program that can be copied."
            yield at.page(slug, f"{of.name}: {topic.lower()}", purpose, ["Program"], snippets=[snippet])
    if not seen:
        title, claims = f"How to install {of.name}", of.group("install_steps")
        yield at.page("how-to-install", title, "Show the installation.", ["Installation"], claims)


def _blog(at: _Place, of: _Matter) -> Iterator[Json]:
    slug, title = f"introducing-{at.config['product_slug']}", f"Introducing {of.name}"
    claims = [*of.about, *of.group("key_features")]
    yield at.page(slug, title, "Announce the product.", ["What it does", "Try it"], claims, of.snippets[:1])


_PAGES: Final[Mapping[str, Callable[[_Place, _Matter], Iterator[Json]]]] = {
    "products": _products,
    "docs": _docs,
    "reference": _reference,
    "kb": _how_tos,
    "blog": _blog,
}


def folder_of(config: Json, section: str, locale: str) -> str:
    """The folder of a section's pages for this product, language and platform."""
    layout = config["site_layout"]
    by_folder = layout["localization"]["mode_by_section"][section] == "dir"
    platform = [] if config.get("layout_mode") == "v1" else [config["target_platform"]]
    return "/".join([layout["subdomain_roots"][section], config["family"], *([locale] if by_folder else []), *platform])


def _path(config: Json, section: str, locale: str, slug: str) -> str:
    folder = folder_of(config, section, locale)
    if config["site_layout"]["localization"]["mode_by_section"][section] == "filename":
        suffix = "" if locale == "en" else f".{locale}"
        return f"{folder}/{slug or 'overview'}/index{suffix}.md"
    return f"{folder}/{slug}.md" if slug else f"{folder}/_index.md"


def _url(config: Json, path: str, locale: str) -> str:
    """As Hugo derives it from the place of the file."""
    inner = path.removeprefix(config["site_layout"]["content_root"].rstrip("/") + "/")
    for ending in ("/_index.md", f"/index.{locale}.md", "/index.md", ".md"):
        if inner.endswith(ending):
            inner = inner.removesuffix(ending)
            break
    return f"/{inner.lower()}/"


def _links(page: Json, pages: list[Json]) -> list[str]:
    """Pages of the same language that a reader goes to next: one of each other section, then its own neighbours."""
    peers = [other for other in pages if other["locale"] == page["locale"] and other is not page]
    first_of: dict[str, str] = {}
    for other in peers:
        if other["section"] != page["section"]:
            first_of.setdefault(other["section"], other["url_path"])
    near = [other["url_path"] for other in peers if other["section"] == page["section"]]
    return [*first_of.values(), *near][:_LINKS]
