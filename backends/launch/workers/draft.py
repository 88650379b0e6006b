"""W5: drafts the pages of one section from cited claims and catalogued snippets only."""

from pathlib import PurePosixPath
from typing import Final

from backends.launch.workers.context import WorkerContext
from backends.launch.workers.frontmatter import join
from gateway.contract import Json


def run(context: WorkerContext) -> None:
    section = context.scope
    plan, facts = context.read("page_plan.json"), context.read("product_facts.json")
    required = context.read("frontmatter_contract.json")["sections"][section]["required_keys"]
    claims = {claim["claim_id"]: claim for claim in facts["claims"]}
    snippets = {snippet["snippet_id"]: snippet for snippet in context.read("snippet_catalog.json")["snippets"]}
    titles = {page["url_path"]: page["title"] for page in plan["pages"]}
    for page in plan["pages"]:
        if page["section"] == section:
            matter = front_matter(page, required, context.config)
            text = join(matter, body(page, claims, snippets, titles, context.config))
            path = f"drafts/{section}/{page['output_path']}"
            context.write_file(path, text.encode(), path)


_CANONICAL: Final = {"products": "product", "docs": "docs", "reference": "reference"}


def canonical_url(page: Json, config: Json) -> str | None:
    """Return the canonical URL that the run's settings define for the index page of a section."""
    name = _CANONICAL.get(page["section"])
    first = PurePosixPath(page["output_path"]).stem == "_index"
    return config.get("canonical_urls", {}).get(name) if first else None


def front_matter(page: Json, required: list[str], config: Json) -> Json:
    """Build the front matter: the keys that existing pages of the section have, and the canonical URL if set."""
    known: Json = {
        "title": page["title"],
        "description": page["purpose"],
        "url": page["url_path"],
        "weight": 10,
        "type": page["section"],
        "layout": "single",
        "keywords": [page["section"], page["slug"]],
    }
    matter = {key: known[key] for key in sorted({*required, "title", "description"}) if key in known}
    canonical = canonical_url(page, config)
    return {**matter, "canonical": canonical} if canonical else matter


def body(page: Json, claims: Json, snippets: Json, titles: Json, config: Json) -> str:
    cited = [claims[each] for each in page["required_claim_ids"] if each in claims]
    shown = [snippets[each] for each in page["snippet_ids"]]
    parts = [_lead(cited), *_sections(page, cited, shown), _related(page, titles, config)]
    return "\n" + "\n\n".join(part for part in parts if part) + "\n"


def _lead(cited: list[Json]) -> str:
    return "\n\n".join(_statement(claim, "") for claim in cited if claim["claim_kind"] == "positioning")


def _sections(page: Json, cited: list[Json], shown: list[Json]) -> list[str]:
    """Distribute the claims over the headings. Claims without a matching heading go under the first."""
    headings = page["required_headings"]
    install = [claim for claim in cited if claim["claim_kind"] == "install"]
    rest = [claim for claim in cited if claim["claim_kind"] not in ("install", "positioning")]
    under: dict[str, list[Json]] = {heading: [] for heading in headings}
    for claim in install:
        under["Installation" if "Installation" in under else headings[0]].append(claim)
    for claim in rest:
        under[headings[0]].append(claim)
    parts: list[str] = []
    for heading in headings:
        parts.append(f"## {heading}")
        parts.append("\n".join(_statement(claim, "- ") for claim in under[heading]))
    parts.extend(_code(snippet) for snippet in shown)
    return parts


def _statement(claim: Json, bullet: str) -> str:
    return f"{bullet}{claim['claim_text']} <!-- claim_id: {claim['claim_id']} -->"


def _code(snippet: Json) -> str:
    return f"```{snippet['language']}\n{snippet['code']}```"


def _related(page: Json, titles: Json, config: Json) -> str:
    links = [f"- [{titles[url]}]({url})" for url in page["cross_links"]]
    source = f"- [Source code]({config['github_repo_url']})" if config["github_repo_url"].startswith("https://") else ""
    return "\n".join(["## See also", "", *links, *([source] if source else [])]) if links or source else ""
