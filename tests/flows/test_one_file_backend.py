"""A backend in one file: a plain MCP server beside `gatehouse.yaml`, and one setting."""

from pathlib import Path

from tests.flows.process import FILE, run, serving

SOURCE = '''\
from mcp.server import MCPServer

server = MCPServer("hello")


@server.tool()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"
'''


def test_it_is_served_listed_and_called_by_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(SOURCE)
    (tmp_path / FILE).write_text("backends:\n  hello: {module: hello}\n")
    # Elsewhere, to show that the file is found beside the settings and not in the working folder.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with serving(elsewhere, "--config", str(tmp_path / FILE)) as served:
        reach = ("--url", served.url, "--token", served.key)
        listed = run(tmp_path, "tools", *reach)
        assert (listed.returncode, listed.stderr) == (0, "")
        assert "hello_greet" in listed.stdout
        assert "Greet somebody." in listed.stdout
        called = run(tmp_path, "call", "hello_greet", '{"name": "Ada"}', *reach)
        assert (called.returncode, called.stdout, called.stderr) == (0, "Hello, Ada!\n", "")
