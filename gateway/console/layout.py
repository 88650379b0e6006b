"""What every page has around it."""

import hashlib
from pathlib import Path
from typing import Final

from gateway.console.format import who
from gateway.console.html import Html, h, markup
from gateway.console.queries import ConsolePage, ConsoleQueries

_FOLDER: Final = Path(__file__).with_name("static")
TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
FILES: Final = {path.name: path.read_bytes() for path in _FOLDER.iterdir() if path.suffix in TYPES}
_MARKS: Final = {name: hashlib.sha256(body).hexdigest()[:12] for name, body in FILES.items()}

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

_LINKS: Final = (
    ("", "Overview"),
    ("calls", "Calls"),
    ("backends", "Backends"),
    ("tools", "Tools"),
    ("why", "Why"),
    ("connect", "Connect"),
)


def whole(look: ConsoleQueries, page: ConsolePage) -> str:
    """The page as it is sent."""
    live = h.button("Live", type="button", class_="live", id="live", aria_pressed="true") if page.live else None
    return _document(
        look.prefix,
        page.title,
        h.a("Skip to the content", href="#content", class_="skip"),
        h.header(
            h.a(_mark(), h.span("Gatehouse"), href=look.to(), class_="brand"),
            h.nav(
                (
                    h.a(name, href=look.to(*filter(None, (path,))), aria_current="page" if path == page.here else None)
                    for path, name in _LINKS
                ),
                aria_label="Pages",
            ),
            h.div(_tenants(look), live, _person(look), class_="who"),
        ),
        h.main(page.body, id="content", tabindex="-1", data_live=5 if page.live else None),
        h.footer(f"Gatehouse {look.sources.version}", h.span("read only", class_="dim")),
        h.p("", id="said", role="status", class_="unseen"),
    )


def alone(prefix: str, title: str, *body: Html) -> str:
    """A page for somebody who is not let in."""
    inside = h.main(
        h.p(_mark(), "Gatehouse", class_="brand"), h.div(*body, class_="card"), class_="alone", id="content"
    )
    return _document(prefix, title, inside)


def _document(prefix: str, title: str, *body: Html) -> str:
    head = markup(
        h.meta(charset="utf-8"),
        h.meta(name="viewport", content="width=device-width, initial-scale=1"),
        h.meta(name="color-scheme", content="light dark"),
        h.title(f"{title} · Gatehouse"),
        h.link(rel="stylesheet", href=_file(prefix, "console.css")),
        h.link(rel="icon", href=_file(prefix, "icon.svg"), type="image/svg+xml"),
        h.script(src=_file(prefix, "console.js"), defer=True),
    )
    return f"<!doctype html>{h.html(h.head(head), h.body(*body), lang='en')}"


def _file(prefix: str, name: str) -> str:
    """With its digest: a new version is another file."""
    return f"{prefix}/static/{name}?{_MARKS[name]}"


def _mark() -> Html:
    return h.svg(
        h.path(d="M4 22V9l8-6 8 6v13h-5v-7a3 3 0 0 0-6 0v7z"), viewBox="0 0 24 24", class_="mark", aria_hidden="true"
    )


def _tenants(look: ConsoleQueries) -> Html | None:
    """Only for those who may look at several."""
    if not look.everywhere:
        return h.span(look.tenant, class_="tenant", title="Your tenant")
    names = look.sources.tenants()
    if len(names) < 2 and look.tenant is None:
        return None
    options = [h.option("All tenants", value="")]
    options += [h.option(name, value=name, selected=name == look.tenant) for name in names]
    return h.form(
        h.label("Tenant", for_="tenant", class_="unseen"),
        h.select(options, id="tenant", name="tenant", data_submit=True),
        h.button("Show", class_="quiet"),
        method="get",
        action=look.prefix,
    )


def _person(look: ConsoleQueries) -> Html:
    if not look.signed_in:
        return h.span("no sign-in", class_="dim", title="auth.mode: none")
    return h.form(
        h.span(who(look.operator.principal), class_="dim"),
        h.button("Sign out", class_="quiet"),
        method="post",
        action=f"{look.prefix}/sign-out",
    )
