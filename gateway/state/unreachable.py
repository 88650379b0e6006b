"""What the settings name and nobody answers at, when a gateway or a command starts."""

from urllib.parse import urlsplit

from gateway.errors import Fault, Kind


class Unreachable(Fault):
    """The database or the bus cannot be opened. `setting` names it; `where` and `why` are for the operator alone."""

    def __init__(self, setting: str, url: str, message: str, cause: BaseException) -> None:
        super().__init__(Kind.UNAVAILABLE, message, retry_after=1.0)
        self.setting = setting
        self.where = host_and_port(url)
        self.why = type(cause).__name__


def host_and_port(url: str) -> str:
    """Of an address that may hold a password, what may be shown; empty where that is not certain."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        return ""  # a password with a slash in it: nothing says where it ends
    if host is None:
        return parts.path if parts.scheme == "unix" else ""
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"
