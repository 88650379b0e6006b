"""Takes screenshots of the built site with a headless Chromium that can reach nothing but the site."""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from backends.launch.gates.context import GateContext
from gateway.contract import Json

_TIMEOUT_SECONDS: Final = 60
_SIZE: Final = "1280,900"


def take(context: GateContext) -> None:
    """Write `screenshot_front.png` and `screenshot_reference.png`. Without a browser or a built site, do nothing."""
    browser = context.worker.limits.get("chromium")
    executable = shutil.which(str(browser)) if browser else None
    if executable is None or not context.public.is_dir():
        return
    with _serve(context.public) as base:
        for name, page in _pages(context.plan):
            if (context.public / page["url_path"].strip("/") / "index.html").is_file():
                image = _capture(executable, base + page["url_path"])
                if image:
                    context.worker.write_file(f"reports/{name}", image, name)


def _pages(plan: list[Json]) -> list[tuple[str, Json]]:
    found = [("screenshot_front.png", plan[0])]
    symbols = [page for page in plan if page["section"] == "reference" and page["outline"][0]["kind"] == "symbol"]
    richest = max(symbols, key=lambda page: min(8, len(page["outline"])), default=None)
    return [*found, ("screenshot_reference.png", richest)] if richest is not None else found


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def _serve(folder: Path) -> Generator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _capture(executable: str, url: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="launch-browser-") as folder:
        image = Path(folder) / "page.png"
        flags = [
            "--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-extensions", f"--user-data-dir={folder}/profile",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--window-size={_SIZE}",
            "--virtual-time-budget=4000", f"--screenshot={image}",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]  # fmt: skip
        try:
            subprocess.run(  # noqa: S603
                [executable, *flags, url],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
                env={"HOME": folder, "PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"},
            )
        except subprocess.TimeoutExpired:
            return b""
        return image.read_bytes() if image.is_file() else b""
