"""Repairs for each kind of issue. A page without a specific repair is reset to its draft."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from backends.launch.gates.consistency import REPO_LINK
from backends.launch.gates.context import GateContext
from backends.launch.gates.lint import format_page
from backends.launch.gates.tokens import TOKEN
from backends.launch.workers import draft, markdown
from backends.launch.workers.frontmatter import body_of, join, split
from gateway.contract import Json

Repair = Callable[[GateContext, Json, str, str], str | None]


def repaired_pages(context: GateContext, issue: Json, path: str) -> list[str]:
    """Return the repaired texts of the page, the best first: the specific repair, then the draft."""
    page = context.pages.get(path)
    repair = _REPAIRS.get(issue.get("error_code", ""))
    texts = [repair(context, issue, path, page) if page is not None and repair is not None else None]
    texts.append(read_draft(context, path))
    return [text for text in dict.fromkeys(texts) if text is not None and text != page]


def read_draft(context: GateContext, path: str) -> str | None:
    section = next(page["section"] for page in context.plan if page["output_path"] == path)
    file = context.worker.folder / "drafts" / section / path
    return file.read_text(encoding="utf-8") if file.is_file() else None


def _repair_front_matter(context: GateContext, issue: Json, path: str, page: str) -> str | None:
    if page.startswith("---") and body_of(page) == page:
        return None  # the front matter has no end, so the text after it is unknown
    planned = next(each for each in context.plan if each["output_path"] == path)
    contract = context.worker.read("frontmatter_contract.json")["sections"][planned["section"]]
    base = draft.source_base(context.config, context.facts["repo_sha"])
    matter = draft.front_matter(planned, contract["required_keys"], context.config, base)
    try:
        known, _ = split(page)
    except ValueError:
        known = None
    return join({**matter, **{key: value for key, value in (known or {}).items() if value}}, body_of(page))


def _set_title(context: GateContext, issue: Json, path: str, page: str) -> str | None:
    planned = next(each for each in context.plan if each["output_path"] == path)
    try:
        matter, body = split(page)
    except ValueError:
        return None
    return join({**(matter or {}), "title": planned["title"], "description": planned["description"]}, body)


def _set_canonical(context: GateContext, issue: Json, path: str, page: str) -> str | None:
    planned = next(each for each in context.plan if each["output_path"] == path)
    try:
        matter, body = split(page)
    except ValueError:
        return None
    return join({**(matter or {}), "canonical": draft.canonical_url(planned, context.config)}, body)


def _fill_token(context: GateContext, issue: Json, path: str, page: str) -> str:
    config = context.config
    values = {
        "product_name": config["product_name"],
        "product_slug": config["product_slug"],
        "family": config["family"],
        "platform": config["target_platform"],
        "target_platform": config["target_platform"],
        "repo_url": config["github_repo_url"],
        "github_repo_url": config["github_repo_url"],
    }

    def fill(token: re.Match[str]) -> str:
        return values.get(token[0].strip("_{}. ").lower(), "")

    def filled(line: str) -> str | None:
        after = TOKEN.sub(fill, line)
        return after if after.strip(" -*+#\n") else None

    return _edit_line(page, issue, filled)


def _fix_lint(context: GateContext, issue: Json, path: str, page: str) -> str | None:
    fixed = format_page(page)
    # A repair that changes code is not used.
    return fixed if _code_of(fixed) == _code_of(page) else None


def _code_of(page: str) -> list[str]:
    """Return the code spans and code blocks of the page."""
    blocks = [fence.code for fence in markdown.fences(page)]
    spans = [each for line in markdown.lines(page) if not line.is_code for each in re.findall(r"`+[^`]*`+", line.text)]
    return [*blocks, *spans]


def _remove_link(context: GateContext, issue: Json, path: str, page: str) -> str:
    target = re.search(r"The link to (\S+) leads nowhere", issue["message"])

    def plain(link: re.Match[str]) -> str:
        return link[1] if target and link[2] == target[1] else link[0]

    def line_without(line: str) -> str | None:
        bullet = markdown.BULLET.match(line)
        alone = bullet is not None and markdown.LINK.fullmatch(bullet[1]) is not None
        return None if alone else markdown.LINK.sub(plain, line)

    return _edit_line(page, issue, line_without)


def _cite_or_remove(context: GateContext, issue: Json, path: str, page: str) -> str:
    """Add the claim marker to a statement with evidence; remove a statement without evidence."""
    by_text = {claim["claim_text"]: claim for claim in context.claims.values()}

    def cite(line: str) -> str | None:
        bare = markdown.MARKER.sub("", line).strip()
        bullet = markdown.BULLET.match(bare)
        claim = by_text.get((bullet[1] if bullet else bare).strip())
        if claim is None or (claim["truth_status"] == "inference" and not context.config["allow_inference"]):
            return None
        return f"{bare} <!-- claim_id: {claim['claim_id']} -->\n"

    return _edit_line(page, issue, cite)


def _set_repo_url(context: GateContext, issue: Json, path: str, page: str) -> str:
    return REPO_LINK.sub(f"[Source code]({context.config['github_repo_url']})", page)


def _restore_patched(context: GateContext, issue: Json, path: str, page: str) -> str | None:
    """Restore the page to the result of its last patch."""
    bundle: list[Json] = context.worker.read("patch_bundle.json")["patches"]
    contents = [patch.get("content") for patch in bundle if patch["path"] == path]
    return contents[-1] if contents else None


def _edit_line(page: str, issue: Json, change: Callable[[str], str | None]) -> str:
    """Change or remove the issue's line. A removal leaves no double blank line."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", page)
    at: int = issue["location"].get("line", 1) - 1
    if not 0 <= at < len(lines):
        return page
    after = change(lines[at])
    if after is not None:
        return "".join([*lines[:at], after if after.endswith("\n") else after + "\n", *lines[at + 1 :]])
    before, behind = lines[:at], lines[at + 1 :]
    if before and not before[-1].strip() and not (behind and behind[0].strip()):
        before = before[:-1]
    return "".join([*before, *behind])


_REPAIRS: Final[Mapping[str, Repair]] = {
    "GATE_FRONTMATTER_MISSING": _repair_front_matter,
    "GATE_FRONTMATTER_INVALID_YAML": _repair_front_matter,
    "GATE_FRONTMATTER_KEY_MISSING": _repair_front_matter,
    "GATE_MARKDOWN_LINT": _fix_lint,
    "GATE_LINK_BROKEN": _remove_link,
    "GATE_TRUTHLOCK_UNCITED_FACT": _cite_or_remove,
    "GATE_TRUTHLOCK_INVALID_CLAIM_ID": _cite_or_remove,
    "GATE_TRUTHLOCK_INFERRED_CLAIM": _cite_or_remove,
    "GATE_TRUTHLOCK_CLAIM_MISMATCH": _cite_or_remove,
    "GATE_TRUTHLOCK_UNSUPPORTED_FORMAT": _cite_or_remove,
    "GATE_CONSISTENCY_REPO_URL": _set_repo_url,
    "GATE_CONSISTENCY_TITLE": _set_title,
    "GATE_CONSISTENCY_DESCRIPTION": _set_title,
    "GATE_LINK_ANCHOR": _remove_link,
    "GATE_CONSISTENCY_CANONICAL_URL": _set_canonical,
    "GATE_CONSISTENCY_MANUAL_EDIT": _restore_patched,
    "GATE_TEMPLATE_TOKEN": _fill_token,
}
