"""The frame of every console page: document head, navigation, footer, and the security headers."""

import hashlib
from pathlib import Path
from typing import Final

from gateway.console.format import principal_name
from gateway.console.html import Html, h, markup
from gateway.console.page import ConsolePage, PageRequest

_FOLDER: Final = Path(__file__).with_name("static")
CONTENT_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FILES: Final = {path.name: path.read_bytes() for path in _FOLDER.iterdir() if path.suffix in CONTENT_TYPES}
_DIGESTS: Final = {name: hashlib.sha256(body).hexdigest()[:12] for name, body in FILES.items()}

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}

_NAV_LINKS: Final = (
    ("", "Overview"),
    ("calls", "Calls"),
    ("backends", "Backends"),
    ("tools", "Tools"),
    ("why", "Policy check"),
    ("approvals", "Approvals"),
    ("connect", "Connect"),
)


def render_page(request: PageRequest, page: ConsolePage) -> str:
    """Render a page with navigation, tenant selector and account."""
    live = h.button("Live", type="button", class_="live", id="live", aria_pressed="true") if page.live else None
    return _document(
        request.prefix,
        page.title,
        h.a("Skip to content", href="#content", class_="skip"),
        h.header(
            h.a(_logo(), h.span("Gatehouse"), href=request.url(), class_="brand"),
            h.nav(
                (
                    h.a(
                        name,
                        href=request.url(*filter(None, (path,))),
                        aria_current="page" if path == page.nav_path else None,
                    )
                    for path, name in _NAV_LINKS
                    if request.is_operator or path == page.nav_path
                ),
                aria_label="Pages",
            ),
            h.div(_tenant_selector(request), live, _account(request), class_="account"),
        ),
        h.main(page.body, id="content", tabindex="-1", data_live=5 if page.live else None),
        h.footer(
            f"Gatehouse {request.sources.version}",
            None if page.nav_path == "approvals" else h.span("Read-only", class_="dim"),
        ),
        h.p("", id="status", role="status", class_="sr-only"),
    )


def render_standalone(prefix: str, title: str, *body: Html) -> str:
    """Render a page without navigation, for errors and sign-out."""
    content = h.main(
        h.p(_logo(), "Gatehouse", class_="brand"), h.div(*body, class_="card"), class_="standalone", id="content"
    )
    return _document(prefix, title, content)


def _document(prefix: str, title: str, *body: Html) -> str:
    head = markup(
        h.meta(charset="utf-8"),
        h.meta(name="viewport", content="width=device-width, initial-scale=1"),
        h.meta(name="color-scheme", content="light dark"),
        h.title(f"{title} · Gatehouse"),
        h.link(rel="stylesheet", href=_static_url(prefix, "console.css")),
        h.link(rel="icon", href=_static_url(prefix, "icon.svg"), type="image/svg+xml"),
        h.script(src=_static_url(prefix, "console.js"), defer=True),
    )
    return f"<!doctype html>{h.html(h.head(head), h.body(*body), lang='en')}"


def _static_url(prefix: str, name: str) -> str:
    """The URL carries a digest, so browsers can cache the file forever."""
    return f"{prefix}/static/{name}?{_DIGESTS[name]}"


def _logo() -> Html:
    return h.svg(
        h.path(d="M4 22V9l8-6 8 6v13h-5v-7a3 3 0 0 0-6 0v7z"), viewBox="0 0 24 24", class_="logo", aria_hidden="true"
    )


def _tenant_selector(request: PageRequest) -> Html | None:
    """A selector for operators of several tenants; for others, the name of their tenant."""
    if not request.all_tenants:
        return h.span(request.tenant, class_="tenant", title="Your tenant")
    names = request.sources.tenants()
    if len(names) < 2 and request.tenant is None:
        return None
    options = [h.option("All tenants", value="")]
    options += [h.option(name, value=name, selected=name == request.tenant) for name in names]
    return h.form(
        h.label("Tenant", for_="tenant", class_="sr-only"),
        h.select(options, id="tenant", name="tenant", data_submit=True),
        h.button("Show", class_="quiet"),
        action=request.prefix,
    )


def _account(request: PageRequest) -> Html:
    if not request.signed_in:
        return h.span("no sign-in", class_="dim", title="auth.mode: none")
    return h.form(
        h.span(principal_name(request.operator.principal), class_="dim"),
        h.button("Sign out", class_="quiet"),
        method="post",
        action=f"{request.prefix}/sign-out",
    )
