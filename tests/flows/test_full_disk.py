"""A full disk: calls that may write are refused, others go on, and everything recovers without a restart."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.flows.test_audit_intent import NOTES, error_kind


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a file system")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


async def readiness(gateway: Running) -> int:
    async with httpx.AsyncClient(verify=False) as http:
        return (await http.get(f"{gateway.base}/readyz")).status_code


async def test_threat_48_full_disk_refuses_writes_serves_reads_and_recovers(
    run: Any, tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "notes_module.py").write_text(NOTES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    async with run(small_disk, backends={"notes": {"module": "notes_module"}}) as gateway:
        assert not (await gateway.call("notes_write", {"text": "before"}))["result"].get("isError")
        assert await readiness(gateway) == 200
        filler = small_disk / "filler"
        fill(filler)
        refused = await call_until_refused(gateway)
        assert error_kind(refused) == "unavailable"
        assert "audit log cannot be written" in refused["result"]["content"][0]["text"]
        assert (await gateway.call("notes_read"))["result"]["content"][0]["text"] == "read"
        assert await readiness(gateway) == 503
        assert "Traceback" not in caplog.text
        filler.unlink()
        async with asyncio.timeout(10):
            while (await gateway.call("notes_write", {"text": "after"}))["result"].get("isError"):
                await asyncio.sleep(0.05)
        assert await readiness(gateway) == 200


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file:
        for size in (65536, 4096, 512):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


async def call_until_refused(gateway: Running) -> Any:
    """The pages that the log has allocated already take a few records."""
    async with asyncio.timeout(30):
        while not (answer := await gateway.call("notes_write", {"text": "during"}))["result"].get("isError"):
            pass
    return answer
