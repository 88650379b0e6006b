"""A newcomer's two terminals: a shell in which `gatehouse` is a command, and gateways started in it."""

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

from tests.missing import missing
from tests.repo.documents import README, ROOT, blocks, marked
from tests.repo.warm import CLIENT


@dataclass(frozen=True)
class Terminal:
    """Runs what a document says, in one folder."""

    folder: Path
    environment: dict[str, str]

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self._shell(text), **self._where(), stdout=subprocess.PIPE, timeout=30)

    @contextmanager
    def serving(self, text: str) -> Iterator["Served"]:
        """What runs until it is stopped; it has said its address and key."""
        with subprocess.Popen(self._shell(text), **self._where(), stdout=subprocess.PIPE, start_new_session=True) as it:
            try:
                assert it.stdout is not None
                base, key = _announced(it.stdout)
                told = {"GATEHOUSE_TOKEN": key, "GATEHOUSE_URL": f"{base}/mcp"}
                yield Served(Terminal(self.folder, self.environment | told), base)
            finally:
                os.killpg(it.pid, signal.SIGTERM)

    def _shell(self, text: str) -> list[str]:
        return ["bash", "-euo", "pipefail", "-c", text]

    def _where(self) -> dict[str, Any]:
        return {"cwd": self.folder, "env": self.environment, "text": True}


def _announced(lines: IO[str]) -> tuple[str, str]:
    """The address and the key that a first start says."""
    said = ""
    for line in lines:
        said += line
        if found := re.search(r"serves (http://\S+)/mcp\b.*\b(gth_[\w-]+)", said, re.DOTALL):
            return found[1], found[2]
    raise AssertionError(f"it ended, having said: {said!r}")


@dataclass(frozen=True)
class Served:
    """A gateway, and the second terminal with its key at hand."""

    terminal: Terminal
    base: str

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        """As written, but for the address, which in a test is any free one."""
        return self.terminal.run(text.replace("http://127.0.0.1:8080", self.base))


@pytest.fixture(scope="session")
def needs() -> Callable[..., None]:
    """Skip, or fail where nothing may be skipped, when a program is missing."""

    def check(*programs: str) -> None:
        for program in programs:
            if shutil.which(program) is None:
                missing(f"{program} is not installed")

    return check


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for PATH in which `gatehouse` is the command."""
    folder = tmp_path_factory.mktemp("command")
    path = folder / "socket"
    client = folder / "gatehouse"
    client.write_text(CLIENT.format(python=sys.executable, socket=str(path)), "utf-8")
    client.chmod(0o755)
    warm = [sys.executable, "-m", "tests.repo.warm", str(path)]
    with subprocess.Popen(warm, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
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
    given = {**clean, "PATH": path, "GATEHOUSE__SERVER__PORT": "0", "COLUMNS": "120"}
    return lambda folder: Terminal(folder, given)


@pytest.fixture(scope="session")
def gateways(
    terminal: Callable[[Path], Terminal], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Served]]:
    """The gateways of the README, by name: `words` in its own folder, any other name the one of `make run`."""
    with ExitStack() as stack:
        started: dict[str, Served] = {}

        def named(name: str) -> Served:
            name = name if name in {block.name for block in blocks(README, "serve")} else "make run"
            if name not in started:
                folder = tmp_path_factory.mktemp("folder")
                if name != "make run":
                    for file in ("words.py", "gatehouse.yaml"):
                        (folder / file).write_text(marked(README, "file", file).text, "utf-8")
                # `make run` is this once the environment is made.
                text = "gatehouse serve" if name == "make run" else marked(README, "serve", name).text
                started[name] = stack.enter_context(terminal(folder).serving(text))
            return started[name]

        yield named
