"""Any demo: a module with a title, what it prepares and what it plays, on a gateway of its own."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from gateway.cli.demo_runner import show
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
    """Write a demo's module; its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def written(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return written


def test_a_demo_is_played_on_a_gateway_of_its_own_and_leaves_nothing(
    demo: Callable[[str, str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    show(demo("whole_demo", DEMO), None, as_json=True)
    facts = json.loads(capsys.readouterr().out)
    assert facts["base"].startswith("http://127.0.0.1:")
    assert (facts["made"], facts["key"], facts["refused"]) == ("here", "gth_", "not_found")
    assert facts["answer"]
    assert Path(facts["files"]).is_relative_to(facts["folder"])
    assert not Path(facts["folder"]).exists()


def test_what_it_made_is_kept_where_the_user_says_and_its_lines_are_shown(
    demo: Callable[[str, str], str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    show(demo("kept_demo", DEMO), kept, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1]) == ("A demo.", f"Done. It is all in {kept}")
    assert any(line.split()[2:] == ["▸", "core_ping"] for line in lines)
    assert any(line.endswith("at once [not markup]") for line in lines)
    assert (kept / "made").read_text() == "here"


def test_a_folder_with_something_in_it_is_left_alone(demo: Callable[[str, str], str], tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="not an empty folder"):
        show(demo("elsewhere_demo", DEMO), tmp_path, as_json=False)


@pytest.mark.parametrize(
    ("name", "call", "said"),
    [
        ("failing_demo", 'demo.call("core_nothing", {})', "core_nothing"),
        ("unrefused_demo", 'demo.refusal("core_ping", {})', "should have been refused"),
    ],
)
def test_a_call_that_goes_otherwise_than_foreseen_ends_the_demo(
    demo: Callable[[str, str], str], name: str, call: str, said: str
) -> None:
    text = DEMO.replace('demo.refusal("core_nothing", {})', call)
    with pytest.raises(Fault, match=said):
        show(demo(name, text), None, as_json=True)


def test_a_backend_that_is_not_installed_is_said_in_a_line() -> None:
    with pytest.raises(CommandError, match="cannot be shown: No module named 'backends_gone'"):
        show("backends_gone.demo", None, as_json=False)


def test_a_backend_that_cannot_be_served_is_said_in_a_line(demo: Callable[[str, str], str]) -> None:
    with pytest.raises(CommandError, match=r"cannot be shown: backends\.core: backends\.gone cannot be imported"):
        show(demo("unserved_demo", DEMO.replace("backends.core", "backends.gone")), None, as_json=False)


def test_the_help_lists_the_demos(run: Callable[..., Result]) -> None:
    assert "launch" in run("demo").stdout
    assert "--folder" in run("demo", "launch", "--help").stdout
