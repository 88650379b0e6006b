"""Each gate fails for its own reason, and what is mechanical is mended by the fixer, one issue at a time."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.launch import json_schemas, sample
from backends.launch.gates import hugo, runner
from backends.launch.gates.context import Finding, Subject
from backends.launch.gates.runner import GATES, Gate, look
from backends.launch.workers import fix
from backends.launch.workers.context import Bench
from gateway.errors import Fault
from tests.backends.launch.worker_fixtures import copied, work, worked

DOCS = "content/docs.aspose.org/3d/en/python"
FEATURES = f"{DOCS}/features.md"
STARTED = f"{DOCS}/getting-started.md"
BY_NAME = {gate.name: gate for gate in GATES}


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A run whose pages are in the site, and whose site was built once."""
    bench = worked(tmp_path_factory.mktemp("linked"), required_sections=["docs"])
    assert not list(hugo.check_build(Subject(bench)))
    return bench


@pytest.fixture
def bench(linked: Bench, tmp_path: Path) -> Bench:
    return copied(linked, tmp_path / "run", allow_manual_edits=True)


def _edit(bench: Bench, path: str, change: Callable[[str], str]) -> None:
    page = bench.site / path
    page.write_text(change(page.read_text()))


def _findings(bench: Bench, gate: str) -> list[Finding]:
    return look(BY_NAME[gate], Subject(bench), 60)


SEE = "\n## See"
FRONT = "---\ndescription: List what it can do.\ntitle: Features of Aspose.3D FOSS for Python\n---\n\n"
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
def test_a_page_broken_by_hand_fails_the_right_gate_and_is_mended(
    bench: Bench, gate: str, code: str, path: str, old: str, new: str
) -> None:
    assert _findings(bench, gate) == []
    assert old in (bench.site / path).read_text()
    _edit(bench, path, lambda text: text.replace(old, new, 1))
    found = [finding for finding in _findings(bench, gate) if finding.severity in ("error", "blocker")]
    assert {finding.code for finding in found} == {f"GATE_{code}"}
    assert found[0].path == path
    issue = found[0].as_issue(gate)
    assert json_schemas.problems("issue", issue) == []
    bench.write("validation_report.json", _report(issue))
    fixed = work(bench, "fix").result
    assert fixed == {"fixed_issue_id": issue["issue_id"], "applied_patch_ids": ["patch_004"]}
    assert _findings(bench, gate) == []
    assert (bench.folder / f"reports/fix_{issue['issue_id']}.md").is_file()


def _report(*issues: Any) -> dict[str, Any]:
    gates = [{"name": gate.name, "ok": False} for gate in GATES]
    return {"schema_version": "1.0", "ok": False, "profile": "local", "gates": gates, "issues": list(issues)}


def test_a_page_that_is_gone_is_written_again(bench: Bench) -> None:
    (bench.site / FEATURES).unlink()
    found = _findings(bench, "lint")
    assert [(finding.code, finding.severity) for finding in found] == [("GATE_FRONTMATTER_PAGE_MISSING", "blocker")]
    bench.write("validation_report.json", _report(found[0].as_issue("lint")))
    work(bench, "fix")
    assert _findings(bench, "lint") == []


def test_a_known_statement_without_its_marker_gets_it_back(bench: Bench) -> None:
    before = (bench.site / FEATURES).read_text()
    line = next(line for line in before.splitlines() if line.startswith("- Reads OBJ"))
    _edit(bench, FEATURES, lambda text: text.replace(line, line.split(" <!--")[0]))
    bench.write("validation_report.json", _report(_findings(bench, "truthlock")[0].as_issue("truthlock")))
    work(bench, "fix")
    assert (bench.site / FEATURES).read_text() == before


def test_exactly_one_issue_is_mended_and_it_is_the_first_in_the_order(bench: Bench) -> None:
    _edit(bench, FEATURES, lambda text: text + "- [Nowhere](/not/there/)\n")
    _edit(bench, STARTED, lambda text: text.replace("\n## First", "- It is the best.\n\n## First"))
    link = _findings(bench, "links")[0].as_issue("links")
    claim = _findings(bench, "truthlock")[0].as_issue("truthlock")
    bench.write("validation_report.json", _report(link, claim))
    assert work(bench, "fix").result["fixed_issue_id"] == claim["issue_id"]  # a blocker comes before an error
    assert _findings(bench, "links") != []


def test_issues_without_a_repair_exhaust_the_fixer(bench: Bench) -> None:
    issue = Finding("GATE_HUGO_CONFIG_MISSING", "The site has no Hugo settings.", "blocker").as_issue("hugo_config")
    bench.write("validation_report.json", _report(issue))
    with pytest.raises(Fault) as exhausted:
        fix.run(bench)
    assert exhausted.value.code == "FIX_EXHAUSTED"


def test_an_artifact_that_is_not_what_its_schema_says_is_a_blocker(bench: Bench) -> None:
    path = bench.folder / "artifacts" / "page_plan.json"
    plan = json.loads(path.read_bytes())
    path.write_text(json.dumps({**plan, "surprise": 1}))
    assert [finding.code for finding in _findings(bench, "schema")] == ["GATE_SCHEMA_INVALID"]
    path.write_text("{")
    assert [finding.code for finding in _findings(bench, "schema")] == ["GATE_SCHEMA_NOT_JSON"]


