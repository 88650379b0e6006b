"""Every public class of the gateway has a unique name, so that one name has one meaning."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.repo.documents import ROOT, relative_path


def public_classes(path: Path) -> Iterator[str]:
    """Yield the names of the public classes in a module, including nested ones."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def duplicates(paths: Iterable[Path]) -> list[str]:
    """Return one line for each class name that is defined more than once, with the files that define it."""
    files: dict[str, list[Path]] = {}
    for path in paths:
        for name in public_classes(path):
            files.setdefault(name, []).append(path)
    return [
        f"{name}: {', '.join(sorted(_display(path) for path in defining))}"
        for name, defining in sorted(files.items())
        if len(defining) > 1
    ]


def _display(path: Path) -> str:
    return relative_path(path) if path.is_relative_to(ROOT) else path.name


def test_public_class_names_of_the_gateway_are_unique() -> None:
    found = duplicates((ROOT / "gateway").rglob("*.py"))
    assert found == [], "rename these classes by what they are:\n" + "\n".join(found)


def test_duplicate_public_class_is_reported_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class Session: ...\nclass _Private: ...\nclass Other: ...\n")
    (tmp_path / "b.py").write_text("class Session: ...\nclass _Private: ...\n")
    assert duplicates(tmp_path.glob("*.py")) == ["Session: a.py, b.py"]
