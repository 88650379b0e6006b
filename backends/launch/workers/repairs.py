"""How each kind of issue is mended. A page that no rule can mend is taken back to its draft."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from backends.launch.gates.consistency import REPO_LINK
from backends.launch.gates.context import Subject
from backends.launch.gates.lint import markdown_linter
from backends.launch.gates.tokens import TOKEN
from backends.launch.workers import draft, markdown
from backends.launch.workers.frontmatter import body_of, joined, split
from gateway.contract import Json

Repair = Callable[[Subject, Json, str, str], str | None]


def repaired(subject: Subject, issue: Json, path: str) -> str | None:
    """What the page should say instead; None when nobody knows."""
    page = subject.pages.get(path)
    repair = _REPAIRS.get(issue.get("error_code", ""))
    if page is not None and repair is not None:
        after = repair(subject, issue, path, page)
        if after is not None and after != page:
            return after
    return drafted(subject, path)


def drafted(subject: Subject, path: str) -> str | None:
    section = next(page["section"] for page in subject.plan if page["output_path"] == path)
    file = subject.bench.folder / "drafts" / section / path
    return file.read_text(encoding="utf-8") if file.is_file() else None


def _front_matter(subject: Subject, issue: Json, path: str, page: str) -> str:
    planned = next(each for each in subject.plan if each["output_path"] == path)
    contract = subject.bench.read("frontmatter_contract.json")["sections"][planned["section"]]
    matter = draft.front_matter(planned, contract["required_keys"], subject.config)
    try:
        known, _ = split(page)
    except ValueError:
        known = None
    return joined({**matter, **{key: value for key, value in (known or {}).items() if value}}, body_of(page))


def _title(subject: Subject, issue: Json, path: str, page: str) -> str | None:
    planned = next(each for each in subject.plan if each["output_path"] == path)
    try:
        matter, body = split(page)
    except ValueError:
        return None
    return joined({**(matter or {}), "title": planned["title"]}, body)


def _canonical(subject: Subject, issue: Json, path: str, page: str) -> str | None:
    planned = next(each for each in subject.plan if each["output_path"] == path)
    try:
        matter, body = split(page)
    except ValueError:
        return None
    return joined({**(matter or {}), "canonical": draft.canonical_url(planned, subject.config)}, body)


def _token(subject: Subject, issue: Json, path: str, page: str) -> str:
    config = subject.config
    words = {
        "product_name": config["product_name"],
        "product_slug": config["product_slug"],
        "family": config["family"],
        "platform": config["target_platform"],
        "target_platform": config["target_platform"],
        "repo_url": config["github_repo_url"],
        "github_repo_url": config["github_repo_url"],
    }

    def fill(token: re.Match[str]) -> str:
        return words.get(token[0].strip("_{}. ").lower(), "")

    def filled(line: str) -> str | None:
        after = TOKEN.sub(fill, line)
        return after if after.strip(" -*+#\n") else None

    return _on_line(page, issue, filled)


def _linted(subject: Subject, issue: Json, path: str, page: str) -> str | None:
    fixed = markdown_linter().fix_string(page)
    return fixed.fixed_file if fixed.was_fixed else None


def _unlinked(subject: Subject, issue: Json, path: str, page: str) -> str:
    target = re.search(r"The link to (\S+) leads nowhere", issue["message"])

    def plain(link: re.Match[str]) -> str:
        return link[1] if target and link[2] == target[1] else link[0]

    def line_without(line: str) -> str | None:
        bullet = markdown.BULLET.match(line)
        alone = bullet is not None and markdown.LINK.fullmatch(bullet[1]) is not None
        return None if alone else markdown.LINK.sub(plain, line)

    return _on_line(page, issue, line_without)


def _cited(subject: Subject, issue: Json, path: str, page: str) -> str:
    """A statement that the evidence knows gets its marker; any other goes."""
    by_text = {claim["claim_text"]: claim for claim in subject.claims.values()}

    def mended(line: str) -> str | None:
        bare = markdown.MARKER.sub("", line).strip()
        bullet = markdown.BULLET.match(bare)
        claim = by_text.get((bullet[1] if bullet else bare).strip())
        if claim is None or (claim["truth_status"] == "inference" and not subject.config["allow_inference"]):
            return None
        return f"{bare} <!-- claim_id: {claim['claim_id']} -->\n"

    return _on_line(page, issue, mended)


def _repo_url(subject: Subject, issue: Json, path: str, page: str) -> str:
    return REPO_LINK.sub(f"[Source code]({subject.config['github_repo_url']})", page)


def _as_patched(subject: Subject, issue: Json, path: str, page: str) -> str | None:
    """As the last patch left it."""
    bundle: list[Json] = subject.bench.read("patch_bundle.json")["patches"]
    contents = [patch.get("content") for patch in bundle if patch["path"] == path]
    return contents[-1] if contents else None


def _on_line(page: str, issue: Json, change: Callable[[str], str | None]) -> str:
    """The page with one line changed, or gone; no two blank lines are left where it was."""
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
    "GATE_FRONTMATTER_MISSING": _front_matter,
    "GATE_FRONTMATTER_INVALID_YAML": _front_matter,
    "GATE_FRONTMATTER_KEY_MISSING": _front_matter,
    "GATE_MARKDOWN_LINT": _linted,
    "GATE_LINK_BROKEN": _unlinked,
    "GATE_TRUTHLOCK_UNCITED_FACT": _cited,
    "GATE_TRUTHLOCK_INVALID_CLAIM_ID": _cited,
    "GATE_TRUTHLOCK_INFERRED_CLAIM": _cited,
    "GATE_TRUTHLOCK_CLAIM_MISMATCH": _cited,
    "GATE_TRUTHLOCK_UNSUPPORTED_FORMAT": _cited,
    "GATE_CONSISTENCY_REPO_URL": _repo_url,
    "GATE_CONSISTENCY_TITLE": _title,
    "GATE_CONSISTENCY_CANONICAL_URL": _canonical,
    "GATE_CONSISTENCY_MANUAL_EDIT": _as_patched,
    "GATE_TEMPLATE_TOKEN": _token,
}
