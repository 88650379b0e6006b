"""Public MCP servers whose tools the search benchmark uses. They are installed from npm and PyPI and really started.

Their definitions are read from the running servers; none is copied into the repository.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(sys.prefix) / "bench-servers"
_NODE: Final = Path(sys.prefix) / "bin" / "node"
_INSTALL_SECONDS: Final = 300


@dataclass(frozen=True)
class PublicServer:
    """A server by its namespace in the benchmark: the package, its version and how it is started."""

    package: str
    version: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    python: bool = False

    @property
    def folder(self) -> Path:
        return _FOLDER / self.package.replace("/", "-").replace("@", "")

    def command(self) -> tuple[str, list[str]]:
        """Install the package if needed; return the program and its arguments."""
        if self.python:
            program = self.folder / "bin" / self.package
            if not program.exists():
                _run([sys.executable, "-m", "venv", str(self.folder)])
                _run([str(self.folder / "bin" / "pip"), "install", "-q", f"{self.package}=={self.version}"])
            return str(program), list(self.args)
        binaries = self.folder / "node_modules" / ".bin"
        if not binaries.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            options = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
            _run(["npm", "install", *options, "--prefix", str(self.folder), f"{self.package}@{self.version}"])
        name = self.package.rpartition("/")[2]
        wanted = [name, f"mcp-{name}", "mcp", "playwright-mcp"]
        program = next(binaries / each for each in wanted if (binaries / each).exists())
        return str(_NODE if _NODE.exists() else "node"), [str(program.resolve()), *self.args]


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=_INSTALL_SECONDS, stdout=subprocess.DEVNULL, env={**os.environ})


_OFFICIAL: Final = "@modelcontextprotocol/server-"
SERVERS: Final[Mapping[str, PublicServer]] = {
    "everything": PublicServer(f"{_OFFICIAL}everything", "2026.8.31"),
    "files": PublicServer(f"{_OFFICIAL}filesystem", "2026.8.31", ("/tmp",)),
    "memory": PublicServer(f"{_OFFICIAL}memory", "2026.8.31"),
    "thinking": PublicServer(f"{_OFFICIAL}sequential-thinking", "2026.8.31"),
    "github": PublicServer(f"{_OFFICIAL}github", "2025.4.8", env={"GITHUB_PERSONAL_ACCESS_TOKEN": "none"}),
    "gitlab": PublicServer(f"{_OFFICIAL}gitlab", "2025.4.25", env={"GITLAB_PERSONAL_ACCESS_TOKEN": "none"}),
    "slack": PublicServer(f"{_OFFICIAL}slack", "2025.4.25", env={"SLACK_BOT_TOKEN": "none", "SLACK_TEAM_ID": "none"}),
    "maps": PublicServer(f"{_OFFICIAL}google-maps", "0.6.2", env={"GOOGLE_MAPS_API_KEY": "none"}),
    "brave": PublicServer(f"{_OFFICIAL}brave-search", "0.6.2", env={"BRAVE_API_KEY": "none"}),
    "playwright": PublicServer("@playwright/mcp", "0.0.83"),
    "notion": PublicServer("@notionhq/notion-mcp-server", "2.5.2", env={"NOTION_TOKEN": "none"}),
    "devtools": PublicServer("chrome-devtools-mcp", "1.11.0"),
    "supabase": PublicServer("@supabase/mcp-server-supabase", "0.13.0", ("--access-token", "sbp_none")),
    "mongodb": PublicServer("mongodb-mcp-server", "3.0.4"),
    "context7": PublicServer("@upstash/context7-mcp", "4.1.1"),
    "tavily": PublicServer("tavily-mcp", "0.2.22", env={"TAVILY_API_KEY": "none"}),
    "git": PublicServer("mcp-server-git", "2026.10.19", python=True),
    "fetch": PublicServer("mcp-server-fetch", "2026.10.24", python=True),
    "time": PublicServer("mcp-server-time", "2026.10.19", python=True),
    "sqlite": PublicServer("mcp-server-sqlite", "2025.4.25", ("--db-path", ":memory:"), python=True),
}
