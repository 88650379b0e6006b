"""Checks of this machine: ports, folders, disk space, open files and secrets. The checks change nothing."""

import errno
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx

from gateway.cli.doctor.finding import DoctorFinding, failed, passed, warning
from gateway.errors import Fault
from gateway.runner import bind
from gateway.settings import Settings, is_loopback
from gateway.state.secrets import load_secret

_MIN_FREE_BYTES: Final = 512 * 1024 * 1024
_OTHER_OPEN_FILES: Final = 200
"""Open files besides client connections: databases, pipes, sockets to backends."""


def ports(settings: Settings) -> Iterator[DoctorFinding]:
    server = settings.server
    yield _port("server.port", server.host, server.port)
    if server.ops_port is not None:
        yield _port("server.ops_port", server.host, server.ops_port)
    if not is_loopback(server.host) and "public_url" not in server.model_fields_set:
        yield failed(
            "server.public_url",
            f"is not set, so clients are directed to {server.public_url}",
            "set it to the URL that clients use, such as https://mcp.example.org",
        )
    elif not is_loopback(server.host) and server.public_url.startswith("http://"):
        yield warning(
            "server.public_url",
            f"{server.public_url} is not encrypted, and most clients refuse to sign in over plain HTTP",
            "terminate TLS in a proxy and set its https:// URL here",
        )


def _port(setting: str, host: str, port: int) -> DoctorFinding:
    where = f"{host}:{port}"
    variable = f"GATEHOUSE__{setting.upper().replace('.', '__')}"
    try:
        bind(host, port).close()
    except OSError as exc:
        match exc.errno:
            case errno.EADDRINUSE if _is_gateway(host, port):
                return passed(setting, f"a gateway already serves {where}")
            case errno.EADDRINUSE:
                return failed(
                    setting, f"{where} is in use by another program", f"choose another port: {setting}, or {variable}"
                )
            case errno.EACCES:
                return failed(setting, f"no permission to listen on {where}", f"choose a port above 1023: {setting}")
            case errno.EADDRNOTAVAIL:
                return failed(
                    setting, f"{host} is not an address of this machine", "set server.host to 127.0.0.1 or 0.0.0.0"
                )
            case _:
                return failed(setting, f"cannot listen on {where}: {exc.strerror or exc}", "correct server.host")
    return passed(setting, f"{where} is free")


def _is_gateway(host: str, port: int) -> bool:
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    address = f"[{reached}]" if ":" in reached else reached
    try:
        answer = httpx.get(f"http://{address}:{port}/healthz", timeout=2, trust_env=False)
        return answer.status_code == 200 and answer.json() == {"status": "ok"}
    except (httpx.HTTPError, ValueError):
        return False


def folders(settings: Settings) -> Iterator[DoctorFinding]:
    for setting, folder in (("data_dir", settings.data_dir), ("files_dir", settings.files_dir)):
        yield _folder(setting, folder)
    yield _disk_space(settings.data_dir)


def _folder(setting: str, folder: Path) -> DoctorFinding:
    shown = folder.absolute()
    if not folder.exists():
        parent = _nearest_existing(folder)
        if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
            return passed(setting, f"{shown} will be created")
        return failed(setting, f"{shown} cannot be created", f"create it for the user of the gateway, or set {setting}")
    if not folder.is_dir():
        return failed(setting, f"{shown} is not a folder", f"remove that file, or set {setting} to a folder")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return failed(setting, f"{shown} is not writable", f"chown it to the user of the gateway, or set {setting}")
    if setting == "data_dir" and folder.stat().st_mode & 0o077:
        return warning(setting, f"{shown} is accessible to other users", f"chmod 700 {shown}")
    return passed(setting, f"{shown}")


def _nearest_existing(folder: Path) -> Path:
    """The closest parent folder that exists."""
    return next(parent for parent in folder.absolute().parents if parent.exists())


def _disk_space(folder: Path) -> DoctorFinding:
    free = shutil.disk_usage(folder if folder.exists() else _nearest_existing(folder)).free
    shown = f"{free / 2**30:.1f} GiB free for data_dir"
    return (
        passed("disk", shown)
        if free >= _MIN_FREE_BYTES
        else warning("disk", shown, "free disk space, or move data_dir")
    )


def open_files(settings: Settings) -> DoctorFinding:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.server.max_connections + _OTHER_OPEN_FILES
    if allowed == resource.RLIM_INFINITY or allowed >= needed:
        return passed("open files", f"{allowed} allowed")
    return warning(
        "open files",
        f"{allowed} allowed, but server.max_connections is {settings.server.max_connections}",
        f"ulimit -n {needed} (LimitNOFILE= in a systemd unit), or lower server.max_connections",
    )


def secrets(settings: Settings) -> Iterator[DoctorFinding]:
    folder = settings.data_dir / "secrets"
    names = sorted(path.name for path in folder.glob("[a-z]*")) if folder.is_dir() else []
    if not names:
        yield passed("secrets", "will be created at the first start")
    for name in names:
        try:
            load_secret(folder, name)
        except Fault as fault:
            path = (folder / name).absolute()
            unsafe = "others" in fault.message
            yield failed(
                f"secrets/{name}",
                fault.message.rstrip("."),
                f"chmod 600 {path}; replace the secret if others may have read it"
                if unsafe
                else f"restore {path} from your backup; without it, keys or sessions become invalid",
            )
        else:
            yield passed(f"secrets/{name}", "valid and private")
    if not names and settings.database.url is not None:
        yield warning(
            "secrets",
            "none exist yet, and all machines must share the same secrets",
            f"copy secrets/ from the first machine to {folder.absolute()}",
        )
