"""Converts documentation text of any origin to safe Markdown: no HTML, links, shortcodes or raw URLs."""

import re
from collections.abc import Iterator
from typing import Final

from backends.launch.surface.model import Block

_MAX_TEXT: Final = 20_000
_MAX_LINE: Final = 4000
_CODE_SPAN: Final = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_TO_CODE: Final = (
    (re.compile(r"\{@(?:code|literal|value)\s+([^{}]*)\}"), r"`\1`"),
    (re.compile(r"\{@link(?:plain|code)?\s+[^{}\s|]*[\s|]+([^{}]+)\}"), r"\1"),
    (re.compile(r"\{@link(?:plain|code)?\s+#?([^{}\s]+)\s*\}"), r"`\1`"),
    (re.compile(r"\{@inheritDoc\}|\{@(?:return|summary|index|systemProperty)\s+([^{}]*)\}"), r"\1"),
    (re.compile(r"<(?:see|seealso|paramref|typeparamref)\s+\w+\s*=\s*\"(?:\w:)?([^\"]*)\"\s*/>"), r"`\1`"),
    (re.compile(r"<(?:see|seealso|a)\b[^<>]*>([^<>]*)</(?:see|seealso|a)>"), r"\1"),
    (re.compile(r"<(code|c|tt|kbd|samp|var)>([^<>`]{1,300})</\1>", re.IGNORECASE), r"`\2`"),
    (re.compile(r":[a-z:]+:`~?(?:[^`<]*<)?!?([^`<>]*)>?`"), r"`\1`"),
    (re.compile(r"`([^`<>]+)\s+<[^<>`]+>`__?"), r"\1"),
    (re.compile(r"`([^`\n]+)`__?(?=\W|$)"), r"`\1`"),
    (re.compile(r"\|([A-Za-z][\w ]*)\|_?"), r"\1"),
    (re.compile(r"(?<![\w`.])(__\w+__)(?![\w`])"), r"`\1`"),
)
_IMAGE: Final = re.compile(r"!\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])?")
_SPACES: Final = re.compile(r"&(?:nbsp|ensp|emsp|thinsp);")
_LINK: Final = re.compile(r"\[([^\]\[]*)\]\([^()\s]*(?:\([^()]*\)[^()\s]*)?(?:\s+\"[^\"]*\")?\)")
_REFERENCE_LINK: Final = re.compile(r"\[((?:`[^`]*`)|[^\]\[`]+)\](?:\[[^\]]*\])?(?!\()")
_TAG: Final = re.compile(r"<!--.*?-->|</?[A-Za-z][^<>]*>", re.DOTALL)
_URL: Final = re.compile(r"<?\b((?:https?|ftp)://[^\s<>`]+[^\s<>`.,;:!?)\]'\"])>?|\bwww\.[^\s<>`]+")
_EMPHASIS: Final = re.compile(r"(?<![\w*])(\*\*|__|\*|_)(?=\S)([^*_]+?)(?<=\S)\1(?![\w*])")
_BULLET: Final = re.compile(r"^(\s*)(?:[-*+•]|\d{1,2}[.)])\s+(.*)$")
_HEADING: Final = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_FENCE: Final = re.compile(r"^\s*(```+|~~~+)\s*([\w+#.-]*)[^`]*$")
_RUST_FLAGS: Final = frozenset(
    {"no_run", "ignore", "should_panic", "compile_fail", "edition2018", "edition2021", "text"}
)
_SHORTCODES: Final = ("{{<", "{{%")


def inline(text: str) -> str:
    """Return the text as one line of inline Markdown in which only code spans and entities remain."""
    text = _remove_markup(" ".join(text[:_MAX_LINE].split()))
    parts: list[str] = []
    at = 0
    for span in _CODE_SPAN.finditer(text):
        parts.append(_escape(text[at : span.start()]))
        parts.append(_code(span[2]))
        at = span.end()
    parts.append(_escape(text[at:]))
    line = re.sub(r"\s+", " ", "".join(parts)).strip()
    # A line must not begin as a list, a heading, a quotation or a numbered item.
    return re.sub(r"^(?:([-+>#=|])|(\d+)([.)]))", lambda found: _escape_start(found), line)


