"""A virtual display for one engine: Xvfb with software rendering, which only that engine can use."""

import asyncio
import os
import secrets
import shutil
import struct
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from backends.godot.engine.sandbox import Sandbox
from gateway.errors import Fault, Kind

_START_SECONDS: Final = 15
_COOKIE_NAME: Final = b"MIT-MAGIC-COOKIE-1"
_ANY_HOST: Final = 0xFFFF
SCREEN: Final = "1920x1080x24"
RENDERING: Final = (
    "--rendering-method",
    "gl_compatibility",
    "--rendering-driver",
    "opengl3",
    "--audio-driver",
    "Dummy",
)
"""Engine arguments for rendering in software."""


def is_available() -> bool:
    return shutil.which("Xvfb") is not None


@asynccontextmanager
async def virtual_display(home: Path) -> AsyncGenerator[dict[str, str], None]:
    """Start a display and yield the variables with which an engine uses it.

    Raises `Fault(UNSUPPORTED)` without Xvfb.
    """
    program = shutil.which("Xvfb")
    if program is None:
        raise Fault(
            Kind.UNSUPPORTED,
            "A picture needs a display, and this machine has no virtual one.",
            suggested_fix="Ask your operator to install Xvfb (package xvfb) with Mesa's software rendering.",
        )
    cookie = home / "tmp" / f"display-{secrets.token_hex(6)}"
    cookie.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    cookie.touch(mode=0o600)
    cookie.write_bytes(_authority(secrets.token_bytes(16)))
    reading, writing = os.pipe()
    process = None
    try:
        # Only a client with the cookie is let in: other games run as the same user. The launcher ends the display
        # when the gateway dies.
        options = ("-screen", "0", SCREEN, "-nolisten", "tcp", "-noreset", "-auth", str(cookie))
        command = (program, "-displayfd", str(writing), *options)
        process = await asyncio.create_subprocess_exec(
            *Sandbox().wrap_command(command, home, home),
            env={"PATH": os.defpath, "HOME": str(home)},
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        writing = -1
        number = await _display_number(reading)
        yield {"DISPLAY": f":{number}", "XAUTHORITY": str(cookie)}
    finally:
        for handle in (reading, writing):
            if handle >= 0:
                os.close(handle)
        if process is not None:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
        cookie.unlink(missing_ok=True)


async def _display_number(handle: int) -> int:
    try:
        async with asyncio.timeout(_START_SECONDS):
            text = await asyncio.to_thread(os.read, handle, 16)
    except TimeoutError as exc:
        raise Fault(Kind.TIMEOUT, "The virtual display did not start.") from exc
    if not text.strip().isdigit():
        raise Fault(Kind.INTERNAL, "The virtual display did not start.")
    return int(text)


def _authority(cookie: bytes) -> bytes:
    """Return an Xauthority file with one entry for every host and display."""
    fields = (b"", b"", _COOKIE_NAME, cookie)
    return struct.pack(">H", _ANY_HOST) + b"".join(struct.pack(">H", len(field)) + field for field in fields)
