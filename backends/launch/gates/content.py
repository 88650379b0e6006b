"""Gate `content`: sections have content, pages say something of their own, and no private name is documented."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from backends.launch.gates.context import Finding, GateContext
from backends.launch.serialization import digest
from backends.launch.workers import markdown
from backends.launch.workers.frontmatter import split

_PLACEHOLDER: Final = re.compile(
    r"\b(?:lorem ipsum|TODO|TBD|FIXME|coming soon|to be (?:written|done|added)(?=[.\s]*$)|insert .{1,20} here"
    r"|placeholder text|your text here|lead into the documentation|name the public types"
    r"|introduce the product and how to get it|list what it can do|announce the product|show one task as a program"
    r"|take a newcomer to the first)\b"
)
_BARE_SYMBOL: Final = re.compile(r"^-?\s*`[^`]+` is a public (?:type|function|class)\.?$")
_MIN_TEXT: Final = 20
_MIN_PARAGRAPH: Final = 40
_MIN_DESCRIPTION_WORDS: Final = 4


def check(context: GateContext) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for path in sorted(context.pages):
        yield from _check_sections(context, path)
        yield from _check_front_matter(context, path)
        text = context.body(path)[0].split("\n## See also")[0].strip()
        known = seen.setdefault(digest(" ".join(text.split()).encode()), path)
        if known != path:
            yield Finding("GATE_CONTENT_DUPLICATE_PAGE", f"The page has the same text as {known}.", "error", path)
    yield from _check_duplicates(context)
    yield from _check_private_names(context)
    yield from _check_navigation(context)


def _check_sections(context: GateContext, path: str) -> Iterator[Finding]:
    text, line_offset = context.body(path)
    heading: markdown.Line | None = None
    content: list[markdown.Line] = []
    lines = [*markdown.lines(text)]
    for number, line in enumerate(lines):
        found = None if line.is_code else markdown.HEADING.match(line.text)
        if found is None:
            content.append(line)
            if not line.is_code:
                yield from _check_line(path, line, line_offset)
        if found or number == len(lines) - 1:
            deeper = bool(found and heading and len(found[1]) > len(markdown.HEADING.match(heading.text)[1]))  # type: ignore[index]
            if heading is not None and not deeper and (problem := _thinness(content)):
                message = f"The section “{_title(heading)}” {problem}."
                yield Finding("GATE_CONTENT_EMPTY_SECTION", message, "error", path, heading.number + line_offset)
        if found:
            heading, content = line, []
    if not any(line.text.strip() for line in lines):
        yield Finding("GATE_CONTENT_EMPTY_PAGE", "The page has no text.", "error", path)


def _title(heading: markdown.Line) -> str:
    found = markdown.HEADING.match(heading.text)
    return found[2] if found else ""


def _thinness(content: list[markdown.Line]) -> str:
    """Say what is wrong with a section that says too little, or return an empty text."""
    if any(line.is_code for line in content):
        return ""
    lines = [markdown.MARKER.sub("", line.text).strip() for line in content]
    lines = [line for line in lines if line]
    visible = sum(len(re.sub(r"\]\([^)]*\)|[\[\]`*|-]", "", line)) for line in lines)
    if not lines or visible == 0:
        return "is empty"
    listed = any(line.startswith(("- ", "| ")) for line in lines)
    links = all(markdown.LINK.search(line) for line in lines)
    if len(lines) == 1 and not links and visible < (_MIN_TEXT if listed else _MIN_PARAGRAPH):
        return "has a single short line"
    return ""


def _check_line(path: str, line: markdown.Line, line_offset: int) -> Iterator[Finding]:
    statement = markdown.MARKER.sub("", line.text).strip()
    outside = re.sub(r"`[^`]*`", "", statement)
    is_quoted = markdown.MARKER.search(line.text) is not None
    if (_PLACEHOLDER.search(outside) and not is_quoted) or _BARE_SYMBOL.match(statement):
        message = f"The line is a placeholder: {statement[:80]}"
        yield Finding("GATE_CONTENT_PLACEHOLDER", message, "error", path, line.number + line_offset)


def _check_front_matter(context: GateContext, path: str) -> Iterator[Finding]:
    try:
        matter, _ = split(context.pages[path])
    except ValueError:
        return
    description = str((matter or {}).get("description") or "")
    title = str((matter or {}).get("title") or "")
    same = re.sub(r"\W", "", description.lower()) == re.sub(r"\W", "", title.lower())
    if (
        len(description.split()) < _MIN_DESCRIPTION_WORDS
        or same
        or _PLACEHOLDER.search(description[:1].lower() + description[1:])
    ):
        message = "The description of the front matter does not describe the page."
        yield Finding("GATE_CONTENT_DESCRIPTION", message, "error", path, 1)


def _check_duplicates(context: GateContext) -> Iterator[Finding]:
    """Titles and descriptions are unique within a section and locale."""
    for key in ("title", "description"):
        seen: dict[tuple[str, str, str], str] = {}
        for page in context.plan:
            identity = (page["section"], page["locale"], page[key])
            known = seen.setdefault(identity, page["output_path"])
            if known != page["output_path"] and page["output_path"] in context.pages:
                message = f"The {key} is the same as that of {known}."
                yield Finding("GATE_CONTENT_DUPLICATE_TITLE", message, "error", page["output_path"], 1)


def _check_private_names(context: GateContext) -> Iterator[Finding]:
    """Reference headings name public symbols only."""
    public = {symbol["qualified_name"] for symbol in context.surface["symbols"]}
    for page in context.plan:
        path = page["output_path"]
        if page["section"] != "reference" or path not in context.pages:
            continue
        text, line_offset = context.body(path)
        for line in markdown.lines(text):
            found = None if line.is_code else re.match(r"#{2,4} `([^`]+)`$", line.text)
            if found and found[1] not in public:
                message = f"`{found[1]}` is not a public name of the product."
                yield Finding("GATE_CONTENT_PRIVATE_NAME", message, "blocker", path, line.number + line_offset)


def _check_navigation(context: GateContext) -> Iterator[Finding]:
    """Every page can be reached by a link from another page."""
    inbound: dict[str, int] = defaultdict(int)
    urls = {page["output_path"]: page["url_path"] for page in context.plan}
    for path in context.pages:
        for link in markdown.LINK.finditer(context.body(path)[0]):
            target = link[2].split("#")[0]
            if target != urls[path]:
                inbound[target] += 1
    alone = [path for path in context.pages if not inbound[urls[path]]]
    if len(context.pages) < 2 or not alone:
        return
    built = _linked_in_site(context)
    for path in alone:
        if urls[path] not in built:
            message = "No other page links to this page."
            yield Finding("GATE_CONTENT_NAVIGATION", message, "error", path)


def _linked_in_site(context: GateContext) -> set[str]:
    """Return the links of the built index pages, such as those of a navigation menu."""
    found: set[str] = set()
    for page in [*context.public.glob("**/index.html")][:50]:
        found.update(re.findall(r"href=\"?([^\s\">]+)", page.read_text(encoding="utf-8", errors="replace")))
    return found
