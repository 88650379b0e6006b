"""A newcomer's own servers come over with two commands, as the README shows."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.peers import npm
from tests.repo.documents import README, marked
from tests.repo.test_readme import eventually

# Stands in for the network: `npx -y PACKAGE ARGS` runs what the tests have installed already.
NPX = """#!{python}
import os, sys
programs = {programs!r}
_, y, package, *args = sys.argv
assert y == "-y"
os.execv(programs[package][0], [*programs[package], *args])
"""


def test_three_servers_of_a_clients_file_are_imported_started_and_answer(
    terminal: Callable[[Path], Any], tmp_path: Path
) -> None:
    packages = (npm.FILESYSTEM, npm.MEMORY, npm.EVERYTHING)
    shims = tmp_path / "bin"
    shims.mkdir()
    npx = shims / "npx"
    programs = {package[0]: npm.command(package) for package in packages}
    npx.write_text(NPX.format(python=sys.executable, programs=programs))
    npx.chmod(0o755)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / ".mcp.json").write_text(marked(README, "file", ".mcp.json").text)
    (folder / "hello.txt").write_text("hello")
    here = terminal(folder)
    here = replace(here, environment={**here.environment, "PATH": f"{shims}{os.pathsep}{here.environment['PATH']}"})
    first, second = marked(README, "shell", "import").text.splitlines()

    imported = here.run(first)
    assert imported.stdout == marked(README, "says", "import").text
    with here.serving(second) as served:
        wanted = {"files_read_text_file", "memory_read_graph", "every-thing_echo"}
        eventually(lambda: wanted <= {tool["name"] for tool in json.loads(served.run("gatehouse tools --json").stdout)})
        read = served.run("""gatehouse call files_read_text_file '{"path": "hello.txt"}'""")
        assert read.stdout == "hello\n"
        assert served.run("""gatehouse call every-thing_echo '{"message": "hi"}'""").stdout == "Echo: hi\n"
        assert "entities" in served.run("gatehouse call memory_read_graph").stdout
