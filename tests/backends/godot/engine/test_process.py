"""Engine processes: bounded output, timeouts, clean environment and version probing."""

import asyncio
from pathlib import Path

import pytest

from backends.godot.engine.process import Engine, build_environment, probe_version, run_to_completion
from backends.godot.engine.sandbox import Sandbox
from backends.godot.options import Options
from gateway.errors import Fault, Kind


async def test_process_that_times_out_is_killed_with_its_children(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/child; wait"
    with pytest.raises(Fault) as caught:
        await run_to_completion(["/bin/sh", "-c", script], tmp_path, tmp_path, 0.5, Sandbox())
    assert caught.value.kind is Kind.TIMEOUT
    child = Path("/proc") / (tmp_path / "child").read_text().strip()
    async with asyncio.timeout(5):
        while child.exists() and "State:\tZ" not in (child / "status").read_text():
            await asyncio.sleep(0.01)


async def test_output_is_bounded_and_its_end_is_kept(tmp_path: Path) -> None:
    result = await run_to_completion(
        ["/bin/sh", "-c", "yes filler | head -c 3000000; echo the end"], tmp_path, tmp_path, 30, Sandbox()
    )
    assert result.exit_code == 0
    assert len(result.stdout) < 1_000_000
    assert result.stdout.endswith("the end")


async def test_overlong_line_is_read_in_pieces(tmp_path: Path) -> None:
    result = await run_to_completion(
        ["/bin/sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x; exit 3"], tmp_path, tmp_path, 60, Sandbox()
    )
    assert result.exit_code == 3


async def test_colors_and_control_characters_are_removed_from_output(tmp_path: Path) -> None:
    result = await run_to_completion(
        ["/usr/bin/printf", r"\033[31mERROR: red\033[0m\a\ttab\r\n"], tmp_path, tmp_path, 30, Sandbox()
    )
    assert result.stdout == "ERROR: red\ttab"


async def test_program_that_is_not_godot_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(Fault) as caught:
        await probe_version(Path("/bin/true"), tmp_path, Sandbox())
    assert caught.value.kind is Kind.UNSUPPORTED


def test_empty_or_wrong_path_means_no_engine() -> None:
    for path in ("", "/no/such/godot"):
        engine = Engine(Options(godot_path=path))
        assert not engine.is_available
        with pytest.raises(Fault) as caught:
            engine.program()
        assert caught.value.kind is Kind.UNSUPPORTED


def test_environment_contains_no_variables_of_the_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEHOUSE__SECRET", "hush")
    monkeypatch.setenv("DISPLAY", ":9")
    assert set(build_environment(tmp_path)) == {"HOME", "PATH", "LANG", "TMPDIR"}
    assert build_environment(tmp_path, windowed=True)["DISPLAY"] == ":9"
