"""Starts FastMCP's proxy in front of the upstream server. Run by the Python of its own environment."""

import sys

from fastmcp.server import create_proxy

if __name__ == "__main__":
    port, upstream_port = int(sys.argv[1]), int(sys.argv[2])
    proxy = create_proxy(f"http://127.0.0.1:{upstream_port}/mcp", name="proxy")
    settings = {"access_log": False, "log_level": "warning"}
    proxy.run(transport="http", port=port, json_response=True, show_banner=False, uvicorn_config=settings)
