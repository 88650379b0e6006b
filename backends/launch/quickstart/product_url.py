"""Parses the URLs of product pages."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from backends.launch.quickstart.vocabulary import FAMILIES, URL_PLATFORMS
from gateway.errors import Fault, Kind

_SITES: Final = frozenset(f"{name}.aspose.org" for name in ("products", "docs", "kb", "reference", "blog"))
_LOCALE: Final = re.compile(r"[a-z]{2}(-[a-z]{2,4})?")
_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class ProductPage:
    """The fields of a product page URL."""

    site: str
    family: str
    locale: str
    platform: str


def parse(url: str) -> ProductPage:
    """Parse the URL of a product page. Raises `INVALID_URL` or `UNSUPPORTED_SITE`."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError as exc:
        raise invalid_url() from exc
    if parts.scheme != "https" or not host or port is not None or parts.username or parts.query or parts.fragment:
        raise invalid_url()
    if host not in _SITES:
        raise Fault(
            Kind.INVALID_INPUT,
            "Quick starts do not support this site.",
            code="UNSUPPORTED_SITE",
            details={"supported_sites": sorted(_SITES)},
        )
    return _parse_path(host, [part for part in parts.path.lower().split("/") if part])


def _parse_path(host: str, parts: list[str]) -> ProductPage:
    blog = host.startswith("blog.")
    locale = "en"
    if blog and parts and parts[0] not in FAMILIES and _LOCALE.fullmatch(parts[0]):
        locale, parts = parts[0], parts[1:]
    elif not blog and len(parts) >= 2:
        locale, parts = parts[1], [parts[0], *parts[2:]]
    is_complete = len(parts) == 2 or (len(parts) == 3 and not host.startswith(("products.", "reference.")))
    if not is_complete or not all(_SLUG.fullmatch(part) for part in parts) or not _LOCALE.fullmatch(locale):
        raise invalid_url()
    family, platform = parts[0], URL_PLATFORMS.get(parts[1])
    if family not in FAMILIES or platform is None:
        raise invalid_url()
    return ProductPage(host, family, locale, platform)


def invalid_url() -> Fault:
    return Fault(Kind.INVALID_INPUT, "The URL is not the URL of a product page.", code="INVALID_URL")
