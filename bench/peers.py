"""Other gateways for comparison, enabled by `BENCH_PEERS=1`. Each is installed into its own virtual environment."""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.candidates import Candidate, Launch, StartError, upstream_command
from bench.wire import Era

_HERE = Path(__file__).parent
_ENVIRONMENTS = _HERE / "out" / "peers"
_INSTALL_LIMIT = 600
_ADMIN = "admin@bench.test"


def peers() -> tuple[Candidate, ...]:
    if os.environ.get("BENCH_PEERS") != "1":
        return ()
    contextforge = Candidate(
        "contextforge",
        "IBM ContextForge 2025-11-25",
        "handshake",
        "bench-echo",
        _contextforge,
        baseline="forward-handshake",
        start_limit=180.0,
    )
    eras: tuple[tuple[Era, str, str], ...] = (
        ("modern", "2026-07-28", "forward"),
        ("handshake", "2025-11-25", "forward-handshake"),
    )
    fastmcp = tuple(
        Candidate(f"fastmcp-{era}", f"FastMCP proxy {version}", era, "echo", _fastmcp(era), baseline=baseline)
        for era, version, baseline in eras
    )
    return (*fastmcp, contextforge)


def _fastmcp(era: Era) -> Callable[[Path, int], Launch]:
    def prepare(folder: Path, port: int) -> Launch:
        python = _environment("fastmcp", "fastmcp>=4.1", "uvloop", "httptools")
        upstream_port, argv = upstream_command(era)
        return Launch((str(python), str(_HERE / "fastmcp_proxy.py"), str(port), str(upstream_port)), upstreams=(argv,))

    return prepare


def _contextforge(folder: Path, port: int) -> Launch:
    """Prepare ContextForge with its fastest settings: memory cache, JSON responses, optional features off."""
    python = _environment("contextforge", "mcp-contextforge-gateway")
    upstream_port, argv = upstream_command("handshake")
    secret = secrets.token_urlsafe(48)
    env = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "BENCH_FOLDER": str(folder),
        "JWT_SECRET_KEY": secret,
        "AUTH_ENCRYPTION_SECRET": secret,
        "PLATFORM_ADMIN_EMAIL": _ADMIN,
        "PLATFORM_ADMIN_PASSWORD": secrets.token_urlsafe(24) + "aA1-",
        "DATABASE_URL": f"sqlite:///{folder}/contextforge.db",
        "CACHE_TYPE": "memory",
        "MCPGATEWAY_UI_ENABLED": "false",
        "MCPGATEWAY_ADMIN_API_ENABLED": "true",
        "SSRF_PROTECTION_ENABLED": "false",
        "PLUGINS_ENABLED": "false",
        "RATE_LIMITING_ENABLED": "false",
        "JSON_RESPONSE_ENABLED": "true",
        "LOG_LEVEL": "ERROR",
    }
    token = _token(python, env, secret)
    program = (str(python), str(_HERE / "contextforge_peer.py"), str(port), str(upstream_port), token)
    return Launch(program, key=token, upstreams=(argv,), env=env)


def _token(python: Path, env: dict[str, str], secret: str) -> str:
    argv = [str(python), "-m", "mcpgateway.utils.create_jwt_token", "--username", _ADMIN, "--admin", "--exp", "600"]
    try:
        completed = subprocess.run(
            [*argv, "--secret", secret], env=env, capture_output=True, text=True, timeout=120, check=True
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise StartError(f"contextforge could not create a token: {type(exc).__name__}") from exc
    return completed.stdout.strip().splitlines()[-1]


def _environment(name: str, *packages: str) -> Path:
    """Return the Python of a virtual environment with the packages; create it if needed. Raises `StartError`."""
    folder = _ENVIRONMENTS / name
    python, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists():
        return python
    uv = shutil.which("uv")
    try:
        if uv is not None:
            _run(uv, "venv", "--quiet", "--allow-existing", str(folder))
            _run(uv, "pip", "install", "--quiet", "--python", str(python), *packages)
        else:
            _run(sys.executable, "-m", "venv", str(folder))
            _run(str(python), "-m", "pip", "install", "--quiet", *packages)
    except (OSError, subprocess.SubprocessError) as exc:
        raise StartError(f"{name} could not be installed: {type(exc).__name__}") from exc
    ready.touch()
    return python


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, timeout=_INSTALL_LIMIT, stdout=subprocess.DEVNULL)
