"""Path confinement: no spelling of a path and no symbolic link leads outside the project."""

import os
import resource
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.godot import files
from backends.godot.paths import Project, ProjectPath, Roots
from gateway.contract import Caller
from gateway.errors import Fault, Kind

REJECTED_PATHS = [
    "../secret", "a/../../secret", "/etc/passwd", "//host/share", "\\\\host\\share", "..\\secret", "C:\\x", "C:/x",
    "user://save", "uid://abc", "file:///etc/passwd", "http://x/y", "a\0b", "~/x", "%2e%2e/secret", "..%2fsecret",
    "a/%2e%2e/%2e%2e/x", "\uff0e\uff0e/secret", "res://../secret", "res:///etc/passwd", "res://user://x", "a\nb",
    "x" * 300, "a/" * 300, "link/secret", "res://link/secret", "\ud800", "%00", "..%5csecret",
]  # fmt: skip

PATH_PARTS = st.sampled_from(
    [
        "..",
        ".",
        "",
        "a",
        "link",
        "~",
        "C:",
        "%2e%2e",
        "%2f",
        "\\",
        "\0",
        "\uff0e\uff0e",
        "etc",
        "passwd",
        "res:",
        "user:",
    ]
)
PATHS = st.one_of(
    st.text(max_size=60),
    st.lists(PATH_PARTS, max_size=8).map("/".join),
    st.tuples(st.sampled_from(["", "/", "//", "res://", "user://", "\\\\", "/tmp/", "../"]), st.text(max_size=30)).map(
        "".join
    ),
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    root = tmp_path / "project"
    root.mkdir()
    (root / "project.godot").write_text("config_version=5\n")
    (root / "a").mkdir()
    (root / "link").symlink_to(tmp_path / "outside")
    return Project(root.resolve())


@pytest.mark.parametrize("path_text", REJECTED_PATHS)
def test_paths_outside_the_project_are_denied(project: Project, path_text: str) -> None:
    with pytest.raises(Fault) as caught:
        project.resolve(path_text)
    assert caught.value.kind is Kind.DENIED


@pytest.mark.parametrize("path_text", ["a/b.gd", "res://a/b.gd", "./a/b.gd", "a//b.gd"])
def test_equivalent_spellings_resolve_to_the_same_path(project: Project, path_text: str) -> None:
    assert project.resolve(path_text).res == "res://a/b.gd"
    assert project.resolve(str(project.root / "a" / "b.gd")).res == "res://a/b.gd"


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path_text=PATHS)
def test_generated_paths_never_read_or_write_outside_the_project(project: Project, path_text: str) -> None:
    """Threat row 30: path traversal in file tools."""
    outside = project.root.parent / "outside"
    try:
        place = project.resolve(path_text)
    except Fault as fault:
        assert fault.kind is Kind.DENIED  # noqa: PT017  # a valid path raises nothing
        return
    assert place.path.resolve().is_relative_to(project.root)
    with suppress(Fault):
        files.write(ProjectPath(place.root, place.path), b"x")
    assert sorted(os.listdir(outside)) == ["secret"]
    assert (outside / "secret").read_text() == "secret"
    assert set(os.listdir(project.root.parent)) == {"outside", "project"}


def test_symlink_created_after_the_check_is_not_followed(project: Project) -> None:
    place = project.resolve("a/b/file.gd")
    (project.root / "a" / "b").symlink_to(project.root.parent / "outside")
    for attempt in (lambda: files.write(place, b"x"), lambda: files.read(place), lambda: files.delete(place)):
        with pytest.raises(Fault) as caught:
            attempt()
        assert caught.value.kind is Kind.DENIED
    assert sorted(os.listdir(project.root.parent / "outside")) == ["secret"]


def test_file_replaced_by_a_symlink_is_not_read(project: Project) -> None:
    place = project.resolve("a/file.gd")
    place.path.symlink_to(project.root.parent / "outside" / "secret")
    with pytest.raises(Fault):
        files.read(place)


def test_reading_a_named_pipe_does_not_block(project: Project) -> None:
    os.mkfifo(project.root / "a" / "pipe.gd")
    assert files.read(project.resolve("a/pipe.gd")) == b""


def test_failed_write_keeps_the_old_file_and_leaves_no_temporary_file(project: Project) -> None:
    place = project.resolve("a/file.gd")
    files.write(place, b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        with pytest.raises(Fault, match="the disk is full") as caught:
            files.write(place, b"x" * 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.kind is Kind.INTERNAL
    assert files.read(place) == b"old"
    assert os.listdir(project.root / "a") == ["file.gd"]


def test_write_to_a_deleted_project_is_not_found(project: Project) -> None:
    place = project.resolve("a/file.gd")
    os.rename(project.root, project.root.parent / "gone")
    with pytest.raises(Fault) as caught:
        files.write(place, b"x")
    assert caught.value.kind is Kind.NOT_FOUND


def test_existing_file_is_replaced_only_with_overwrite(project: Project) -> None:
    place = project.resolve("a/file.gd")
    files.write(place, b"one", overwrite=False)
    with pytest.raises(Fault) as caught:
        files.write(place, b"two", overwrite=False)
    assert caught.value.kind is Kind.INVALID_INPUT
    assert files.read(place) == b"one"


def test_roots_are_resolved_per_tenant(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    roots = Roots(["projects", str(shared), str(tmp_path / "{tenant}" / "games")])
    ours, theirs = Caller("default", "alice"), Caller("acme", "bob")
    folder = tmp_path / "folders"
    assert roots.for_caller(ours, folder / "default") == [
        folder / "default" / "projects", shared, tmp_path / "default" / "games",
    ]  # fmt: skip
    assert roots.for_caller(theirs, folder / "acme") == [folder / "acme" / "projects", tmp_path / "acme" / "games"]


@pytest.mark.parametrize("path_text", ["/etc", "/", "relative/path", "/tmp/../etc", "res://x", "\0", "//host/share"])
def test_project_outside_the_roots_is_denied_whether_it_exists_or_not(tmp_path: Path, path_text: str) -> None:
    roots = Roots(["projects"])
    with pytest.raises(Fault) as caught:
        roots.resolve_project(Caller("default", "alice"), tmp_path, path_text)
    assert caught.value.kind is Kind.DENIED


def test_symlink_that_leads_out_of_the_root_is_denied(tmp_path: Path) -> None:
    (tmp_path / "projects").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "projects" / "mine").symlink_to(tmp_path / "other")
    with pytest.raises(Fault) as caught:
        Roots(["projects"]).resolve_project(Caller("default", "alice"), tmp_path, str(tmp_path / "projects" / "mine"))
    assert caught.value.kind is Kind.DENIED
