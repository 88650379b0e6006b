"""Content that earlier versions let pass is stopped: empty sections, planner text, private names, invented code."""

from collections.abc import Callable
from pathlib import Path

import pytest

from backends.launch import sample
from backends.launch.gates import hugo
from backends.launch.gates.context import Finding, GateContext
from backends.launch.gates.runner import GATES, run_gate
from backends.launch.workers.context import WorkerContext
from tests.backends.launch.worker_fixtures import copy_run, run_worker, run_workers

DOCS = "content/docs.aspose.org/3d/en/python"
OVERVIEW = f"{DOCS}/_index.md"
FEATURES = f"{DOCS}/features.md"
STARTED = f"{DOCS}/getting-started.md"
SCENE = "content/reference.aspose.org/3d/en/python/aspose-3d/scene.md"
BY_NAME = {gate.name: gate for gate in GATES}


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> WorkerContext:
    context = run_workers(tmp_path_factory.mktemp("linked"))
    assert not list(hugo.check_build(GateContext(context)))
    for gate in GATES:
        assert run_gate(gate, GateContext(context), 60) == [], gate.name
    return context


@pytest.fixture
def context(linked: WorkerContext, tmp_path: Path) -> WorkerContext:
    return copy_run(linked, tmp_path / "run", allow_manual_edits=True)


def _codes(context: WorkerContext, gate: str) -> set[str]:
    return {finding.code for finding in _findings(context, gate)}


def _findings(context: WorkerContext, gate: str) -> list[Finding]:
    return run_gate(BY_NAME[gate], GateContext(context), 60)


def _after_heading(heading: str, text: str) -> Callable[[str], str]:
    """Replace what stands below a heading, up to the next one."""

    def change(page: str) -> str:
        before, _, rest = page.partition(f"## {heading}\n")
        _, found, after = rest.partition("\n## ")
        return f"{before}## {heading}\n{text}{found}{after}"

    return change


def _insert(text: str) -> Callable[[str], str]:
    return lambda page: page.replace("\n## See", f"\n{text}\n\n## See")


def _replace(old: str, new: str) -> Callable[[str], str]:
    return lambda page: page.replace(old, new)


DEAD = "\n- [Nothing](/docs.aspose.org/3d/en/python/features/#gone)\n"
BREAKS: list[tuple[str, str, str, Callable[[str], str]]] = [
    ("content", "CONTENT_EMPTY_SECTION", OVERVIEW, _after_heading("Overview", "")),
    ("content", "CONTENT_EMPTY_SECTION", FEATURES, _after_heading("Limitations", "\nNone.\n")),
    ("content", "CONTENT_PLACEHOLDER", SCENE, lambda page: page + "\n`is_ascii_encoding` is a public function.\n"),
    ("content", "CONTENT_PLACEHOLDER", OVERVIEW, _insert("TODO: say more here.")),
    ("content", "CONTENT_PRIVATE_NAME", SCENE, _replace("### `Scene.scale`", "### `Scene._hidden`")),
    ("truthlock", "TRUTHLOCK_UNCITED_FACT", OVERVIEW, _insert("It is used by all.")),
    ("truthlock", "TRUTHLOCK_EVIDENCE_MISSING", SCENE, _replace("__init__.py:1`", "__init__.py:9999`")),
    ("links", "LINK_ANCHOR", OVERVIEW, lambda page: page.rstrip("\n") + DEAD),
    ("snippets", "SNIPPET_UNKNOWN_NAME", STARTED, _replace("import Scene", "import Universe")),
    ("snippets", "SNIPPET_SYNTAX", SCENE, _replace("class Scene\n", "class class\n")),
]


@pytest.mark.parametrize(("gate", "code", "path", "change"), BREAKS)
def test_page_that_says_nothing_or_something_untrue_is_stopped_and_repaired(
    context: WorkerContext, gate: str, code: str, path: str, change: Callable[[str], str]
) -> None:
    page = context.site / path
    before = page.read_text()
    page.write_text(change(before))
    assert page.read_text() != before
    found = _findings(context, gate)
    assert {finding.code for finding in found} == {f"GATE_{code}"}
    issue = found[0].as_issue(gate)
    report = {"schema_version": "1.0", "ok": False, "profile": "local", "issues": [issue]}
    context.write("validation_report.json", {**report, "gates": [{"name": gate, "ok": False}]})
    run_worker(context, "fix")
    assert _codes(context, gate) == set()


def test_description_that_describes_nothing_is_stopped(context: WorkerContext) -> None:
    page = context.site / OVERVIEW
    lines = page.read_text().splitlines(keepends=True)
    page.write_text(
        "".join("description: Lead into the documentation.\n" if line.startswith("desc") else line for line in lines)
    )
    assert _codes(context, "content") == {"GATE_CONTENT_DESCRIPTION"}
    assert _codes(context, "consistency") == {"GATE_CONSISTENCY_DESCRIPTION"}


def test_two_pages_with_the_same_text_are_stopped(context: WorkerContext) -> None:
    (context.site / FEATURES).write_text((context.site / OVERVIEW).read_text())
    assert "GATE_CONTENT_DUPLICATE_PAGE" in _codes(context, "content")


def test_page_that_no_other_page_links_to_is_stopped(context: WorkerContext) -> None:
    url = "/docs.aspose.org/3d/en/python/features/"
    for page in (context.site / "content").rglob("*.md"):
        page.write_text("".join(line for line in page.read_text().splitlines(keepends=True) if url not in line))
    for page in (context.folder / "work/public").rglob("*.html"):
        page.unlink()
    assert "GATE_CONTENT_NAVIGATION" in _codes(context, "content")


def test_product_name_that_the_repository_does_not_use_is_a_blocker(tmp_path: Path) -> None:
    context = run_workers(tmp_path, product_name="Aspose.Cells for Fortran", required_sections=["docs"])
    found = _findings(context, "consistency")
    assert [(each.code, each.severity) for each in found] == [("GATE_CONSISTENCY_PRODUCT_NAME", "blocker")]


TRAP = """class Trap:
    '''Hi <script>alert(1)</script> <img src=x onerror="alert(2)"> {{< readfile "/etc/passwd" >}}.

    See [x](javascript:alert(3)).

    Args:
        a: | <b onclick=alert(4)> |
    '''

    def __init__(self, a): ...
"""


def test_docstring_with_html_scripts_and_shortcodes_is_inert_on_the_built_page(tmp_path: Path) -> None:
    sample.create_repositories(tmp_path / "repositories")
    files = {**sample.PRODUCT, "src/aspose_3d/__init__.py": TRAP}
    sample.create_repository(tmp_path / "repositories" / "a" / "trap", files)
    context = run_workers(tmp_path, product="https://github.com/a/trap")
    assert _codes(context, "hugo_build") == set()
    built = (context.folder / "work/public/reference.aspose.org/3d/en/python/aspose-3d/trap/index.html").read_text()
    main = built[built.index("<main") : built.index("</main")]
    for danger in ("<script", "<img", "onclick=", "onerror=", "javascript:", "root:"):
        assert danger not in main.replace("&lt;img", "").replace("&lt;script", ""), danger
