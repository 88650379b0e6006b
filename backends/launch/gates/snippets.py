"""Code on the pages parses, and comes from the catalogue."""

from collections.abc import Iterator

from backends.launch.gates.context import Finding, Subject
from backends.launch.workers import languages, markdown


def check(subject: Subject) -> Iterator[Finding]:
    known = {snippet["code"] for snippet in subject.snippets}
    for path in subject.pages:
        text, above = subject.body(path)
        for fence in markdown.fences(text):
            line = fence.start + above
            language = languages.spoken(fence.word)
            if not fence.closed:
                yield Finding("GATE_SNIPPET_UNCLOSED", "The code fence is not closed.", "error", path, line)
            elif languages.parsable(language):
                wrong = languages.syntax_error(language, fence.code)
                if wrong is not None:
                    message = f"The {language} code does not parse."
                    yield Finding("GATE_SNIPPET_SYNTAX", message, "error", path, line + wrong)
                elif fence.code not in known:
                    message = "The code is not in the snippet catalogue."
                    yield Finding("GATE_SNIPPET_UNKNOWN", message, "warn", path, line)
