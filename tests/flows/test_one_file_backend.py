"""A backend in one file: a plain MCP server next to `gatehouse.yaml`, with one settings entry."""

from pathlib import Path

from tests.flows.process import FILE, run, serving

SOURCE = '''\
from mcp.server import MCPServer

server = MCPServer("hello")


@server.tool()
def greet(name: str) -> str:
    """Greet a person."""
    return f"Hello, {name}!"
'''


def test_single_file_backend_is_served_listed_and_called_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(SOURCE)
    (tmp_path / FILE).write_text("backends:\n  hello: {module: hello}\n")
    # Another working directory shows that the module is found next to the settings file.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with serving(elsewhere, "--config", str(tmp_path / FILE)) as served:
        reach = ("--url", served.url, "--token", served.key)
        listed = run(tmp_path, "tools", *reach)
        assert (listed.returncode, listed.stderr) == (0, "")
        assert "hello_greet" in listed.stdout
        assert "Greet a person." in listed.stdout
        called = run(tmp_path, "call", "hello_greet", '{"name": "Ada"}', *reach)
        assert (called.returncode, called.stdout, called.stderr) == (0, "Hello, Ada!\n", "")
