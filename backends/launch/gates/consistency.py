"""Pages agree with the run's settings and with each other: names, addresses, headings, and whose hand wrote them."""

import re
from collections.abc import Iterator
from typing import Final

from backends.launch.gates.context import Finding, Subject
from backends.launch.serialization import digest
from backends.launch.workers import markdown
from backends.launch.workers.draft import canonical_url
from backends.launch.workers.frontmatter import split
from gateway.contract import Json

REPO_LINK: Final = re.compile(r"\[Source code\]\(([^)]*)\)")


def check(subject: Subject) -> Iterator[Finding]:
    facts, config = subject.facts, subject.config
    if facts["product_name"] != config["product_name"]:
        yield Finding(
            "GATE_CONSISTENCY_PRODUCT_NAME",
            "The facts name another product.",
            "blocker",
            "artifacts/product_facts.json",
        )
    for page in subject.plan:
        path = page["output_path"]
        if path in subject.pages:
            yield from _front_matter(subject, path, page)
            yield from _body(subject, path, page["required_headings"])
    for path in edited_by_hand(subject):
        if not config.get("allow_manual_edits", False):
            yield Finding("GATE_CONSISTENCY_MANUAL_EDIT", "The page was changed by hand.", "warn", path)


def _front_matter(subject: Subject, path: str, page: Json) -> Iterator[Finding]:
    try:
        matter, _ = split(subject.pages[path])
    except ValueError:
        return
    if matter is None:
        return
    if matter.get("title") not in (None, page["title"]):
        yield Finding("GATE_CONSISTENCY_TITLE", "The title is not the planned one.", "error", path, 1)
    canonical = canonical_url(page, subject.config)
    if canonical is not None and matter.get("canonical") != canonical:
        message = "The canonical address is not that of the run's settings."
        yield Finding("GATE_CONSISTENCY_CANONICAL_URL", message, "error", path, 1)


def _body(subject: Subject, path: str, headings: list[str]) -> Iterator[Finding]:
    text, above = subject.body(path)
    there: set[str] = set()
    for line in markdown.lines(text):
        if found := None if line.code else markdown.HEADING.match(line.text):
            there.add(found[2])
        for url in [] if line.code else REPO_LINK.findall(line.text):
            if url != subject.config["github_repo_url"]:
                message = "The link to the source code names another repository."
                yield Finding("GATE_CONSISTENCY_REPO_URL", message, "error", path, line.number + above)
    for heading in headings:
        if heading not in there:
            yield Finding("GATE_CONSISTENCY_HEADING_MISSING", f"The heading “{heading}” is missing.", "error", path)


def edited_by_hand(subject: Subject) -> list[str]:
    """Pages that are not as the last patch left them."""
    if not subject.bench.has("patch_bundle.json"):
        return []
    last = {patch["path"]: patch["content_hash"] for patch in subject.bench.read("patch_bundle.json")["patches"]}
    here = {path: digest(subject.bench.site.joinpath(path).read_bytes()) for path in subject.pages}
    return sorted(path for path, hashed in last.items() if path in here and here[path] != hashed)
