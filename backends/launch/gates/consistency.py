"""Gate `consistency`: pages match the run's settings and plan, and were not edited manually."""

import re
from collections.abc import Iterator
from typing import Final

from backends.launch.gates.context import Finding, GateContext
from backends.launch.serialization import digest
from backends.launch.workers import markdown
from backends.launch.workers.draft import canonical_url
from backends.launch.workers.frontmatter import split
from gateway.contract import Json

REPO_LINK: Final = re.compile(r"\[Source code\]\(([^)]*)\)")


def check(context: GateContext) -> Iterator[Finding]:
    facts, config = context.facts, context.config
    if not facts["product_name_found"]:
        yield Finding(
            "GATE_CONSISTENCY_PRODUCT_NAME",
            f"The repository does not name the product “{config['product_name']}”.",
            "blocker",
            "artifacts/product_facts.json",
            suggested_fix="Start a run with the product_name that the repository's README or package file uses.",
        )
    for page in context.plan:
        path = page["output_path"]
        if path in context.pages:
            yield from _check_front_matter(context, path, page)
            yield from _check_body(context, path, page["required_headings"])
    for path in manually_edited(context):
        if not config.get("allow_manual_edits", False):
            yield Finding("GATE_CONSISTENCY_MANUAL_EDIT", "The page was changed by hand.", "warn", path)


def _check_front_matter(context: GateContext, path: str, page: Json) -> Iterator[Finding]:
    try:
        matter, _ = split(context.pages[path])
    except ValueError:
        return
    if matter is None:
        return
    if matter.get("title") not in (None, page["title"]):
        yield Finding("GATE_CONSISTENCY_TITLE", "The title is not the planned one.", "error", path, 1)
    if matter.get("description") not in (None, page["description"]):
        message = "The description is not the planned one."
        yield Finding("GATE_CONSISTENCY_DESCRIPTION", message, "error", path, 1)
    canonical = canonical_url(page, context.config)
    if canonical is not None and matter.get("canonical") != canonical:
        message = "The canonical address is not that of the run's settings."
        yield Finding("GATE_CONSISTENCY_CANONICAL_URL", message, "error", path, 1)


def _check_body(context: GateContext, path: str, headings: list[str]) -> Iterator[Finding]:
    text, line_offset = context.body(path)
    found_headings: set[str] = set()
    for line in markdown.lines(text):
        if found := None if line.is_code else markdown.HEADING.match(line.text):
            found_headings.add(found[2])
        for url in [] if line.is_code else REPO_LINK.findall(line.text):
            if url != context.config["github_repo_url"]:
                message = "The link to the source code names another repository."
                yield Finding("GATE_CONSISTENCY_REPO_URL", message, "error", path, line.number + line_offset)
    for heading in headings:
        if heading not in found_headings:
            yield Finding("GATE_CONSISTENCY_HEADING_MISSING", f"The heading “{heading}” is missing.", "error", path)


def manually_edited(context: GateContext) -> list[str]:
    """Return the pages that differ from the result of their last patch."""
    if not context.worker.has("patch_bundle.json"):
        return []
    last = {patch["path"]: patch["content_hash"] for patch in context.worker.read("patch_bundle.json")["patches"]}
    digests = {path: digest(context.worker.site.joinpath(path).read_bytes()) for path in context.pages}
    return sorted(path for path, content_hash in last.items() if path in digests and digests[path] != content_hash)
