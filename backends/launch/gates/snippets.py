"""Gate `snippets`: code on pages parses and comes from the snippet catalogue."""

from collections.abc import Iterator

from backends.launch.gates.context import Finding, GateContext
from backends.launch.workers import languages, markdown


def check(context: GateContext) -> Iterator[Finding]:
    known = {snippet["code"] for snippet in context.snippets}
    for path in context.pages:
        text, line_offset = context.body(path)
        for fence in markdown.fences(text):
            line = fence.start + line_offset
            language = languages.normalize_language(fence.language_tag)
            if not fence.is_closed:
                yield Finding("GATE_SNIPPET_UNCLOSED", "The code fence is not closed.", "error", path, line)
            elif languages.can_parse(language):
                error_line = languages.syntax_error(language, fence.code)
                if error_line is not None:
                    message = f"The {language} code does not parse."
                    yield Finding("GATE_SNIPPET_SYNTAX", message, "error", path, line + error_line)
                elif fence.code not in known:
                    message = "The code is not in the snippet catalogue."
                    yield Finding("GATE_SNIPPET_UNKNOWN", message, "warn", path, line)
