"""`init` asks three questions and writes a file that `check` accepts."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from gateway.cli.init import SHIPPED
from gateway.settings import default_backends, load

Run = Callable[..., Result]


def test_three_answers_make_a_file_that_check_accepts(run: Run, tmp_path: Path) -> None:
    asked = run("init", input="https://mcp.acme.example/\nhttps://login.acme.example\ncore, knowledge\n")
    assert asked.exit_code == 0, asked.stderr
    assert (asked.stdout + asked.stderr).count("]:") == 3
    settings = load(tmp_path / "gatehouse.yaml", {})
    assert settings.server.public_url == "https://mcp.acme.example"
    assert settings.auth.issuers[0].issuer == "https://login.acme.example"
    assert list(settings.backends) == ["core", "knowledge"]
    checked = run("check")
    assert (checked.exit_code, checked.stderr) == (0, "")


def test_the_defaults_serve_what_is_served_without_a_file(run: Run, tmp_path: Path) -> None:
    assert run("init", "--yes").exit_code == 0
    settings = load(tmp_path / "gatehouse.yaml", {})
    assert settings.backends == default_backends()
    assert settings.server == load(None, {}).server
    assert (tmp_path / "gatehouse.yaml").stat().st_mode & 0o777 == 0o600
    comments = [line for line in (tmp_path / "gatehouse.yaml").read_text().splitlines() if "#" in line]
    assert len(comments) > 10


@pytest.mark.parametrize("serve", ["", *SHIPPED])
def test_everything_that_ships_can_be_asked_for(run: Run, serve: str) -> None:
    assert run("init", "--yes", "--serve", serve).exit_code == 0
    assert run("check").exit_code == 0


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (("--serve", "core,github"), "github does not ship"),
        (("--address", "mcp.acme.example"), "public_url"),
        (("--sign-in", "not an address"), "issuer"),
    ],
)
def test_a_wrong_answer_is_told_and_nothing_is_written(
    run: Run, tmp_path: Path, given: tuple[str, str], line: str
) -> None:
    result = run("init", "--yes", *given)
    assert result.exit_code == 2
    assert line in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_stays_unless_forced_and_is_kept_then(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "gatehouse.yaml"
    file.write_text("backends: {}\n")
    assert run("init", "--yes").exit_code == 1
    assert file.read_text() == "backends: {}\n"
    assert run("init", "--yes", "--force").exit_code == 0
    assert (tmp_path / "gatehouse.yaml.bak").read_text() == "backends: {}\n"


def test_a_folder_that_is_not_there_is_named_before_anything_is_asked(run: Run, tmp_path: Path) -> None:
    result = run("init", "--config", "other/x.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        result.stderr
        == f"gatehouse: there is no folder {tmp_path}/other; make it, or name another file with --config\n"
    )
