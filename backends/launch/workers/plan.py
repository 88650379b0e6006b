"""W4: plans the pages of the site. A section is planned only if there are facts to fill it."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from backends.launch.states import SECTIONS
from backends.launch.workers import languages, markdown, plan_reference
from backends.launch.workers.context import WorkerContext
from backends.launch.workers.page_sources import (
    OutlinePart,
    PageSources,
    SectionTarget,
    Slugs,
    plain,
    section_folder,
    usable_snippets,
)
from backends.launch.workers.reference_text import first_sentence
from gateway.contract import Json
from gateway.errors import Fault, Kind

__all__ = ["locales", "run", "section_folder"]

_MAX_HOW_TOS: Final = {"minimal": 2, "standard": 10, "rich": 40}
_MAX_CROSS_LINKS: Final = 6
_MAX_TEASER: Final = 12
_MIN_INTRODUCTION: Final = 50
_MIN_WORDS: Final = 5


def run(context: WorkerContext) -> None:
    symbols = context.read("api_surface.json")["symbols"]
    facts, snippets = context.read("product_facts.json"), usable_snippets(context, symbols)
    tier = context.config.get("launch_tier") or _tier(facts, snippets)
    sources = PageSources(tier, facts, snippets, symbols)
    required_sections = [name for name in SECTIONS if name in context.config["required_sections"]]
    pages = [
        page
        for locale in locales(context.config)
        for section in required_sections
        for page in _PAGES[section](SectionTarget(context.config, section, locale), sources)
    ]
    if not pages:
        raise _nothing_to_document(context)
    for weight, page in enumerate(pages, 1):
        page["weight"] = weight * 10
        page["cross_links"] = _cross_links(page, pages) if page["section"] != "reference" else []
    slug = context.config["product_slug"]
    context.write(
        "page_plan.json", {"schema_version": "1.0", "product_slug": slug, "launch_tier": tier, "pages": pages}
    )


def locales(config: Json) -> list[str]:
    return list(config.get("locales") or [config["locale"]])


def _nothing_to_document(context: WorkerContext) -> Fault:
    language = languages.LANGUAGE_BY_PLATFORM.get(context.config["target_platform"], context.config["target_platform"])
    return Fault(
        Kind.INVALID_INPUT,
        "The repository has nothing to document: no README text, no install line, no example"
        f" and no public {language} API.",
        details={"target_platform": context.config["target_platform"]},
        suggested_fix="Check github_ref, target_platform and repo_hints of the run_config, and start a run with a new"
        " idempotency_key.",
    )


def _tier(facts: Json, snippets: list[Json]) -> str:
    claims = len(facts["claims"])
    if len(snippets) >= 5 and claims >= 10:
        return "rich"
    return "standard" if snippets and claims >= 3 else "minimal"


# ---- parts that several pages share ----


def _installation(sources: PageSources) -> list[OutlinePart]:
    commands = [each["claim_id"] for each in sources.facts["install_commands"]]
    notes = sources.group("compatibility_notes")
    return [OutlinePart("Installation", "install", [*commands, *notes])] if commands else []


def _requirements(sources: PageSources) -> list[OutlinePart]:
    notes = sources.group("compatibility_notes")
    has_install = bool(sources.facts["install_commands"])
    return [OutlinePart("Requirements", "list", notes)] if len(notes) >= 2 and not has_install else []


def _example(sources: PageSources, heading: str) -> list[OutlinePart]:
    found = sources.first_example()
    return [OutlinePart(heading, "code", (), [found[0]["snippet_id"]])] if found else []


def _teaser(sources: PageSources, heading: str) -> list[OutlinePart]:
    features = [each for group in sources.facts["feature_groups"] for each in group["claim_ids"]][:_MAX_TEASER]
    return [OutlinePart(heading, "list", features)] if features else []


def _is_short(sources: PageSources) -> bool:
    """Whether the introduction is too short for a section of its own."""
    return sum(len(sources.text(each)) for each in sources.introduction) < _MIN_INTRODUCTION


def _description(sources: PageSources, fallback: str) -> str:
    tagline = first_sentence(sources.facts["positioning"]["tagline"])
    if not tagline or not sources.facts["positioning"]["claim_id"]:
        return fallback
    return plain(tagline if len(tagline.split()) >= _MIN_WORDS else f"{sources.name}: {tagline}")


# ---- the pages of each section ----


def _products(target: SectionTarget, sources: PageSources) -> Iterator[Json]:
    outline = [
        *([OutlinePart("", "text", sources.introduction)] if sources.introduction else []),
        *_teaser(sources, "Features"),
        *_installation(sources),
        *_requirements(sources),
        *_example(sources, "Example"),
    ]
    if outline:
        yield target.page("", sources.name, _description(sources, f"{sources.name} at a glance."), outline)


def _docs(target: SectionTarget, sources: PageSources) -> Iterator[Json]:
    name = sources.name
    if sources.introduction:
        heading = "" if _is_short(sources) else "Overview"
        outline = [OutlinePart(heading, "text", sources.introduction), *_requirements(sources)]
        yield target.page(
            "", f"{name} documentation", f"Documentation of {name}: {_description(sources, name)}", outline
        )
    start = [*_installation(sources), *_example(sources, "First example")]
    if start:
        commands = [each["command"] for each in sources.facts["install_commands"][:1]]
        how = f"Install {name} with {commands[0]}" if commands else f"Write a first program with {name}"
        ending = " and run a first example." if commands and len(start) > 1 else "."
        yield target.page("getting-started", f"Getting started with {name}", how + ending, start)
    groups = sources.facts["feature_groups"]
    if groups:
        single = len(groups) == 1
        outline = [
            OutlinePart("Features" if single else group["title"], "list", group["claim_ids"]) for group in groups
        ]
        if limits := sources.group("limitations"):
            outline.append(OutlinePart("Limitations", "list", limits))
        count = sum(len(group["claim_ids"]) for group in groups)
        ending = f" and {len(limits)} limitation{'s' if len(limits) > 1 else ''}." if limits else "."
        description = f"Capabilities of {name}: {count} feature{'s' if count > 1 else ''}{ending}"
        yield target.page("features", f"Features of {name}", description, _unique(outline))
    if changes := sources.facts["changes"]:
        outline = [OutlinePart(group["title"], "list", group["claim_ids"]) for group in changes]
        newest = plain(changes[0]["title"])
        yield target.page(
            "changelog", f"Changelog of {name}", f"Changes in {name}; the newest release is {newest}.", _unique(outline)
        )


def _unique(outline: list[OutlinePart]) -> list[OutlinePart]:
    """Make the headings of a page unique."""
    seen: set[str] = set()
    found: list[OutlinePart] = []
    for part in outline:
        heading, number = part.heading, 2
        while heading in seen:
            heading, number = f"{part.heading} ({number})", number + 1
        seen.add(heading)
        found.append(OutlinePart(heading, part.kind, part.claim_ids, part.snippet_ids, part.symbols))
    return found


def _how_tos(target: SectionTarget, sources: PageSources) -> Iterator[Json]:
    slugs = Slugs()
    titles: set[str] = set()
    guides: list[Json] = []
    for snippet in sources.snippets[: _MAX_HOW_TOS[sources.tier] * 2]:
        topic = _topic(snippet["title"])
        title = f"{sources.name}: {topic}"
        if not topic or title in titles or len(titles) >= _MAX_HOW_TOS[sources.tier]:
            continue
        titles.add(title)
        used = plan_reference.symbols_in(snippet["code"], sources.symbols)
        outline = [OutlinePart("Program", "code", (), [snippet["snippet_id"]])]
        if len(used) > 1:  # a section with one short line says too little
            outline.append(OutlinePart("Names used", "names", (), (), used))
        source = snippet["source"]
        origin = {"path": source["path"], "line": source["start_line"]}
        lines, first = len(snippet["code"].splitlines()), topic[0].upper() + topic[1:]
        description = f"{first} with {sources.name}: a program of {lines} lines from {source['path']}."
        guides.append(target.page(slugs.take(f"how-to-{topic}"), title, description, outline, origin))
    if len(guides) > 1:
        listed = OutlinePart("Guides", "pages", (), (), [page["url_path"] for page in guides])
        description = f"{len(guides)} how-to guides for {sources.name}, each with a complete program."
        yield target.page("", f"{sources.name} how-to guides", description, [listed])
    yield from guides
    install = _installation(sources)
    if not titles and install and "docs" not in target.config["required_sections"]:
        title, command = f"How to install {sources.name}", sources.facts["install_commands"][0]["command"]
        yield target.page("how-to-install", title, f"Install {sources.name} with {command}.", install)


def _topic(title: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", title).strip()
    words = re.sub(r"[`*_#]+", "", words).strip(" .:")
    return words if words[:2].isupper() or len(words) < 2 else f"{words[0].lower()}{words[1:]}"


def _blog(target: SectionTarget, sources: PageSources) -> Iterator[Json]:
    if not sources.introduction or _is_short(sources):
        return
    outline = [
        OutlinePart("What it does", "text", sources.introduction),
        *_teaser(sources, "Features"),
        *_installation(sources),
        *_example(sources, "Try it"),
    ]
    slug = f"introducing-{markdown.slugify(target.config['product_slug'])}"
    description = f"Introducing {sources.name}. {_description(sources, '')}".strip()
    yield target.page(slug, f"Introducing {sources.name}", description[:300], outline)


_PAGES: Final[Mapping[str, Callable[[SectionTarget, PageSources], Iterator[Json]]]] = {
    "products": _products,
    "docs": _docs,
    "reference": plan_reference.pages,
    "kb": _how_tos,
    "blog": _blog,
}


def _cross_links(page: Json, pages: list[Json]) -> list[str]:
    """Return links to pages of the same locale: pages of the same section, then the first of each other section."""
    peers = [other for other in pages if other["locale"] == page["locale"] and other is not page]
    first_of: dict[str, str] = {}
    for other in peers:
        if other["section"] != page["section"]:
            first_of.setdefault(other["section"], other["url_path"])
    near = [other["url_path"] for other in peers if other["section"] == page["section"]]
    is_index = page["slug"] == page["section"]
    return [*near[: _MAX_CROSS_LINKS if is_index else 2], *first_of.values()]
