"""Fixtures that run the commands of the documents: shells with `gatehouse` on the PATH, and gateways."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from tests.prerequisites import skip_or_fail
from tests.repo.command_server import CLIENT
from tests.repo.documents import README, ROOT, blocks, find_block

TIMEOUT = 60
"""Maximum seconds of one block of a document: ten times the CPU time of the longest one."""


@dataclass(frozen=True)
class Terminal:
    """A shell in one folder, for the commands of a document."""

    folder: Path
    environment: dict[str, str]

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self._shell(text), **self._options(), stdout=subprocess.PIPE, timeout=TIMEOUT)

    @contextmanager
    def serve(self, text: str) -> Iterator["Served"]:
        """Run a command that serves a gateway until the block ends; yields once it has printed its URL and key."""
        options = {**self._options(), "stdout": subprocess.PIPE, "start_new_session": True}
        with subprocess.Popen(self._shell(text), **options) as process:
            try:
                assert process.stdout is not None
                base, key = _read_address_and_key(process.stdout)
                credentials = {"GATEHOUSE_TOKEN": key, "GATEHOUSE_URL": f"{base}/mcp"}
                yield Served(Terminal(self.folder, self.environment | credentials), base)
            finally:
                os.killpg(process.pid, signal.SIGTERM)

    def _shell(self, text: str) -> list[str]:
        return ["bash", "-euo", "pipefail", "-c", text]

    def _options(self) -> dict[str, Any]:
        return {"cwd": self.folder, "env": self.environment, "text": True}


def _read_address_and_key(lines: IO[str]) -> tuple[str, str]:
    """Return the base URL and the API key that a first start prints."""
    output = ""
    for line in lines:
        output += line
        if found := re.search(r"serves (http://\S+)/mcp\b.*\b(gth_[\w-]+)", output, re.DOTALL):
            return found[1], found[2]
    raise AssertionError(f"the gateway ended with this output: {output!r}")


@dataclass(frozen=True)
class Served:
    """A running gateway, and a terminal with its key in the environment."""

    terminal: Terminal
    base: str

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run a command with the documented URL replaced by that of this gateway."""
        return self.terminal.run(text.replace("http://127.0.0.1:8080", self.base))


@pytest.fixture(scope="session")
def needs() -> Callable[..., None]:
    """Return a check that skips the test, or fails it if skipping is forbidden, when a program is missing."""

    def check(*programs: str) -> None:
        for program in programs:
            if shutil.which(program) is None:
                skip_or_fail(f"{program} is not installed")

    return check


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for PATH that contains the `gatehouse` command."""
    folder = tmp_path_factory.mktemp("command")
    path = folder / "socket"
    client = folder / "gatehouse"
    client.write_text(CLIENT.format(python=sys.executable, socket=str(path)), "utf-8")
    client.chmod(0o755)
    server = [sys.executable, "-m", "tests.repo.command_server", str(path)]
    with subprocess.Popen(server, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield folder
        finally:
            os.killpg(process.pid, signal.SIGTERM)


@pytest.fixture(scope="session")
def terminal(command: Path, needs: Callable[..., None]) -> Callable[[Path], Terminal]:
    needs("bash", "curl")
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("GATEHOUSE")}
    path = os.pathsep.join([str(command), str(Path(sys.executable).parent), clean["PATH"]])
    environment = {**clean, "PATH": path, "GATEHOUSE__SERVER__PORT": "0", "COLUMNS": "120"}
    return lambda folder: Terminal(folder, environment)


@pytest.fixture(scope="session")
def gateways(
    terminal: Callable[[Path], Terminal], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Served]]:
    """Start the gateways of the README by name: `words` in its own folder, for any other name that of `make run`."""
    with ExitStack() as stack:
        started: dict[str, Served] = {}

        def named(name: str) -> Served:
            name = name if name in {block.name for block in blocks(README, "serve")} else "make run"
            if name not in started:
                folder = tmp_path_factory.mktemp("folder")
                if name != "make run":
                    for file in ("words.py", "gatehouse.yaml"):
                        (folder / file).write_text(find_block(README, "file", file).text, "utf-8")
                # The last step of `make run`.
                text = "gatehouse serve" if name == "make run" else find_block(README, "serve", name).text
                started[name] = stack.enter_context(terminal(folder).serve(text))
            return started[name]

        yield named
