"""What this machine gives: ports, folders, secrets, room. Nothing is made and nothing is changed."""

import errno
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx

from gateway.cli.doctor.finding import DoctorFinding, bad, good, warning
from gateway.errors import Fault
from gateway.runner import listen_at
from gateway.settings import Settings, is_loopback
from gateway.state.secrets import load_secret

_LEAST_ROOM: Final = 512 * 1024 * 1024
_FILES_BESIDE: Final = 200
"""Open files that are no connection: databases, pipes, sockets to backends."""


def ports(settings: Settings) -> Iterator[DoctorFinding]:
    server = settings.server
    yield _port("server.port", server.host, server.port)
    if server.ops_port is not None:
        yield _port("server.ops_port", server.host, server.ops_port)
    if not is_loopback(server.host) and "public_url" not in server.model_fields_set:
        yield bad(
            "server.public_url",
            f"is not set, so clients are sent to {server.public_url}",
            "set it to the address that clients use, such as https://mcp.example.org",
        )
    elif not is_loopback(server.host) and server.public_url.startswith("http://"):
        yield warning(
            "server.public_url",
            f"{server.public_url} is not encrypted, and most clients refuse to sign in there",
            "put a proxy with TLS in front and write its https:// address here",
        )


def _port(setting: str, host: str, port: int) -> DoctorFinding:
    where = f"{host}:{port}"
    variable = f"GATEHOUSE__{setting.upper().replace('.', '__')}"
    try:
        listen_at(host, port).close()
    except OSError as exc:
        match exc.errno:
            case errno.EADDRINUSE if _is_ours(host, port):
                return good(setting, f"a gateway serves {where} already")
            case errno.EADDRINUSE:
                return bad(setting, f"{where} is taken by another program", f"choose another: {setting}, or {variable}")
            case errno.EACCES:
                return bad(setting, f"{where} is not yours to open", f"choose one above 1023: {setting}")
            case errno.EADDRNOTAVAIL:
                return bad(
                    setting, f"{host} is not an address of this machine", "set server.host to 127.0.0.1 or 0.0.0.0"
                )
            case _:
                return bad(setting, f"{where} cannot be opened: {exc.strerror or exc}", "mend server.host")
    return good(setting, f"{where} is free")


def _is_ours(host: str, port: int) -> bool:
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
    yield _room(settings.data_dir)


def _folder(setting: str, folder: Path) -> DoctorFinding:
    shown = folder.absolute()
    if not folder.exists():
        above = _nearest(folder)
        if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
            return good(setting, f"{shown} will be made")
        return bad(setting, f"{shown} cannot be made", f"make it and give it to the gateway's user, or set {setting}")
    if not folder.is_dir():
        return bad(setting, f"{shown} is not a folder", f"move that file away, or set {setting} to a folder")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return bad(setting, f"{shown} cannot be written", f"chown it to the gateway's user, or set {setting}")
    if setting == "data_dir" and folder.stat().st_mode & 0o077:
        return warning(setting, f"{shown} may be entered by others", f"chmod 700 {shown}")
    return good(setting, f"{shown}")


def _nearest(folder: Path) -> Path:
    """The folder above it that there is."""
    return next(above for above in folder.absolute().parents if above.exists())


def _room(folder: Path) -> DoctorFinding:
    free = shutil.disk_usage(folder if folder.exists() else _nearest(folder)).free
    shown = f"{free / 2**30:.1f} GiB free for data_dir"
    return good("disk", shown) if free >= _LEAST_ROOM else warning("disk", shown, "make room, or move data_dir")


def open_files(settings: Settings) -> DoctorFinding:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.server.max_connections + _FILES_BESIDE
    if allowed == resource.RLIM_INFINITY or allowed >= needed:
        return good("open files", f"{allowed} allowed")
    return warning(
        "open files",
        f"{allowed} allowed, and server.max_connections is {settings.server.max_connections}",
        f"ulimit -n {needed} (LimitNOFILE= in a unit), or lower server.max_connections",
    )


def secrets(settings: Settings) -> Iterator[DoctorFinding]:
    folder = settings.data_dir / "secrets"
    there = sorted(path.name for path in folder.glob("[a-z]*")) if folder.is_dir() else []
    if not there:
        yield good("secrets", "will be made at the first start")
    for name in there:
        try:
            load_secret(folder, name)
        except Fault as fault:
            path = (folder / name).absolute()
            unsafe = "others" in fault.message
            yield bad(
                f"secrets/{name}",
                fault.message.rstrip("."),
                f"chmod 600 {path}; if others could read it, restore or replace it"
                if unsafe
                else f"restore {path} from your backup; without it, keys or sessions end",
            )
        else:
            yield good(f"secrets/{name}", "whole and private")
    if not there and settings.database.url is not None:
        yield warning(
            "secrets",
            "there are none, and several machines must have the same",
            f"copy secrets/ of the first one to {folder.absolute()}",
        )
