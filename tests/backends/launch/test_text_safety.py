"""Text from repositories: whatever it is, it is read without harm and repeated without markup."""

import time

from hypothesis import given
from hypothesis import strategies as st

from backends.launch.workers import facts, languages, markdown
from backends.launch.workers.frontmatter import body_of, joined, split

PIECES = st.sampled_from(
    ["```", "~~~", "# ", "- ", "{{", "}}", "<!--", "-->", "[a](b)", "---\n", "\n", "**", "x", "\t"]
)
TEXT = st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=40).map("".join))


@given(TEXT)
def test_every_line_is_told_once_and_every_fence_lies_among_them(text: str) -> None:
    lines = list(markdown.lines(text))
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    for fence in markdown.fences(text):
        assert 1 <= fence.start <= fence.end <= len(lines)
        assert all(lines[number - 1].code for number in range(fence.start, fence.end + 1))


@given(TEXT)
def test_what_a_page_repeats_has_nothing_that_the_site_would_act_on(text: str) -> None:
    said = markdown.plain(text)
    assert "{{" not in said
    assert "<" not in said
    assert "\n" not in said


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(max_size=30), max_size=4), TEXT)
def test_front_matter_comes_back_as_it_was_put(matter: dict[str, str], body: str) -> None:
    page = joined(matter, body)
    assert split(page) == (matter, body)
    assert body_of(page) == body


@given(TEXT, TEXT)
def test_a_claim_has_one_identity_however_it_is_spaced_or_capitalised(text: str, kind: str) -> None:
    spaced = "  ".join(text.split()) + " "
    assert facts.claim_id(text, kind, "Aspose") == facts.claim_id(spaced, kind, "Aspose")


def test_lines_made_to_keep_a_pattern_busy_do_not() -> None:
    started = time.process_time()
    for line in ("# " + " " * 500_000, "- " + "\t" * 500_000, "**" * 300_000, "[" * 500_000, "__A" * 200_000):
        list(markdown.lines(line))
        markdown.plain(line)
    assert time.process_time() - started < 10


def test_real_parsers_tell_code_that_parses_from_code_that_does_not() -> None:
    good = {
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
    for language, code in good.items():
        assert languages.syntax_error(language, code) is None, language
        assert languages.syntax_error(language, code + "\n}) = (((\n") is not None, language
