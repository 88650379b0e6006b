"""Parses documentation comments: Javadoc, JSDoc, KDoc, PHPDoc, Doxygen, YARD, XML doc, Swift markup, rustdoc, GoDoc."""

import re
from collections.abc import Iterator
from typing import Final

from backends.launch.surface import prose
from backends.launch.surface.model import Block, Doc, Parameter

_DOC_STARTS: Final = {
    "java": ("/**",), "kotlin": ("/**",), "php": ("/**",), "javascript": ("/**",), "typescript": ("/**",),
    "csharp": ("///", "/**"), "cpp": ("///", "/**", "//!", "/*!"), "swift": ("///", "/**"), "rust": ("///", "/**"),
    "go": ("//", "/*"), "ruby": ("#",),
}  # fmt: skip
_TAG: Final = re.compile(r"^\s*[@\\](\w+)(?:\[[^\]]*\])?(?:\s+(.*)|$)")
_TAGGED: Final = frozenset({
    "alpha", "api", "apinote", "arg", "argument", "async", "author", "beta", "brief", "callback", "category", "class",
    "constructor", "copyright", "default", "defaultvalue", "deprecated", "details", "enum", "example", "exception",
    "experimental", "extends", "file", "function", "group", "hidden", "ignore", "implements", "implnote", "implspec",
    "ingroup", "inheritdoc", "internal", "jls", "license", "link", "memberof", "method", "module", "name", "note",
    "option", "overload", "param", "post", "pre", "private", "prop", "property", "public", "raise", "readonly",
    "receiver", "remarks", "result", "return", "returns", "sample", "see", "serial", "since", "static", "suppress",
    "template", "throw", "throws", "tparam", "type", "typedef", "typeparam", "var", "version", "warning", "yield",
    "yieldparam", "yieldreturn",
})  # fmt: skip
_HIDDEN: Final = re.compile(
    r"^[\s*/#!]*[@\\](?:internal|private|hidden|ignore|hide)\b|:nodoc:|@api private|\\cond", re.MULTILINE
)
_SWIFT_FIELD: Final = re.compile(
    r"^\s*[-*+]\s*(Parameters?|Returns?|Throws|Note|Warning|Important|SeeAlso|Remark|Requires|Precondition|Complexity)\b"
    r"(?:\s+([^:]+))?\s*:\s*(.*)$",
    re.IGNORECASE,
)


def is_hidden(comment: str) -> bool:
    """Whether the comment marks the symbol as not part of the public documentation."""
    return _HIDDEN.search(comment) is not None


def parse(comment: str, language: str) -> Doc:
    """Parse a comment with its markers. A comment that is not documentation results in an empty `Doc`."""
    comment = _last_doc_comment(comment.strip(), _DOC_STARTS[language])
    if not comment:
        return Doc()
    text = strip_markers(comment)
    if language == "csharp" and "<" in text:
        return _parse_xml(text)
    if language == "go":
        return _parse_go(text)
    if language == "rust":
        return Doc(tuple(prose.blocks(text, "rust")))
    if language == "swift":
        return _parse_swift(text)
    return _parse_tags(text, language)


def _last_doc_comment(comment: str, starts: tuple[str, ...]) -> str:
    """Return the documentation comment nearest to the declaration; other comments are ignored."""
    lines = comment.splitlines()
    if "/*" in comment and "//" not in starts:
        at = max((comment.rfind(start) for start in starts if start.startswith("/*")), default=-1)
        if at >= 0 and not comment.startswith("///"):
            return "" if comment[at : at + 5] == "/**/" else comment[at:]
    kept = [line for line in lines if line.lstrip().startswith((*starts, "*"))]
    return "\n".join(kept) if kept and any(line.lstrip().startswith(starts) for line in kept) else ""


def strip_markers(comment: str) -> str:
    """Remove the comment markers and the common indentation."""
    if comment.startswith("/*"):
        body = re.sub(r"^/\*[*!]?|\*/$", "", comment.strip())
        return "\n".join(re.sub(r"^\s*\* ?", "", line) for line in body.splitlines()).strip("\n")
    return "\n".join(re.sub(r"^\s*(?://[/!]?<?|#+!?) ?", "", line) for line in comment.splitlines()).strip("\n")


# ---- tags ----


