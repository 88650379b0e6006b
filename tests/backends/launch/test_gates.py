"""Each gate reports its own errors, and the fix worker repairs them one issue at a time."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.launch import json_schemas, sample
from backends.launch.gates import hugo, runner
from backends.launch.gates.context import Finding, GateContext
from backends.launch.gates.runner import GATES, Gate, run_gate
from backends.launch.workers import fix
from backends.launch.workers.context import WorkerContext
from gateway.errors import Fault
from tests.backends.launch.worker_fixtures import copy_run, run_worker, run_workers

DOCS = "content/docs.aspose.org/3d/en/python"
FEATURES = f"{DOCS}/features.md"
STARTED = f"{DOCS}/getting-started.md"
BY_NAME = {gate.name: gate for gate in GATES}


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> WorkerContext:
    """A run whose pages are linked into the site, with the site built once."""
    context = run_workers(tmp_path_factory.mktemp("linked"), required_sections=["docs"])
    assert not list(hugo.check_build(GateContext(context)))
    return context


@pytest.fixture
def context(linked: WorkerContext, tmp_path: Path) -> WorkerContext:
    return copy_run(linked, tmp_path / "run", allow_manual_edits=True)


def _edit(context: WorkerContext, path: str, change: Callable[[str], str]) -> None:
    page = context.site / path
    page.write_text(change(page.read_text()))


def _findings(context: WorkerContext, gate: str) -> list[Finding]:
    return run_gate(BY_NAME[gate], GateContext(context), 60)


SEE = "\n## See"
FRONT = (
    "---\ndescription: 'Capabilities of Aspose.3D for Python: 4 features and 1 limitation.'\n"
    "title: Features of Aspose.3D for Python\nweight: 30\n---\n\n"
)
BREAKS: list[tuple[str, str, str, str, str]] = [
    ("lint", "FRONTMATTER_MISSING", FEATURES, FRONT, ""),
    ("lint", "FRONTMATTER_INVALID_YAML", FEATURES, "title:", "title: ["),
    ("lint", "FRONTMATTER_INVALID_YAML", FEATURES, "---\n\n", "\n"),
    ("lint", "FRONTMATTER_KEY_MISSING", FEATURES, "title:", "heading:"),
    ("lint", "MARKDOWN_LINT", FEATURES, "## Features\n\n", "## Features\n\n\n\n"),
    ("lint", "MARKDOWN_LINT", FEATURES, "## Features", "##  Features"),
    ("links", "LINK_BROKEN", FEATURES, "also\n\n", "also\n\n- [Nowhere](/not/there/)\n"),
    ("links", "LINK_BROKEN", FEATURES, SEE, "\nSee [this](../gone/) too.\n" + SEE),
    ("snippets", "SNIPPET_SYNTAX", STARTED, "scene.scale(2.0)", "scene.scale((2.0"),
    ("snippets", "SNIPPET_UNCLOSED", STARTED, 'gltf")\n```\n', 'gltf")\n'),
    ("truthlock", "TRUTHLOCK_UNCITED_FACT", FEATURES, SEE, "- It is the best.\n" + SEE),
    ("truthlock", "TRUTHLOCK_INVALID_CLAIM_ID", FEATURES, "claim_id: ", "claim_id: f"),
    ("truthlock", "TRUTHLOCK_CLAIM_MISMATCH", FEATURES, "Reads OBJ and STL", "Reads all"),
    ("truthlock", "TRUTHLOCK_UNSUPPORTED_FORMAT", FEATURES, SEE, "\nIt reads DWG.\n" + SEE),
    ("consistency", "CONSISTENCY_TITLE", FEATURES, "title: Features", "title: Fixtures"),
    ("consistency", "CONSISTENCY_HEADING_MISSING", FEATURES, "## Features", "## Other"),
    ("consistency", "CONSISTENCY_REPO_URL", FEATURES, "github.com/aspose-3d/", "github.com/evil/"),
    ("template_token_lint", "TEMPLATE_TOKEN", FEATURES, SEE, "\n__PRODUCT_NAME__ is there.\n" + SEE),
    ("template_token_lint", "TEMPLATE_TOKEN", FEATURES, SEE, "\n{{ whatever }}\n" + SEE),
]


@pytest.mark.parametrize(("gate", "code", "path", "old", "new"), BREAKS)
def test_manually_broken_page_fails_the_expected_gate_and_is_fixed(
    context: WorkerContext, gate: str, code: str, path: str, old: str, new: str
) -> None:
    assert _findings(context, gate) == []
    assert old in (context.site / path).read_text()
    _edit(context, path, lambda text: text.replace(old, new, 1))
    found = [finding for finding in _findings(context, gate) if finding.severity in ("error", "blocker")]
    assert {finding.code for finding in found} == {f"GATE_{code}"}
    assert found[0].path == path
    issue = found[0].as_issue(gate)
    assert json_schemas.problems("issue", issue) == []
    context.write("validation_report.json", _report(issue))
    fixed = run_worker(context, "fix").result
    assert fixed == {"fixed_issue_id": issue["issue_id"], "applied_patch_ids": ["patch_004"]}
    assert _findings(context, gate) == []
    assert (context.folder / f"reports/fix_{issue['issue_id']}.md").is_file()


def _report(*issues: Any) -> dict[str, Any]:
    gates = [{"name": gate.name, "ok": False} for gate in GATES]
    return {"schema_version": "1.0", "ok": False, "profile": "local", "gates": gates, "issues": list(issues)}


def test_missing_page_is_restored(context: WorkerContext) -> None:
    (context.site / FEATURES).unlink()
    found = _findings(context, "lint")
    assert [(finding.code, finding.severity) for finding in found] == [("GATE_FRONTMATTER_PAGE_MISSING", "blocker")]
    context.write("validation_report.json", _report(found[0].as_issue("lint")))
    run_worker(context, "fix")
    assert _findings(context, "lint") == []


def test_marker_of_a_known_statement_is_restored(context: WorkerContext) -> None:
    before = (context.site / FEATURES).read_text()
    line = next(line for line in before.splitlines() if line.startswith("- Reads OBJ"))
    _edit(context, FEATURES, lambda text: text.replace(line, line.split(" <!--")[0]))
    context.write("validation_report.json", _report(_findings(context, "truthlock")[0].as_issue("truthlock")))
    run_worker(context, "fix")
    assert (context.site / FEATURES).read_text() == before


def test_exactly_the_first_issue_in_sort_order_is_fixed(context: WorkerContext) -> None:
    _edit(context, FEATURES, lambda text: text + "- [Nowhere](/not/there/)\n")
    _edit(context, STARTED, lambda text: text.replace("\n## First", "- It is the best.\n\n## First"))
    link = _findings(context, "links")[0].as_issue("links")
    claim = _findings(context, "truthlock")[0].as_issue("truthlock")
    context.write("validation_report.json", _report(link, claim))
    assert run_worker(context, "fix").result["fixed_issue_id"] == claim["issue_id"]  # a blocker comes before an error
    assert _findings(context, "links") != []


def test_issues_without_a_repair_raise_fix_exhausted(context: WorkerContext) -> None:
    issue = Finding("GATE_HUGO_CONFIG_MISSING", "The site has no Hugo settings.", "blocker").as_issue("hugo_config")
    context.write("validation_report.json", _report(issue))
    with pytest.raises(Fault) as exhausted:
        fix.run(context)
    assert exhausted.value.code == "FIX_EXHAUSTED"


def test_artifact_that_violates_its_schema_is_a_blocker(context: WorkerContext) -> None:
    path = context.folder / "artifacts" / "page_plan.json"
    plan = json.loads(path.read_bytes())
    path.write_text(json.dumps({**plan, "surprise": 1}))
    assert [finding.code for finding in _findings(context, "schema")] == ["GATE_SCHEMA_INVALID"]
    path.write_text("{")
    assert [finding.code for finding in _findings(context, "schema")] == ["GATE_SCHEMA_NOT_JSON"]


def test_missing_evidence_is_a_blocker(context: WorkerContext) -> None:
    (context.repo / "README.md").write_text("# Empty\n")
    assert {finding.code for finding in _findings(context, "truthlock")} == {"GATE_TRUTHLOCK_EVIDENCE_MISSING"}


def test_page_that_hugo_cannot_render_fails_the_build(context: WorkerContext) -> None:
    _edit(context, FEATURES, lambda text: text + "\n{{< nosuchshortcode >}}\n")
    found = _findings(context, "hugo_build")
    assert [(finding.code, finding.path) for finding in found] == [("GATE_HUGO_BUILD_FAILED", FEATURES)]
    assert str(context.folder) not in found[0].message


@pytest.mark.parametrize(
    "settings",
    [
        '[[module.mounts]]\nsource = "/etc"\ntarget = "content/etc"\n',
        '[[module.mounts]]\nsource = "../../secrets"\ntarget = "assets"\n',
        'contentDir = "/etc"\n',
        '[[module.imports]]\npath = "github.com/evil/module"\n',
    ],
)
def test_site_with_settings_that_reach_outside_is_never_built(context: WorkerContext, settings: str) -> None:
    with (context.site / "hugo.toml").open("a") as file:
        file.write("\n" + settings)
    assert [finding.code for finding in _findings(context, "hugo_config")] == ["GATE_HUGO_CONFIG_UNSAFE"]
    assert [finding.code for finding in _findings(context, "hugo_build")] == ["GATE_HUGO_BUILD_SKIPPED"]
    assert not list((context.folder / "work/public").glob("**/passwd"))


LOOSE = """
[security]
enableInlineShortcodes = true
[security.exec]
allow = [".*"]
osEnv = [".*"]
[security.funcs]
getenv = [".*"]
[security.http]
urls = [".*"]
methods = [".*"]
"""


@pytest.mark.parametrize(
    "layout",
    [
        '{{ getenv "HUGO_SECURITY_EXEC_ALLOW" }}{{ getenv "HOME" }}',
        '{{ (resources.GetRemote "http://127.0.0.1:9/").Content }}',
        '{{ $c := "a{}" | resources.FromString "a.css" | css.PostCSS }}{{ $c.Content }}',
    ],
)
def test_site_layout_cannot_access_environment_network_or_programs(context: WorkerContext, layout: str) -> None:
    with (context.site / "hugo.toml").open("a") as file:
        file.write(LOOSE)
    (context.site / "layouts").mkdir()
    (context.site / "layouts" / "index.html").write_text(layout)
    assert "GATE_HUGO_BUILD_FAILED" in {finding.code for finding in _findings(context, "hugo_build")}


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("HERE/secret.txt", ""),
        ("../../secret.txt", ""),
        ("content/../../../secret.txt", ""),
        ("link.txt", ""),
        ("inside.txt", "INSIDE"),
    ],
)
def test_site_layout_cannot_read_files_outside_the_site(context: WorkerContext, path: str, read: str) -> None:
    (context.folder / "secret.txt").write_text("SECRET-TEXT")
    (context.site / "inside.txt").write_text("INSIDE")
    (context.site / "link.txt").symlink_to(context.folder / "secret.txt")
    layout = f'A {{{{ readFile "{path.replace("HERE", str(context.folder))}" }}}} B'
    (context.site / "layouts").mkdir()
    (context.site / "layouts" / "index.html").write_text(layout)
    assert _findings(context, "hugo_build") == []
    assert (context.folder / "work/public/index.html").read_text() == f"A {read} B"


def test_gate_timeout_is_a_blocker(context: WorkerContext) -> None:
    def endless(subject: GateContext) -> Iterator[Finding]:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            pass
        yield Finding("NEVER", "never")

    found = run_gate(Gate("slow", endless, 1, 1), GateContext(context), 0.05)
    assert [(finding.code, finding.severity) for finding in found] == [("GATE_TIMEOUT", "blocker")]


@pytest.mark.parametrize(
    ("profile", "strictness", "failing"),
    [("local", "strict", False), ("ci", "strict", True), ("ci", "relaxed", False), ("prod", "relaxed", True)],
)
def test_profile_decides_whether_a_warning_fails_a_gate(profile: str, strictness: str, failing: bool) -> None:
    config = {"validation_profile": profile, "ci_strictness": strictness}
    assert ("warn" in runner.failing_severities(config)) is failing


def test_manual_edit_is_a_warning_unless_it_is_allowed(linked: WorkerContext, tmp_path: Path) -> None:
    strict = copy_run(linked, tmp_path / "strict")
    _edit(strict, FEATURES, lambda text: text.replace("Lists", "Names") + "\n")
    found = _findings(strict, "consistency")
    assert [(finding.code, finding.severity) for finding in found] == [("GATE_CONSISTENCY_MANUAL_EDIT", "warn")]


@pytest.mark.parametrize(("profile", "severity"), [("ci", "warn"), ("prod", "blocker")])
def test_missing_rollback_metadata_is_reported_by_profile(
    linked: WorkerContext, tmp_path: Path, profile: str, severity: str
) -> None:
    released = copy_run(linked, tmp_path / "released", validation_profile=profile)
    assert _findings(released, "rollback") == []
    (released.folder / "artifacts" / "rollback_metadata.json").unlink()
    assert [finding.severity for finding in _findings(released, "rollback")] == [severity]


def test_site_with_settings_per_section_is_built_once_per_section(tmp_path: Path) -> None:
    site = {name: text for name, text in sample.SITE.items() if name != "hugo.toml"}
    site |= {f"configs/{name}.toml": sample.SITE["hugo.toml"] for name in ("docs", "kb")}
    sample.create_repositories(tmp_path / "repositories")
    sample.create_repository(tmp_path / "repositories" / "sections", site)
    context = run_workers(tmp_path, site=tmp_path / "repositories" / "sections", required_sections=["docs"])
    assert not _findings(context, "hugo_build")
    assert (context.folder / "work/public/docs/docs.aspose.org/3d/en/python/features/index.html").is_file()
    assert not _findings(context, "links")
