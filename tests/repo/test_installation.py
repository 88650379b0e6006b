"""No document installs a package from an index by a name that this project does not own."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from bench.report import PACKAGES
from tests.repo.documents import README, ROOT, documents, relative_path

TEXTS = [*documents(), *sorted((ROOT / "deploy").rglob("*.md"))]
INSTALLER = re.compile(r"\b(?:pip3? install|pipx (?:install|run)|uv (?:pip install|add|tool install)|uvx)\b[^\n`]*")
RELEASE = re.compile(r"<!-- release: .*?-->", re.DOTALL)


@pytest.mark.parametrize("document", TEXTS, ids=relative_path)
def test_document_installs_no_package_called_gatehouse(document: Path) -> None:
    text = RELEASE.sub("", document.read_text("utf-8"))
    assert [line for line in INSTALLER.findall(text) if installs_by_name(line)] == []


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("uvx gatehouse serve", True),
        ("pip install gatehouse", True),
        ("pip install 'gatehouse[redis]'", True),
        ("uvx --from gatehouse-mcp gatehouse serve", True),
        ("uvx --from dist/gatehouse*.whl gatehouse serve", False),
        ("pip install dist/gatehouse*.whl", False),
        ("pip install httpx", False),
    ],
)
def test_installation_by_name_is_recognised(line: str, refused: bool) -> None:
    assert installs_by_name(line) == refused


def installs_by_name(line: str) -> bool:
    """Whether a command takes Gatehouse from an index: by its name, and not from a wheel."""
    return ".whl" not in line and re.search(r"[ '\"]gatehouse(?:-mcp)?\b", line) is not None


def test_lines_that_a_release_enables_are_in_one_place() -> None:
    found = [relative_path(document) for document in TEXTS for _ in RELEASE.findall(document.read_text("utf-8"))]
    assert found == ["README.md"]
    assert "uvx --from gatehouse-mcp gatehouse" in README.read_text("utf-8")


def test_every_package_that_the_report_of_the_benchmark_names_is_installed() -> None:
    assert all(version(name) for name in PACKAGES)
