"""W4: which pages the site gets, where, and what each must say."""

from collections.abc import Iterator
from typing import Final

from backends.launch.states import SECTIONS
from backends.launch.workers import languages, markdown
from backends.launch.workers.bench import Bench
from gateway.contract import Json

_HOW_TOS: Final = {"minimal": 1, "standard": 3, "rich": 10}
_LINKS: Final = 4


def run(bench: Bench) -> None:
    facts, snippets = bench.read("product_facts.json"), usable(bench)
    tier = bench.config.get("launch_tier") or _tier(facts, snippets)
    wanted = [name for name in SECTIONS if name in bench.config["required_sections"]]
    pages = [
        page
        for locale in locales(bench.config)
        for section in wanted
        for page in _section(bench.config, section, locale, tier, facts, snippets)
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


def _section(config: Json, section: str, locale: str, tier: str, facts: Json, snippets: list[Json]) -> Iterator[Json]:
    name, groups = config["product_name"], facts["claim_groups"]
    about = [facts["positioning"]["claim_id"]] if facts["positioning"]["claim_id"] else []
    features, install = groups["key_features"], groups["install_steps"]
    first = snippets[:1]
    if section == "products":
        purpose = "Introduce the product and how to get it."
        yield _page(
            config,
            section,
            locale,
            "",
            name,
            purpose,
            [*about, *features, *install],
            first,
            ["Features", "Installation"],
        )
    elif section == "docs":
        needs = groups["compatibility_notes"]
        yield _page(
            config,
            section,
            locale,
            "",
            f"{name} documentation",
            "Lead into the documentation.",
            about,
            [],
            ["Overview"],
        )
        purpose = "Take a newcomer to the first working program."
        title = f"Getting started with {name}"
        yield _page(
            config,
            section,
            locale,
            "getting-started",
            title,
            purpose,
            [*install, *needs],
            first,
            ["Installation", "First steps"],
        )
        if features and tier != "minimal":
            claims = [*features, *groups["limitations"]]
            yield _page(
                config,
                section,
                locale,
                "features",
                f"Features of {name}",
                "List what it can do.",
                claims,
                [],
                ["Features"],
            )
    elif section == "reference":
        api = [claim["claim_id"] for claim in facts["claims"] if claim["claim_kind"] == "api"]
        yield _page(
            config,
            section,
            locale,
            "",
            f"{name} API reference",
            "Name the public types and functions.",
            api,
            [],
            ["Public names"],
        )
    elif section == "kb":
        yield from _how_tos(config, locale, tier, snippets, install)
    else:
        slug = f"introducing-{config['product_slug']}"
        yield _page(
            config,
            section,
            locale,
            slug,
            f"Introducing {name}",
            "Announce the product.",
            [*about, *features],
            first,
            ["What it does", "Try it"],
        )


def _how_tos(config: Json, locale: str, tier: str, snippets: list[Json], install: list[str]) -> Iterator[Json]:
    name, seen = config["product_name"], set[str]()
    for snippet in snippets[: _HOW_TOS[tier]]:
        topic = snippet.get("title") or "use it"
        slug = markdown.slug(f"how-to-{topic}")
        if slug not in seen:
            seen.add(slug)
            purpose = "Show one task as a program that can be copied."
            yield _page(config, "kb", locale, slug, f"{name}: {topic.lower()}", purpose, [], [snippet], ["Program"])
    if not seen:
        yield _page(
            config,
            "kb",
            locale,
            "how-to-install",
            f"How to install {name}",
            "Show the installation.",
            install,
            [],
            ["Installation"],
        )


def _page(
    config: Json,
    section: str,
    locale: str,
    slug: str,
    title: str,
    purpose: str,
    claims: list[str],
    snippets: list[Json],
    headings: list[str],
) -> Json:
    path = _path(config, section, locale, slug)
    return {
        "section": section,
        "slug": slug or section,
        "output_path": path,
        "url_path": _url(config, path, locale),
        "title": title,
        "purpose": purpose,
        "locale": locale,
        "required_headings": headings,
        "required_claim_ids": list(dict.fromkeys(claims)),
        "required_snippet_tags": sorted({snippet["tags"][0] for snippet in snippets}),
        "snippet_ids": [snippet["snippet_id"] for snippet in snippets],
        "cross_links": [],
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
