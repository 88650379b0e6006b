"""`gatehouse import` imports the servers of a client's file, as docs/import.md shows."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.peers import npm
from tests.repo.documents import ROOT, find_block
from tests.repo.test_readme import eventually

PAGE = ROOT / "docs" / "import.md"

# Replaces the network: `npx -y PACKAGE ARGS` runs a package that the tests have already installed.
NPX = """#!{python}
import os, sys
programs = {programs!r}
_, y, package, *args = sys.argv
assert y == "-y"
os.execv(programs[package][0], [*programs[package], *args])
"""


def test_three_servers_of_a_client_file_are_imported_and_answer_calls(
    terminal: Callable[[Path], Any], tmp_path: Path
) -> None:
    packages = (npm.FILESYSTEM, npm.MEMORY, npm.EVERYTHING)
    shims = tmp_path / "bin"
    shims.mkdir()
    npx = shims / "npx"
    programs = {package[0]: npm.command(package) for package in packages}
    npx.write_text(NPX.format(python=sys.executable, programs=programs))
    npx.chmod(0o755)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".mcp.json").write_text(find_block(PAGE, "file", ".mcp.json").text)
    (folder / "hello.txt").write_text("hello")
    shell = terminal(folder)
    shell = replace(shell, environment={**shell.environment, "PATH": f"{shims}{os.pathsep}{shell.environment['PATH']}"})
    first, second = find_block(PAGE, "shell", "import").text.splitlines()

    imported = shell.run(first)
    assert imported.stdout == find_block(PAGE, "says", "import").text
    with shell.serve(second) as served:
        expected = {"files_read_text_file", "memory_read_graph", "every-thing_echo"}
        eventually(
            lambda: expected <= {tool["name"] for tool in json.loads(served.run("gatehouse tools --json").stdout)}
        )
        read = served.run("""gatehouse call files_read_text_file '{"path": "hello.txt"}'""")
        assert read.stdout == "hello\n"
        assert served.run("""gatehouse call every-thing_echo '{"message": "hi"}'""").stdout == "Echo: hi\n"
        assert "entities" in served.run("gatehouse call memory_read_graph").stdout