def test_evidence_that_is_gone_is_a_blocker(bench: Bench) -> None:
    (bench.repo / "README.md").write_text("# Empty\n")
    assert {finding.code for finding in _findings(bench, "truthlock")} == {"GATE_TRUTHLOCK_EVIDENCE_MISSING"}


def test_a_page_that_hugo_cannot_render_fails_the_build(bench: Bench) -> None:
    _edit(bench, FEATURES, lambda text: text + "\n{{< nosuchshortcode >}}\n")
    found = _findings(bench, "hugo_build")
    assert [(finding.code, finding.path) for finding in found] == [("GATE_HUGO_BUILD_FAILED", FEATURES)]
    assert str(bench.folder) not in found[0].message


@pytest.mark.parametrize(
    "settings",
    [
        '[[module.mounts]]\nsource = "/etc"\ntarget = "content/etc"\n',
        '[[module.mounts]]\nsource = "../../secrets"\ntarget = "assets"\n',
        'contentDir = "/etc"\n',
        '[[module.imports]]\npath = "github.com/evil/module"\n',
    ],
)
def test_settings_that_reach_outside_the_site_are_never_built(bench: Bench, settings: str) -> None:
    with (bench.site / "hugo.toml").open("a") as file:
        file.write("\n" + settings)
    assert [finding.code for finding in _findings(bench, "hugo_config")] == ["GATE_HUGO_CONFIG_UNSAFE"]
    assert [finding.code for finding in _findings(bench, "hugo_build")] == ["GATE_HUGO_BUILD_SKIPPED"]
    assert not list((bench.folder / "work/public").glob("**/passwd"))


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
def test_a_layout_of_the_site_reaches_no_environment_network_or_program(bench: Bench, layout: str) -> None:
    with (bench.site / "hugo.toml").open("a") as file:
        file.write(LOOSE)
    (bench.site / "layouts" / "index.html").write_text(layout)
    assert "GATE_HUGO_BUILD_FAILED" in {finding.code for finding in _findings(bench, "hugo_build")}


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
def test_a_layout_of_the_site_reads_no_file_outside_it(bench: Bench, path: str, read: str) -> None:
    (bench.folder / "secret.txt").write_text("SECRET-TEXT")
    (bench.site / "inside.txt").write_text("INSIDE")
    (bench.site / "link.txt").symlink_to(bench.folder / "secret.txt")
    layout = f'A {{{{ readFile "{path.replace("HERE", str(bench.folder))}" }}}} B'
    (bench.site / "layouts" / "index.html").write_text(layout)
    assert _findings(bench, "hugo_build") == []
    assert (bench.folder / "work/public/index.html").read_text() == f"A {read} B"


def test_a_gate_that_runs_past_its_time_is_a_blocker(bench: Bench) -> None:
    def endless(subject: Subject) -> Iterator[Finding]:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            pass
        yield Finding("NEVER", "never")

    found = look(Gate("slow", endless, 1, 1), Subject(bench), 0.05)
    assert [(finding.code, finding.severity) for finding in found] == [("GATE_TIMEOUT", "blocker")]


@pytest.mark.parametrize(
    ("profile", "strictness", "failing"),
    [("local", "strict", False), ("ci", "strict", True), ("ci", "relaxed", False), ("prod", "relaxed", True)],
)
def test_the_profile_says_whether_a_warning_fails(profile: str, strictness: str, failing: bool) -> None:
    config = {"validation_profile": profile, "ci_strictness": strictness}
    assert ("warn" in runner.failing(config)) is failing


def test_a_change_by_hand_is_only_noted_unless_it_is_allowed(linked: Bench, tmp_path: Path) -> None:
    strict = copied(linked, tmp_path / "strict")
    _edit(strict, FEATURES, lambda text: text.replace("Lists", "Names") + "\n")
    found = _findings(strict, "consistency")
    assert [(finding.code, finding.severity) for finding in found] == [("GATE_CONSISTENCY_MANUAL_EDIT", "warn")]


@pytest.mark.parametrize(("profile", "severity"), [("ci", "warn"), ("prod", "blocker")])
def test_without_rollback_metadata_there_is_no_release(
    linked: Bench, tmp_path: Path, profile: str, severity: str
) -> None:
    released = copied(linked, tmp_path / "released", validation_profile=profile)
    assert _findings(released, "rollback") == []
    (released.folder / "artifacts" / "rollback_metadata.json").unlink()
    assert [finding.severity for finding in _findings(released, "rollback")] == [severity]


def test_a_site_with_settings_for_each_section_is_built_for_each(tmp_path: Path) -> None:
    site = {name: text for name, text in sample.SITE.items() if name != "hugo.toml"}
    site |= {f"configs/{name}.toml": sample.SITE["hugo.toml"] for name in ("docs", "kb")}
    sample.make(tmp_path / "repositories")
    sample.repository(tmp_path / "repositories" / "sections", site)
    bench = worked(tmp_path, site=tmp_path / "repositories" / "sections", required_sections=["docs"])
    assert not _findings(bench, "hugo_build")
    assert (bench.folder / "work/public/docs/docs.aspose.org/3d/en/python/features/index.html").is_file()
    assert not _findings(bench, "links")
