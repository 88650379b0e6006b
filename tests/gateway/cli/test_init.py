"""`gatehouse init`: asks three questions and writes a valid settings file."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from gateway.contract.shipped import shipped_backends
from gateway.settings import default_backends, load

Run = Callable[..., Result]


def test_three_answers_produce_a_file_that_check_accepts(run: Run, tmp_path: Path) -> None:
    result = run("init", input="https://mcp.acme.example/\nhttps://login.acme.example\ncore, knowledge\n")
    assert result.exit_code == 0, result.stderr
    assert (result.stdout + result.stderr).count("]:") == 3
    settings = load(tmp_path / "gatehouse.yaml", {})
    assert settings.server.public_url == "https://mcp.acme.example"
    assert settings.auth.issuers[0].issuer == "https://login.acme.example"
    assert list(settings.backends) == ["core", "knowledge"]
    checked = run("check")
    assert (checked.exit_code, checked.stderr) == (0, "")


def test_default_answers_match_the_default_settings(run: Run, tmp_path: Path) -> None:
    assert run("init", "--yes").exit_code == 0
    settings = load(tmp_path / "gatehouse.yaml", {})
    assert settings.backends == default_backends()
    assert settings.server == load(None, {}).server
    assert (tmp_path / "gatehouse.yaml").stat().st_mode & 0o777 == 0o600
    comments = [line for line in (tmp_path / "gatehouse.yaml").read_text().splitlines() if "#" in line]
    assert len(comments) > 10


@pytest.mark.parametrize("serve", ["", *shipped_backends()])
def test_every_built_in_backend_can_be_selected(run: Run, serve: str) -> None:
    assert run("init", "--yes", "--serve", serve).exit_code == 0
    assert run("check").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--serve", "core,github"), "github is not a built-in backend"),
        (("--address", "mcp.acme.example"), "public_url"),
        (("--sign-in", "not an address"), "issuer"),
    ],
)
def test_invalid_answer_is_reported_and_nothing_is_written(
    run: Run, tmp_path: Path, options: tuple[str, str], message: str
) -> None:
    result = run("init", "--yes", *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.iterdir())


def test_existing_file_is_overwritten_only_with_force_and_backed_up(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "gatehouse.yaml"
    file.write_text("backends: {}\n")
    assert run("init", "--yes").exit_code == 1
    assert file.read_text() == "backends: {}\n"
    assert run("init", "--yes", "--force").exit_code == 0
    assert (tmp_path / "gatehouse.yaml.bak").read_text() == "backends: {}\n"


def test_missing_folder_is_reported_before_any_question(run: Run, tmp_path: Path) -> None:
    result = run("init", "--config", "other/x.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        result.stderr
        == f"gatehouse: folder {tmp_path}/other does not exist; create it, or choose another file with --config\n"
    )
