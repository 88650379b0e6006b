"""Gate `snippets`: code on pages parses, uses public names only and comes from the repository."""

from collections.abc import Iterator

from backends.launch.gates.context import Finding, GateContext
from backends.launch.surface import usage
from backends.launch.workers import languages, markdown


def check(context: GateContext) -> Iterator[Finding]:
    symbols = context.surface["symbols"]
    known = {snippet["code"] for snippet in context.snippets} | _documented_code(context)
    signatures = {f"{symbol['signature']}\n" for symbol in symbols}
    for path in context.pages:
        text, line_offset = context.body(path)
        for fence in markdown.fences(text):
            line = fence.start + line_offset
            language = languages.normalize_language(fence.language_tag)
            if not fence.is_closed:
                yield Finding("GATE_SNIPPET_UNCLOSED", "The code fence is not closed.", "error", path, line)
            elif languages.can_parse(language) and fence.code not in signatures:
                error_line = languages.syntax_error(language, fence.code)
                if error_line is not None:
                    message = f"The {language} code does not parse."
                    yield Finding("GATE_SNIPPET_SYNTAX", message, "error", path, line + error_line)
                elif unknown := usage.unknown_names(language, fence.code, symbols):
                    message = f"The code uses {', '.join(unknown[:5])}, which the product does not have."
                    yield Finding("GATE_SNIPPET_UNKNOWN_NAME", message, "error", path, line)
                elif fence.code not in known:
                    message = "The code is not in the snippet catalogue."
                    yield Finding("GATE_SNIPPET_UNKNOWN", message, "warn", path, line)


def _documented_code(context: GateContext) -> set[str]:
    """Return the install commands and the code of the product's own documentation."""
    commands = {f"{each['command']}\n" for each in context.facts["install_commands"]}
    return commands | {
        block["text"] for symbol in context.surface["symbols"] for block in symbol["blocks"] if block["kind"] == "code"
    }
