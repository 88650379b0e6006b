"""The demo runner: plays a demo module on a temporary gateway."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from gateway.cli.demo_runner import run_demo
from gateway.cli.failure import CommandError
from gateway.errors import Fault

DEMO = """
from gateway.errors import Fault, Kind

TITLE = "A demo."

async def prepare(folder):
    (folder / "made").write_text("here")
    return {"core": {"module": "backends.core"}}

async def play(demo):
    demo.step("core_ping")
    answer = await demo.call("core_ping", {})
    demo.note("answered", "at once [not markup]")
    refused = await demo.refusal("core_nothing", {})
    key = await demo.key("bridge:roblox")
    return {"folder": str(demo.folder), "files": str(demo.files), "base": demo.base, "key": key[:4],
            "answer": answer, "refused": refused["kind"], "made": (demo.folder / "made").read_text()}
"""


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """Write a demo module and return its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def test_demo_runs_on_a_temporary_gateway_and_removes_its_files(
    demo: Callable[[str, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    run_demo(demo("whole_demo", DEMO), None, as_json=True)
    facts = json.loads(capsys.readouterr().out)
    assert facts["base"].startswith("http://127.0.0.1:")
    assert (facts["made"], facts["key"], facts["refused"]) == ("here", "gth_", "not_found")
    assert facts["answer"]
    assert Path(facts["files"]).is_relative_to(facts["folder"])
    assert not Path(facts["folder"]).exists()


def test_folder_option_keeps_the_files_and_steps_are_printed(
    demo: Callable[[str, str], str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    run_demo(demo("kept_demo", DEMO), kept, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1]) == ("A demo.", f"Done. The files are in {kept}")
    assert any(line.split()[2:] == ["▸", "core_ping"] for line in lines)
    assert any(line.endswith("at once [not markup]") for line in lines)
    assert (kept / "made").read_text() == "here"


def test_non_empty_folder_is_rejected(demo: Callable[[str, str], str], tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="not an empty folder"):
        run_demo(demo("elsewhere_demo", DEMO), tmp_path, as_json=False)


@pytest.mark.parametrize(
    ("name", "call", "message"),
    [
        ("failing_demo", 'demo.call("core_nothing", {})', "core_nothing"),
        ("unrefused_demo", 'demo.refusal("core_ping", {})', "was expected to fail"),
    ],
)
def test_call_with_an_unexpected_outcome_ends_the_demo(
    demo: Callable[[str, str], str], name: str, call: str, message: str
) -> None:
    text = DEMO.replace('demo.refusal("core_nothing", {})', call)
    with pytest.raises(Fault, match=message):
        run_demo(demo(name, text), None, as_json=True)


def test_missing_demo_module_is_reported() -> None:
    with pytest.raises(CommandError, match="cannot run: No module named 'backends_gone'"):
        run_demo("backends_gone.demo", None, as_json=False)


def test_backend_load_error_is_reported(demo: Callable[[str, str], str]) -> None:
    with pytest.raises(CommandError, match=r"cannot run: backends\.core: backends\.gone cannot be imported"):
        run_demo(demo("unserved_demo", DEMO.replace("backends.core", "backends.gone")), None, as_json=False)


def test_help_lists_the_demos(run: Callable[..., Result]) -> None:
    assert "launch" in run("demo").stdout
    assert "--folder" in run("demo", "launch", "--help").stdout
