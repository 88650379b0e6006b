"""Value types of the settings, and helpers for reporting mistakes in them."""

import difflib
import ipaddress
import re
from collections.abc import Iterable
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from limits import parse_many as parse_rates
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from gateway.errors import Fault
from gateway.state.private_files import validate_name

Tree = dict[str, Any]
SettingPath = tuple[str | int, ...]
Problem = tuple[SettingPath, str]


def problems(*found: Problem) -> PydanticCustomError:
    """The error that a validator raises for several mistakes, each with its path below the validated section."""
    return PydanticCustomError("problems", "{problems}", {"problems": found})


def _web_address(text: str) -> str:
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid or "?" in text or "#" in text:
        raise ValueError("expected an address such as https://example.org, without query or fragment")
    return text.rstrip("/")


def rate(text: str) -> str:
    try:
        valid = len(parse_rates(text)) == 1
    except ValueError:
        valid = False
    if not valid:
        raise ValueError('expected a rate such as "600/minute"')
    return text


def is_loopback(host: str) -> bool:
    """Whether a server bound to `host` is reachable from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def http_address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _tenant_name(text: str) -> str:
    try:
        return validate_name(text, "tenant")
    except Fault as fault:
        raise ValueError(fault.message) from None


def _matching(pattern: str, expected: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"expected {expected}")
        return text

    return AfterValidator(check)


Namespace = Annotated[
    str, _matching("[a-z][a-z0-9-]{0,19}", "a lower-case letter, then at most 19 of a-z, 0-9 and hyphen")
]
TenantName = Annotated[str, AfterValidator(_tenant_name)]
ModuleName = Annotated[str, _matching(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?", "package.module[:attribute]")]
WebAddress = Annotated[str, AfterValidator(_web_address)]
Scope = Annotated[str, _matching(r"[!#-\[\]-~]{1,128}", "printable ASCII without spaces, quotes and backslashes")]
Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0)]
CallSeconds = Annotated[float, Field(gt=0, le=3600)]
Count = Annotated[int, Field(gt=0)]
Effect = Annotated[int, Field(ge=0, le=3)]
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off", ""})


def parse_flag(text: str) -> bool | None:
    """The value of an environment variable that is true or false; None if it is neither."""
    word = text.strip().lower()
    return word in _TRUE if word in _TRUE or word in _FALSE else None


def dotted_path(key_path: SettingPath) -> str:
    return ".".join(map(str, key_path)) or "settings"


def suggest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known name, or all of them."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known) or 'none'}"
