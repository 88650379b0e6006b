"""Untrusted text from repositories is parsed safely and repeated without markup."""

import time

from hypothesis import given
from hypothesis import strategies as st

from backends.launch.workers import facts, languages, markdown
from backends.launch.workers.frontmatter import body_of, join, split

PIECES = st.sampled_from(
    ["```", "~~~", "# ", "- ", "{{", "}}", "<!--", "-->", "[a](b)", "---\n", "\n", "**", "x", "\t"]
)
TEXT = st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=40).map("".join))


@given(TEXT)
def test_lines_are_numbered_consecutively_and_fences_lie_within_code_lines(text: str) -> None:
    lines = list(markdown.lines(text))
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    for fence in markdown.fences(text):
        assert 1 <= fence.start <= fence.end <= len(lines)
        assert all(lines[number - 1].is_code for number in range(fence.start, fence.end + 1))


@given(TEXT)
def test_plain_text_contains_no_shortcode_or_markup(text: str) -> None:
    plain = markdown.to_plain_text(text)
    assert "{{" not in plain
    assert "<" not in plain
    assert "\n" not in plain


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(max_size=30), max_size=4), TEXT)
def test_front_matter_round_trips(matter: dict[str, str], body: str) -> None:
    page = join(matter, body)
    assert split(page) == (matter, body)
    assert body_of(page) == body


@given(TEXT, TEXT)
def test_claim_id_does_not_depend_on_whitespace(text: str, kind: str) -> None:
    spaced = "  ".join(text.split()) + " "
    assert facts.claim_id(text, kind, "Aspose") == facts.claim_id(spaced, kind, "Aspose")


def test_hostile_lines_do_not_cause_slow_regular_expressions() -> None:
    started = time.process_time()
    for line in ("# " + " " * 500_000, "- " + "\t" * 500_000, "**" * 300_000, "[" * 500_000, "__A" * 200_000):
        list(markdown.lines(line))
        markdown.to_plain_text(line)
    assert time.process_time() - started < 10


def test_parsers_distinguish_valid_code_from_invalid_code() -> None:
    valid = {
        "python": "def f():\n    return 1\n",
        "typescript": "const a: number = 1;\n",
        "javascript": "const a = () => 1;\n",
        "java": "class A { int f() { return 1; } }\n",
        "csharp": "class A { int F() { return 1; } }\n",
        "cpp": "int f() { return 1; }\n",
        "go": "package a\n\nfunc F() int { return 1 }\n",
        "ruby": "def f\n  1\nend\n",
        "php": "function f() { return 1; }\n",
        "kotlin": "fun f(): Int { return 1 }\n",
        "swift": "func f() -> Int { return 1 }\n",
        "rust": "fn f() -> i32 { 1 }\n",
        "bash": "if true; then echo hi; fi\n",
    }
    for language, code in valid.items():
        assert languages.syntax_error(language, code) is None, language
        assert languages.syntax_error(language, code + "\n}) = (((\n") is not None, language
