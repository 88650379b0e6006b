"""W4: plans the pages of the site: their paths, headings, claims and snippets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backends.launch.states import SECTIONS
from backends.launch.workers import languages, markdown
from backends.launch.workers.context import WorkerContext
from gateway.contract import Json

_MAX_HOW_TOS: Final = {"minimal": 1, "standard": 3, "rich": 10}
_MAX_CROSS_LINKS: Final = 4


def run(context: WorkerContext) -> None:
    facts, snippets = context.read("product_facts.json"), usable_snippets(context)
    tier = context.config.get("launch_tier") or _tier(facts, snippets)
    matter = _PageSources(context.config["product_name"], tier, facts, snippets)
    required_sections = [name for name in SECTIONS if name in context.config["required_sections"]]
    pages = [
        page
        for locale in locales(context.config)
        for section in required_sections
        for page in _PAGES[section](_SectionTarget(context.config, section, locale), matter)
    ]
    for page in pages:
        page["cross_links"] = _cross_links(page, pages)
    slug = context.config["product_slug"]
    context.write(
        "page_plan.json", {"schema_version": "1.0", "product_slug": slug, "launch_tier": tier, "pages": pages}
    )


def locales(config: Json) -> list[str]:
    return list(config.get("locales") or [config["locale"]])


def usable_snippets(context: WorkerContext) -> list[Json]:
    """Return the snippets in the platform's language that parse."""
    platform = context.config["target_platform"]
    language: str = languages.LANGUAGE_BY_PLATFORM.get(platform) or platform
    catalog = context.read("snippet_catalog.json")["snippets"]
    return [each for each in catalog if each["language"] == language and each["validation"]["syntax_ok"]]


def _tier(facts: Json, snippets: list[Json]) -> str:
    claims = len(facts["claims"])
    if len(snippets) >= 5 and claims >= 10:
        return "rich"
    return "standard" if snippets and claims >= 3 else "minimal"


@dataclass(frozen=True, slots=True)
class _PageSources:
    """The facts and snippets from which pages are planned."""

    name: str
    tier: str
    facts: Json
    snippets: list[Json]

    @property
    def positioning_claims(self) -> list[str]:
        identity = self.facts["positioning"]["claim_id"]
        return [identity] if identity else []

    def group(self, name: str) -> list[str]:
        return self.facts["claim_groups"][name]

    def of_kind(self, kind: str) -> list[str]:
        return [claim["claim_id"] for claim in self.facts["claims"] if claim["claim_kind"] == kind]


@dataclass(frozen=True, slots=True)
class _SectionTarget:
    """One section in one locale, for which pages are planned."""

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


def _products(target: _SectionTarget, sources: _PageSources) -> Iterator[Json]:
    claims = [*sources.positioning_claims, *sources.group("key_features"), *sources.group("install_steps")]
    purpose = "Introduce the product and how to get it."
    yield target.page("", sources.name, purpose, ["Features", "Installation"], claims, sources.snippets[:1])


def _docs(target: _SectionTarget, sources: _PageSources) -> Iterator[Json]:
    yield target.page(
        "", f"{sources.name} documentation", "Lead into the documentation.", ["Overview"], sources.positioning_claims
    )
    claims = [*sources.group("install_steps"), *sources.group("compatibility_notes")]
    purpose, headings = "Take a newcomer to the first working program.", ["Installation", "First steps"]
    title = f"Getting started with {sources.name}"
    yield target.page("getting-started", title, purpose, headings, claims, sources.snippets[:1])
    features = sources.group("key_features")
    if features and sources.tier != "minimal":
        claims = [*features, *sources.group("limitations")]
        yield target.page("features", f"Features of {sources.name}", "List what it can do.", ["Features"], claims)


def _reference(target: _SectionTarget, sources: _PageSources) -> Iterator[Json]:
    title, purpose = f"{sources.name} API reference", "Name the public types and functions."
    yield target.page("", title, purpose, ["Public names"], sources.of_kind("api"))


def _how_tos(target: _SectionTarget, sources: _PageSources) -> Iterator[Json]:
    slugs = set[str]()
    for snippet in sources.snippets[: _MAX_HOW_TOS[sources.tier]]:
        topic = snippet.get("title") or "use it"
        slug = markdown.slugify(f"how-to-{topic}")
        if slug not in slugs:
            slugs.add(slug)
            purpose = "Show one task as a program that can be copied."
            yield target.page(slug, f"{sources.name}: {topic.lower()}", purpose, ["Program"], snippets=[snippet])
    if not slugs:
        title, claims = f"How to install {sources.name}", sources.group("install_steps")
        yield target.page("how-to-install", title, "Show the installation.", ["Installation"], claims)


def _blog(target: _SectionTarget, sources: _PageSources) -> Iterator[Json]:
    slug, title = f"introducing-{target.config['product_slug']}", f"Introducing {sources.name}"
    claims = [*sources.positioning_claims, *sources.group("key_features")]
    yield target.page(slug, title, "Announce the product.", ["What it does", "Try it"], claims, sources.snippets[:1])


_PAGES: Final[Mapping[str, Callable[[_SectionTarget, _PageSources], Iterator[Json]]]] = {
    "products": _products,
    "docs": _docs,
    "reference": _reference,
    "kb": _how_tos,
    "blog": _blog,
}


def section_folder(config: Json, section: str, locale: str) -> str:
    """Return the folder of a section's pages for this product, locale and platform."""
    layout = config["site_layout"]
    by_folder = layout["localization"]["mode_by_section"][section] == "dir"
    platform = [] if config.get("layout_mode") == "v1" else [config["target_platform"]]
    return "/".join([layout["subdomain_roots"][section], config["family"], *([locale] if by_folder else []), *platform])


def _path(config: Json, section: str, locale: str, slug: str) -> str:
    folder = section_folder(config, section, locale)
    if config["site_layout"]["localization"]["mode_by_section"][section] == "filename":
        suffix = "" if locale == "en" else f".{locale}"
        return f"{folder}/{slug or 'overview'}/index{suffix}.md"
    return f"{folder}/{slug}.md" if slug else f"{folder}/_index.md"


def _url(config: Json, path: str, locale: str) -> str:
    """Return the URL path that Hugo derives from the file's path."""
    inner = path.removeprefix(config["site_layout"]["content_root"].rstrip("/") + "/")
    for ending in ("/_index.md", f"/index.{locale}.md", "/index.md", ".md"):
        if inner.endswith(ending):
            inner = inner.removesuffix(ending)
            break
    return f"/{inner.lower()}/"


def _cross_links(page: Json, pages: list[Json]) -> list[str]:
    """Return links to pages of the same locale: the first of each other section, then pages of the same section."""
    peers = [other for other in pages if other["locale"] == page["locale"] and other is not page]
    first_of: dict[str, str] = {}
    for other in peers:
        if other["section"] != page["section"]:
            first_of.setdefault(other["section"], other["url_path"])
    near = [other["url_path"] for other in peers if other["section"] == page["section"]]
    return [*first_of.values(), *near][:_MAX_CROSS_LINKS]
