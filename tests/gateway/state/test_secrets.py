import os
import stat
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from gateway.errors import Fault, Kind
from gateway.state.secrets import load_secret
from tests.deploy.kubelet import mount


def test_secret_is_created_once_with_mode_0600(tmp_path: Path) -> None:
    secret = load_secret(tmp_path / "data", "pepper")
    assert len(secret) == 32
    assert load_secret(tmp_path / "data", "pepper") == secret
    assert load_secret(tmp_path / "data", "sessions") != secret
    assert stat.S_IMODE((tmp_path / "data/pepper").stat().st_mode) == 0o600
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["pepper", "sessions"]


async def test_other_processes_read_the_same_bytes(
    run_in_process: Callable[[str, Path], Awaitable[str]], tmp_path: Path
) -> None:
    body = 'from gateway.state.secrets import load_secret\nprint(load_secret(folder, "pepper").hex())'
    assert await run_in_process(body, tmp_path) == load_secret(tmp_path, "pepper").hex() + "\n"


def test_concurrent_creation_returns_the_same_bytes(tmp_path: Path) -> None:
    racers = 8
    for turn in range(20):
        start = Barrier(racers)

        def race(name: str, start: Barrier = start) -> bytes:
            start.wait()
            return load_secret(tmp_path, name)

        with ThreadPoolExecutor(racers) as pool:
            assert len(set(pool.map(race, [f"secret-{turn}"] * racers))) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o700, 0o666])
def test_secret_accessible_to_others_is_rejected(tmp_path: Path, mode: int) -> None:
    load_secret(tmp_path, "pepper")
    os.chmod(tmp_path / "pepper", mode)
    with pytest.raises(Fault, match="Set its mode to 0600") as caught:
        load_secret(tmp_path, "pepper")
    assert caught.value.kind is Kind.UNAVAILABLE


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_secret_of_wrong_size_is_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pepper").write_bytes(content)
    os.chmod(tmp_path / "pepper", 0o600)
    with pytest.raises(Fault, match="not 32 bytes"):
        load_secret(tmp_path, "pepper")


def test_symbolic_link_is_rejected(tmp_path: Path) -> None:
    load_secret(tmp_path, "target")
    (tmp_path / "pepper").symlink_to("target")
    with pytest.raises(Fault, match="cannot be read or created"):
        load_secret(tmp_path, "pepper")


def test_kubernetes_mount_is_read_and_its_replacement_too(tmp_path: Path) -> None:
    mount(tmp_path, {"pepper": b"1" * 32, "seal": b"2" * 32})
    assert load_secret(tmp_path, "pepper") == b"1" * 32
    assert load_secret(tmp_path, "seal") == b"2" * 32
    mount(tmp_path, {"pepper": b"3" * 32})
    assert load_secret(tmp_path, "pepper") == b"3" * 32


@pytest.mark.parametrize("mode", [0o444, 0o644, 0o460, 0o604, 0o640])
def test_mounted_secret_readable_by_others_or_writable_is_rejected(tmp_path: Path, mode: int) -> None:
    mount(tmp_path, {"pepper": b"1" * 32}, mode)
    with pytest.raises(Fault, match=r"Set its mode to 0440 or 0400"):
        load_secret(tmp_path, "pepper")


def test_secret_missing_from_a_mount_is_rejected_by_name(tmp_path: Path) -> None:
    mount(tmp_path, {"pepper": b"1" * 32})
    (tmp_path / "seal").symlink_to("..data/seal")
    with pytest.raises(Fault, match="seal cannot be read or created"):
        load_secret(tmp_path, "seal")


@pytest.mark.parametrize("version", ["elsewhere", "../elsewhere", "..", "/etc"])
def test_mount_that_links_outside_its_folder_is_rejected(tmp_path: Path, version: str) -> None:
    folder = tmp_path / "secrets"
    mount(folder, {"pepper": b"1" * 32})
    for outside in (tmp_path, tmp_path / "elsewhere", folder / "elsewhere"):
        outside.mkdir(exist_ok=True)
        (outside / "pepper").write_bytes(b"2" * 32)
        (outside / "pepper").chmod(0o400)
    (folder / "..data").unlink()
    (folder / "..data").symlink_to(version)
    with pytest.raises(Fault, match="links outside its folder"):
        load_secret(folder, "pepper")


def test_link_inside_a_mount_is_not_followed(tmp_path: Path) -> None:
    mount(tmp_path, {"pepper": b"1" * 32})
    file = tmp_path / "..data" / "pepper"
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(Fault, match="cannot be read or created"):
        load_secret(tmp_path, "pepper")


def test_name_that_could_leave_the_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(Fault) as caught:
        load_secret(tmp_path / "data", "../pepper")
    assert caught.value.kind is Kind.INVALID_INPUT
    assert list(tmp_path.iterdir()) == []
