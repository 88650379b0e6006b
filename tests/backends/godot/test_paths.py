"""No spelling of a path leaves the project, and no link made later does."""

import os
import resource
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.godot import files
from backends.godot.paths import Place, Project, Roots
from gateway.contract import Caller
from gateway.errors import Fault, Kind

HOSTILE = [
    "../secret", "a/../../secret", "/etc/passwd", "//host/share", "\\\\host\\share", "..\\secret", "C:\\x", "C:/x",
    "user://save", "uid://abc", "file:///etc/passwd", "http://x/y", "a\0b", "~/x", "%2e%2e/secret", "..%2fsecret",
    "a/%2e%2e/%2e%2e/x", "\uff0e\uff0e/secret", "res://../secret", "res:///etc/passwd", "res://user://x", "a\nb",
    "x" * 300, "a/" * 300, "link/secret", "res://link/secret", "\ud800", "%00", "..%5csecret",
]  # fmt: skip

PIECES = st.sampled_from(
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
    st.lists(PIECES, max_size=8).map("/".join),
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


@pytest.mark.parametrize("given_path", HOSTILE)
def test_hostile_spellings_are_denied(project: Project, given_path: str) -> None:
    with pytest.raises(Fault) as caught:
        project.inside(given_path)
    assert caught.value.kind is Kind.DENIED


@pytest.mark.parametrize("given_path", ["a/b.gd", "res://a/b.gd", "./a/b.gd", "a//b.gd"])
def test_every_honest_spelling_is_the_same_place(project: Project, given_path: str) -> None:
    assert project.inside(given_path).res == "res://a/b.gd"
    assert project.inside(str(project.root / "a" / "b.gd")).res == "res://a/b.gd"


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_path=PATHS)
def test_a_thousand_hostile_paths_never_read_or_write_outside(project: Project, given_path: str) -> None:
    """Threat row 30: path traversal in file tools."""
    outside = project.root.parent / "outside"
    try:
        place = project.inside(given_path)
    except Fault as fault:
        assert fault.kind is Kind.DENIED  # noqa: PT017  # an honest path is let in
        return
    assert place.path.resolve().is_relative_to(project.root)
    with suppress(Fault):
        files.write(Place(place.root, place.path), b"x")
    assert sorted(os.listdir(outside)) == ["secret"]
    assert (outside / "secret").read_text() == "secret"
    assert set(os.listdir(project.root.parent)) == {"outside", "project"}


def test_a_link_made_after_the_check_leads_nowhere(project: Project) -> None:
    place = project.inside("a/b/file.gd")
    (project.root / "a" / "b").symlink_to(project.root.parent / "outside")
    for attempt in (lambda: files.write(place, b"x"), lambda: files.read(place), lambda: files.delete(place)):
        with pytest.raises(Fault) as caught:
            attempt()
        assert caught.value.kind is Kind.DENIED
    assert sorted(os.listdir(project.root.parent / "outside")) == ["secret"]


def test_a_file_that_became_a_link_is_not_read(project: Project) -> None:
    place = project.inside("a/file.gd")
    place.path.symlink_to(project.root.parent / "outside" / "secret")
    with pytest.raises(Fault):
        files.read(place)


def test_a_pipe_in_the_project_does_not_hang_a_reader(project: Project) -> None:
    os.mkfifo(project.root / "a" / "pipe.gd")
    assert files.read(project.inside("a/pipe.gd")) == b""


def test_on_a_full_disk_the_old_file_stays_whole_and_nothing_is_left_behind(project: Project) -> None:
    place = project.inside("a/file.gd")
    files.write(place, b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        with pytest.raises(Fault, match="no room") as caught:
            files.write(place, b"x" * 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.kind is Kind.INTERNAL
    assert files.read(place) == b"old"
    assert os.listdir(project.root / "a") == ["file.gd"]


def test_a_project_deleted_meanwhile_is_not_found(project: Project) -> None:
    place = project.inside("a/file.gd")
    os.rename(project.root, project.root.parent / "gone")
    with pytest.raises(Fault) as caught:
        files.write(place, b"x")
    assert caught.value.kind is Kind.NOT_FOUND


def test_an_existing_file_is_replaced_only_when_that_is_asked_for(project: Project) -> None:
    place = project.inside("a/file.gd")
    files.write(place, b"one", overwrite=False)
    with pytest.raises(Fault) as caught:
        files.write(place, b"two", overwrite=False)
    assert caught.value.kind is Kind.DENIED
    assert files.read(place) == b"one"


def test_roots_are_the_tenants_own(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    roots = Roots(["projects", str(shared), str(tmp_path / "{tenant}" / "games")])
    ours, theirs = Caller("default", "alice"), Caller("acme", "bob")
    folder = tmp_path / "folders"
    assert roots.of(ours, folder / "default") == [
        folder / "default" / "projects", shared, tmp_path / "default" / "games",
    ]  # fmt: skip
    assert roots.of(theirs, folder / "acme") == [folder / "acme" / "projects", tmp_path / "acme" / "games"]


@pytest.mark.parametrize("given_path", ["/etc", "/", "relative/path", "/tmp/../etc", "res://x", "\0", "//host/share"])
def test_a_project_elsewhere_is_denied_whether_it_exists_or_not(tmp_path: Path, given_path: str) -> None:
    roots = Roots(["projects"])
    with pytest.raises(Fault) as caught:
        roots.project(Caller("default", "alice"), tmp_path, given_path)
    assert caught.value.kind is Kind.DENIED


def test_a_link_out_of_the_root_is_no_project_of_the_tenants(tmp_path: Path) -> None:
    (tmp_path / "projects").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "projects" / "mine").symlink_to(tmp_path / "other")
    with pytest.raises(Fault) as caught:
        Roots(["projects"]).project(Caller("default", "alice"), tmp_path, str(tmp_path / "projects" / "mine"))
    assert caught.value.kind is Kind.DENIED
