"""A separate database for each test, and a fixture that runs code in another process."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest

import gateway
from gateway.state.database import Database

ROOT = Path(gateway.__file__).parents[1]


@pytest.fixture
async def database(tmp_path: Path, database_url: str | None) -> AsyncGenerator[Database, None]:
    opened = await Database.open(tmp_path / "data", database_url)
    yield opened
    await opened.close()


@pytest.fixture
async def second_database(
    database: Database, tmp_path: Path, database_url: str | None
) -> AsyncGenerator[Database, None]:
    opened = await Database.open(tmp_path / "data", database_url)
    yield opened
    await opened.close()


RunInProcess = Callable[[str, Path], Awaitable[str]]


@pytest.fixture
def run_in_process(database_url: str | None) -> RunInProcess:
    """Run the body of an `async def main(folder, url)` in another process and return its output."""

    async def run(body: str, folder: Path) -> str:
        indented = "\n".join(f"    {line}" for line in body.splitlines())
        script = f"import asyncio, sys\nfrom pathlib import Path\nasync def main(folder, url):\n{indented}\n"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            script + "asyncio.run(main(Path(sys.argv[1]), sys.argv[2] or None))",
            str(folder),
            database_url or "",
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()

    return run
