"""Backend that generates Hugo documentation pages from a product repository, validates them and opens a pull request.

Each launch is a run with a persistent state. The package exports the manifest and the MCP server of the tools.
"""

from pathlib import Path
from typing import Any

from backends.launch.errors import CODES, render_error
from backends.launch.options import Options
from gateway.contract import Host, Manifest

manifest = Manifest(
    codes=CODES,
    render_error=render_error,
    options=Options,
    uri_prefixes=("resource://run/",),
    effects={
        "launch_start_run": 2,
        "launch_start_run_from_product_url": 2,
        "launch_start_run_from_url": 2,
        "launch_start_run_from_github_repo_url": 2,
        "launch_get_status": 0,
        "launch_get_artifact": 0,
        "launch_validate": 1,
        "launch_fix_next": 2,
        "launch_resume": 1,
        "launch_cancel": 1,
        "launch_open_pr": 2,
        "launch_list_runs": 0,
        "get_run_telemetry": 0,
    },
    timeouts={
        "launch_start_run": 300,
        "launch_start_run_from_product_url": 300,
        "launch_start_run_from_url": 300,
        "launch_start_run_from_github_repo_url": 300,
        "launch_get_status": 5,
        "launch_get_artifact": 30,
        "launch_validate": 600,
        "launch_fix_next": 900,
        "launch_resume": 300,
        "launch_cancel": 10,
        "launch_open_pr": 300,
        "launch_list_runs": 10,
        "get_run_telemetry": 10,
    },
    tasks=("launch_start_run*", "launch_validate", "launch_fix_next", "launch_resume", "launch_open_pr"),
    migrations=Path(__file__).parent / "migrations",
    executor=True,
)


def server(host: Host) -> Any:
    """Return the MCP server of the launch tools."""
    # Imported here: worker processes import this package and do not need the MCP server.
    from backends.launch.mcp_server import launch_server

    return launch_server(host)