def _parse_tags(text: str, language: str) -> Doc:
    description, tags = _split_tags(text)
    parameters: dict[str, Parameter] = {}
    raises: list[tuple[str, str]] = []
    returns = return_type = ""
    deprecated: str | None = None
    extra: list[Block] = []
    for tag, body in tags:
        if tag in ("param", "arg", "argument", "property", "prop"):
            found = _tag_parameter(body, language)
            parameters.setdefault(found.name, found)
        elif tag in ("return", "returns", "result"):
            return_type, returns = _typed(body, language)
            returns = prose.inline(returns)
        elif tag in ("throws", "throw", "exception", "raise"):
            kind, _, reason = body.replace("[", "").replace("]", "").strip("{} ").partition(" ")
            raises.append((kind.strip("{}"), prose.inline(reason)))
        elif tag == "deprecated":
            deprecated = prose.inline(body)
        elif tag == "example":
            extra.extend(_example(body, language))
        elif tag in ("brief", "details", "remarks", "note", "implspec", "apinote"):
            extra.extend(prose.blocks(_html_to_markdown(body), language))
    found_blocks = (*prose.blocks(_html_to_markdown(description), language), *extra)
    return Doc(found_blocks, parameters, returns, return_type, tuple(raises), deprecated)


def _split_tags(text: str) -> tuple[str, list[tuple[str, str]]]:
    description: list[str] = []
    tags: list[tuple[str, list[str]]] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        found = None if fenced else _TAG.match(line)
        if found and found[1].lower() in _TAGGED:
            tags.append((found[1].lower(), [found[2] or ""]))
        elif tags:
            tags[-1][1].append(line)
        else:
            description.append(line)
    return "\n".join(description), [(tag, "\n".join(lines).strip()) for tag, lines in tags]


def _tag_parameter(body: str, language: str) -> Parameter:
    kind = default = ""
    if body.startswith("{"):
        end = _closing_brace(body)
        kind, body = body[1:end].strip(), body[end + 1 :].strip()
    if language == "php":
        found = re.match(r"(?:([^\s$]+)\s+)?(?:\.\.\.|&)?\$(\w+)\s*(.*)", body, re.DOTALL)
        return Parameter(found[2], found[1] or "", "", prose.inline(found[3])) if found else Parameter("")
    if language == "ruby":
        found = re.match(r"(?:\[([^\]]*)\]\s+)?\*{0,2}&?(\w+):?\s*(?:\[([^\]]*)\])?\s*(.*)", body, re.DOTALL)
        return Parameter(found[2], found[1] or found[3] or "", "", prose.inline(found[4])) if found else Parameter("")
    if body.startswith("["):
        inside, _, rest = body[1:].partition("]")
        name, _, default = inside.partition("=")
        body = f"{name} {rest}"
    name, _, description = re.sub(r"\s+", " ", body).partition(" ")
    description = re.sub(r"^[-–:]\s+", "", description)
    return Parameter(name.strip("<>:"), kind, default.strip(), prose.inline(description))


def _typed(body: str, language: str) -> tuple[str, str]:
    if body.startswith("{"):
        end = _closing_brace(body)
        return body[1:end].strip(), body[end + 1 :].strip().removeprefix("- ")
    if language == "ruby" and body.startswith("["):
        kind, _, rest = body[1:].partition("]")
        return kind, rest.strip()
    if language == "php":
        kind, _, rest = body.partition(" ")
        return kind, rest.strip()
    return "", body


def _closing_brace(body: str) -> int:
    depth = 0
    for at, character in enumerate(body):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return at
    return len(body) - 1


def _example(body: str, language: str) -> Iterator[Block]:
    if "```" in body or "<pre" in body:
        yield from prose.blocks(_html_to_markdown(body), language)
        return
    source = re.sub(r"<caption>.*?</caption>", "", body)
    if prose.is_showable(source):
        yield Block("code", prose.clean_code(source), language)


def _html_to_markdown(text: str) -> str:
    """Convert the HTML that documentation comments use for structure: `pre`, `p` and `li`."""
    text = re.sub(r"\{@snippet[^\n]*\n(.*?)\n\s*\}(?=\s|$)", r"\n```\n\1\n```\n", text, flags=re.DOTALL)
    text = re.sub(
        r"<pre[^>]*>\s*(?:\{@code\s*\n?|<code[^>]*>)?(.*?)(?:\s*</code>|\})?\s*</pre>", _pre, text, flags=re.DOTALL
    )
    text = re.sub(r"^\s*[@\\](?:brief|details)\s+", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"<(?:p|br|/p|ul|ol|/ul|/ol|/li|h\d|/h\d|dl|dt|/dt|/dl|div|/div)\b[^<>]*>", "\n\n", text, flags=re.IGNORECASE
    )
    return re.sub(r"\s*<(?:li|dd)\b[^<>]*>\s*", "\n\n- ", text, flags=re.IGNORECASE)


