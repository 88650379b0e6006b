"""The fault for a database or bus that does not answer when the gateway or a command starts."""

from urllib.parse import urlsplit

from gateway.errors import Fault, Kind


class Unreachable(Fault):
    """The database or bus of `setting` cannot be opened. Show `address` and `reason` to operators only."""

    def __init__(self, setting: str, url: str, message: str, cause: BaseException) -> None:
        super().__init__(Kind.UNAVAILABLE, message, retry_after=1.0)
        self.setting = setting
        self.address = host_and_port(url)
        self.reason = type(cause).__name__


def host_and_port(url: str) -> str:
    """Return the host and port of a URL, without credentials. Returns "" when a password could leak."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        return ""  # a password with an unescaped delimiter: its end cannot be determined
    if host is None:
        return parts.path if parts.scheme == "unix" else ""
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"