def cell(text: str) -> str:
    """Return inline Markdown for a table cell."""
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def code(text: str) -> str:
    """Return a code span, or an empty text."""
    text = " ".join(text.split())
    return _code(text) if text else ""


def _escape_start(found: re.Match[str]) -> str:
    return f"\\{found[1]}" if found[1] else f"{found[2]}\\{found[3]}"


def _remove_markup(text: str) -> str:
    text = _SPACES.sub(" ", text)
    for pattern, replacement in _TO_CODE:
        text = pattern.sub(replacement, text)
    text = _LINK.sub(r"\1", _IMAGE.sub("", text))
    text = _REFERENCE_LINK.sub(r"\1", text)
    # Tags are removed outside code spans only: a type such as `List<String>` is no tag.
    pieces = re.split(r"(`+[^`]+`+)", text)
    return "".join(piece if piece.startswith("`") else _URL.sub(_url, _TAG.sub(" ", piece)) for piece in pieces)


def _url(found: re.Match[str]) -> str:
    return f"`{found[1] or found[0]}`"


def _code(text: str) -> str:
    text = re.sub(r"\s+", " ", text.replace("`", "'").replace("{{", "{ {").replace("}}", "} }")).strip()
    return f"`{text}`" if text else ""


def _escape(text: str) -> str:
    text = _EMPHASIS.sub(r"\2", text).replace("`", "'")
    text = re.sub(r"&(?!#?\w{1,10};)", "&amp;", text.replace("\\", "&#92;"))
    text = text.replace("<", "&lt;").replace("{{", "{ {").replace("}}", "} }")
    return re.sub(r"([*\[\]])|(?<!\w)_|_(?!\w)", lambda found: f"\\{found[0]}", text)


def is_showable(source: str) -> bool:
    """Whether code can be shown in a fence: Hugo processes shortcodes inside fences too."""
    return bool(source.strip()) and not any(bad in source for bad in ("```", *_SHORTCODES, "\0", "�"))


def clean_code(source: str) -> str:
    lines = source.expandtabs(4).splitlines()
    while lines and not lines[0].strip():
        lines.pop(0)
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "".join(f"{line[indent:].rstrip()}\n" for line in lines).rstrip("\n") + "\n"


def blocks(text: str, language: str) -> Iterator[Block]:
    """Split documentation into paragraphs, list items, headings and code. `language` is that of unlabelled code."""
    paragraph: list[str] = []
    is_item = False
    lines = iter(text[:_MAX_TEXT].expandtabs(4).splitlines())
    fence: str | None = None
    fenced: list[str] = []
    tag = language

    def flush() -> Iterator[Block]:
        found = inline(" ".join(paragraph))
        paragraph.clear()
        if re.search(r"\w", found):
            yield Block("item" if is_item else "text", found)

    for line in lines:
        mark = _FENCE.match(line)
        if fence is not None:
            if mark and mark[1].startswith(fence) and not mark[2]:
                yield from _code_block("\n".join(fenced), tag)
                fence, fenced = None, []
            else:
                fenced.append(line)
        elif mark:
            yield from flush()
            is_item = False
            fence = mark[1]
            tag = language if not mark[2] or mark[2].split(",")[0] in _RUST_FLAGS else mark[2]
        elif not line.strip():
            yield from flush()
            is_item = False
        elif found := _HEADING.match(line):
            yield from flush()
            is_item = False
            if title := inline(found[1]):
                yield Block("heading", title)
        elif found := _BULLET.match(line):
            yield from flush()
            is_item = True
            paragraph.append(found[2])
        else:
            paragraph.append(line)
    if fence is not None:
        yield from _code_block("\n".join(fenced), tag)
    yield from flush()


def _code_block(source: str, language: str) -> Iterator[Block]:
    if language == "rust":
        # rustdoc hides lines that begin with `# `.
        source = "\n".join(line for line in source.splitlines() if not re.match(r"\s*#(?:\s|$)", line))
    if is_showable(source):
        yield Block("code", clean_code(source), language)