def _pre(found: re.Match[str]) -> str:
    source = re.sub(r"</?[a-zA-Z][^<>]*>", "", found[1])
    for entity, character in (
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", '"'),
        ("&#64;", "@"),
        ("{@literal @}", "@"),
        ("&amp;", "&"),
    ):
        source = source.replace(entity, character)
    return f"\n```\n{source}\n```\n"


# ---- XML ----


def _parse_xml(text: str) -> Doc:
    def parts(tag: str) -> list[tuple[str, str]]:
        pattern = rf"<{tag}(?:\s+\w+\s*=\s*\"(?:\w:)?([^\"]*)\")?\s*>(.*?)</{tag}>"
        return re.findall(pattern, text, re.DOTALL)

    found: list[Block] = []
    for tag in ("summary", "remarks"):
        for _, body in parts(tag):
            found.extend(prose.blocks(_xml_to_markdown(body), "csharp"))
    for _, body in parts("example"):
        found.extend(prose.blocks(_xml_to_markdown(body), "csharp"))
    parameters = {name: Parameter(name, "", "", prose.inline(body)) for name, body in parts("param")}
    returns = next((prose.inline(body) for _, body in (*parts("returns"), *parts("value"))), "")
    raises = tuple((name, prose.inline(body)) for name, body in parts("exception"))
    return Doc(tuple(found), parameters, returns, "", raises)


def _xml_to_markdown(body: str) -> str:
    body = re.sub(r"<code[^>]*>(.*?)</code>", r"\n```\n\1\n```\n", body, flags=re.DOTALL)
    body = re.sub(r"<(?:para|/para|list|/list|/item)\b[^<>]*>", "\n\n", body)
    body = re.sub(r"\s*<item>\s*", "\n\n- ", body)
    return "\n".join(line if line.startswith("    ") else line.strip() for line in body.splitlines())


# ---- Swift ----


def _parse_swift(text: str) -> Doc:
    description: list[str] = []
    parameters: dict[str, str] = {}
    returns = throws = ""
    current = ""
    for line in text.splitlines():
        found = _SWIFT_FIELD.match(line)
        nested = re.match(r"^\s+[-*+]\s*(\w+)\s*:\s*(.*)$", line) if current == "parameters" else None
        if found:
            current = found[1].lower()
            if current == "parameter" and found[2]:
                current = f"parameter {found[2].strip()}"
                parameters[found[2].strip()] = found[3]
            elif current in ("returns", "return"):
                returns = found[3]
            elif current == "throws":
                throws = found[3]
            elif current not in ("parameters",):
                description += ["", found[3]]
        elif nested:
            parameters[nested[1]] = nested[2]
        elif current.startswith("parameter ") and line.startswith(" "):
            parameters[current.removeprefix("parameter ")] += f" {line.strip()}"
        elif current in ("returns", "return") and line.startswith(" "):
            returns += f" {line.strip()}"
        elif not current or line.strip():
            if line.strip() and not line.startswith(" "):
                current = ""
            if not current:
                description.append(line)
    documented = {name: Parameter(name, "", "", prose.inline(body)) for name, body in parameters.items()}
    raises = (("Error", prose.inline(throws)),) if throws else ()
    return Doc(tuple(prose.blocks("\n".join(description), "swift")), documented, prose.inline(returns), "", raises)


# ---- Go ----


def _parse_go(text: str) -> Doc:
    """Parse a Go comment: indented lines are code, and a paragraph that begins with `Deprecated:` marks it so."""
    lines = [line for line in text.splitlines() if not re.match(r"^(?:go:|nolint|line |export )", line)]
    converted: list[str] = []
    is_code = False
    for line in lines:
        indented = (
            line.startswith(("\t", "    ", "  "))
            and bool(line.strip())
            and not re.match(r"^\s+(?:[-*+•]|\d+\.)\s", line)
        )
        if indented != is_code and (line.strip() or not is_code):
            if indented or is_code:
                converted.append("```")
            is_code = indented
        converted.append(line)
    if is_code:
        converted.append("```")
    found = list(prose.blocks("\n".join(converted), "go"))
    deprecated = next(
        (block.text.removeprefix("Deprecated:").strip() for block in found if block.text.startswith("Deprecated:")),
        None,
    )
    kept = tuple(block for block in found if not block.text.startswith("Deprecated:"))
    return Doc(kept, deprecated=deprecated)
