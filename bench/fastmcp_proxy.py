"""A peer: FastMCP's own proxy in front of the server behind it. Run by the Python of its own environment."""

import sys

from fastmcp.server import create_proxy

if __name__ == "__main__":
    port, behind = int(sys.argv[1]), int(sys.argv[2])
    proxy = create_proxy(f"http://127.0.0.1:{behind}/mcp", name="proxy")
    settings = {"access_log": False, "log_level": "warning"}
    proxy.run(transport="http", port=port, json_response=True, show_banner=False, uvicorn_config=settings)
