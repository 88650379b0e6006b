"""Starts IBM ContextForge and registers the upstream server with it. Run by the Python of its own environment.

`contextforge_peer.py PORT UPSTREAM_PORT TOKEN`; settings come from environment variables, the database is in the
working folder.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path


def main(port: str, upstream_port: str, token: str) -> int:
    command = [str(Path(sys.executable).with_name("mcpgateway")), "--host", "127.0.0.1", "--port", port]
    gateway = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: gateway.terminate())
    while gateway.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
            break
        except OSError:
            time.sleep(0.2)
    entry = {"name": "bench", "url": f"http://127.0.0.1:{upstream_port}/mcp", "transport": "STREAMABLEHTTP"}
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/gateways", json.dumps(entry).encode(), headers)
    urllib.request.urlopen(request, timeout=30)
    return gateway.wait()


if __name__ == "__main__":
    os.chdir(os.environ["BENCH_FOLDER"])
    sys.exit(main(*sys.argv[1:4]))
