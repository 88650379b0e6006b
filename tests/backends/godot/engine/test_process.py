"""A child process: bounded, killed in time with all it started, and told from what is no engine."""

import asyncio
from pathlib import Path

import pytest

from backends.godot.engine.process import Engine, environment, finish, version_of
from backends.godot.engine.sandbox import Walls
from backends.godot.options import Options
from gateway.errors import Fault, Kind


async def test_one_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/child; wait"
    with pytest.raises(Fault) as caught:
        await finish(["/bin/sh", "-c", script], tmp_path, tmp_path, 0.5, Walls())
    assert caught.value.kind is Kind.TIMEOUT
    child = Path("/proc") / (tmp_path / "child").read_text().strip()
    async with asyncio.timeout(5):
        while child.exists() and "State:\tZ" not in (child / "status").read_text():
            await asyncio.sleep(0.01)


async def test_endless_output_is_bounded_and_its_end_is_kept(tmp_path: Path) -> None:
    done = await finish(
        ["/bin/sh", "-c", "yes filler | head -c 3000000; echo the end"], tmp_path, tmp_path, 30, Walls()
    )
    assert done.code == 0
    assert len(done.out) < 1_000_000
    assert done.out.endswith("the end")


async def test_a_line_without_an_end_is_read_in_pieces(tmp_path: Path) -> None:
    done = await finish(
        ["/bin/sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x; exit 3"], tmp_path, tmp_path, 60, Walls()
    )
    assert done.code == 3


async def test_colours_and_control_characters_are_taken_out_of_what_it_says(tmp_path: Path) -> None:
    done = await finish(["/usr/bin/printf", r"\033[31mERROR: red\033[0m\a\ttab\r\n"], tmp_path, tmp_path, 30, Walls())
    assert done.out == "ERROR: red\ttab"


async def test_a_program_that_is_no_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Fault) as caught:
        await version_of(Path("/bin/true"), tmp_path, Walls())
    assert caught.value.kind is Kind.UNSUPPORTED


def test_an_empty_path_means_no_engine_and_a_wrong_one_is_none() -> None:
    for given in ("", "/no/such/godot"):
        engine = Engine(Options(godot_path=given))
        assert not engine.present
        with pytest.raises(Fault) as caught:
            engine.program()
        assert caught.value.kind is Kind.UNSUPPORTED


def test_the_environment_holds_nothing_of_the_gateways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEHOUSE__SECRET", "hush")
    monkeypatch.setenv("DISPLAY", ":9")
    assert set(environment(tmp_path)) == {"HOME", "PATH", "LANG", "TMPDIR"}
    assert environment(tmp_path, windowed=True)["DISPLAY"] == ":9"
