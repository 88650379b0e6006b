"""The two pages that a person sees, and the one when something is wrong: plain, without scripts or anything fetched.

Forms that only our own pages can have made: a token bound to the browser and to the very request it answers.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final
from urllib.parse import urlencode

from gateway.auth.server.clients import RegisteredClient
from gateway.auth.server.redirect_uris import form_target, is_loopback, shown_host

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#59636e;--line:#d1d9e0;--page:#f6f8fa;--card:#fff;--go:#1f6f43}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9198a1;--line:#3d444d;--page:#0d1117;--card:#151b23;
--go:#2f9e62}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:27rem;margin:8vh auto;padding:0 1rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:1.75rem}
.brand{font-weight:600;color:var(--dim);margin:0 0 1rem;text-align:center}
h1{font-size:1.3rem;line-height:1.3;margin:0 0 .75rem;overflow-wrap:anywhere}
p{margin:.6rem 0}.dim,li small{color:var(--dim);font-size:.9rem}.bad{color:#c1352b;font-weight:600}
dl{margin:1rem 0;border-top:1px solid var(--line)}
dl div{display:flex;gap:1rem;justify-content:space-between;padding:.55rem 0;border-bottom:1px solid var(--line)}
dt{color:var(--dim)}dd{margin:0;text-align:right;overflow-wrap:anywhere;font-weight:500}
ul{padding:0;margin:.5rem 0 1.25rem;list-style:none}li{padding:.35rem 0 .35rem 1.4rem;position:relative}
li:before{content:"\\2713";position:absolute;left:0;color:var(--go)}li small{display:block}
label{display:block;margin:.9rem 0 .3rem;font-weight:500}
input{width:100%;font:inherit;padding:.6rem .7rem;border:1px solid var(--line);border-radius:8px;
background:var(--page);color:inherit}
input.code{font-family:ui-monospace,monospace;letter-spacing:.1em}
button{font:inherit;font-weight:600;padding:.65rem 1rem;border-radius:8px;border:1px solid var(--line);cursor:pointer;
background:var(--card);color:inherit;width:100%}
button.go{background:var(--go);border-color:var(--go);color:#fff}
.row{display:flex;gap:.75rem;margin-top:1.25rem}form.again{margin-top:1rem;text-align:center}
form.again button{border:0;width:auto;padding:.2rem;color:var(--dim);font-weight:400;font-size:.9rem;background:none;
text-decoration:underline}
a{color:inherit}hr{border:0;border-top:1px solid var(--line);margin:1.5rem 0}
"""

_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

_MEANINGS: Final = {
    "mcp:list": ("See your tools", "their names and what they do"),
    "mcp:call": ("Use tools that read", "and those that can be repeated without harm"),
    "mcp:call:write": ("Use tools that change things", "in your name"),
    "mcp:admin": ("Administer this gateway", "tenants, keys and policies"),
    "bridge:roblox": ("Connect a Roblox Studio", "that your tools then work in"),
    "bridge:godot": ("Connect a Godot editor", "that your tools then work in"),
}


@dataclass(frozen=True, slots=True)
class HtmlPage:
    html: str
    form_targets: tuple[str, ...] = ()

    @property
    def headers(self) -> list[tuple[str, str]]:
        targets = " ".join(self.form_targets) or "'none'"
        policy = (
            f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; frame-ancestors 'none'; "
            f"form-action {targets}"
        )
        return [
            ("content-type", "text/html; charset=utf-8"),
            ("content-security-policy", policy),
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            # Not `no-referrer`: with it browsers send `Origin: null` from our own forms.
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
        ]


def sign_in(
    client: RegisteredClient, csrf: str, *, codes: bool, passwords: bool, bad: str | None = None, name: str = ""
) -> HtmlPage:
    """With a code from the console, a password, or either."""
    forms: list[str] = []
    if codes:
        forms.append(
            f'<form method="post">{_hidden(csrf, "code")}'
            '<label for="code">Code from the terminal</label>'
            '<input id="code" name="code" class="code" autocomplete="one-time-code" autocapitalize="characters" '
            'spellcheck="false" maxlength="16" required autofocus placeholder="XXXXX-XXXXX">'
            '<p class="dim">Gatehouse printed it when it started; '
            "<code>gatehouse user code</code> prints a new one.</p>"
            '<div class="row"><button class="go">Sign in</button></div></form>'
        )
    if passwords:
        focus = "" if codes else " autofocus"
        forms.append(
            f'<form method="post">{_hidden(csrf, "password")}'
            f'<label for="name">Name</label><input id="name" name="name" autocomplete="username" maxlength="200" '
            f'autocapitalize="none" spellcheck="false" required value="{escape(name)}"{focus}>'
            '<label for="password">Password</label><input id="password" name="password" type="password" '
            'autocomplete="current-password" maxlength="1024" required>'
            '<div class="row"><button class="go">Sign in</button></div></form>'
        )
    wrong = f'<p class="bad" role="alert">{escape(bad)}</p>' if bad else ""
    what = "is for those who look after this gateway." if client.own else "wants to use your tools."
    body = f"<h1>Sign in</h1><p><strong>{escape(client.name)}</strong> {what}</p>{wrong}{'<hr>'.join(forms)}"
    return HtmlPage(_page("Sign in", body), ("'self'",))


def consent(
    client: RegisteredClient, redirect_uri: str, scopes: Iterable[str], who: tuple[str, str], endpoint: str, csrf: str
) -> HtmlPage:
    """What is asked, by whom, and where the answer goes."""
    tenant, subject = who
    facts = [("Signed in as", subject if tenant == "default" else f"{subject} ({tenant})")]
    if client.document:
        facts.append(("Described at", client.document))
    facts.append(("Returns to", shown_host(redirect_uri)))
    facts.append(("For", endpoint))
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    asked = "".join(_scope(scope) for scope in scopes)
    warning = (
        '<p class="dim">It runs on this computer and says itself what it is called. '
        "Go on only if you have just started it.</p>"
        if is_loopback(redirect_uri)
        else ""
    )
    body = (
        f"<h1>Allow {escape(client.name)}?</h1>{warning}<dl>{rows}</dl><p>It would be able to:</p><ul>{asked}</ul>"
        f'<form method="post">{_hidden(csrf, "consent")}<div class="row">'
        '<button name="decision" value="deny">Deny</button>'
        '<button class="go" name="decision" value="allow">Allow</button></div></form>'
        f'<form method="post" class="again">{_hidden(csrf, "leave")}<button>Sign in as somebody else</button></form>'
    )
    return HtmlPage(_page("Allow access", body), ("'self'", form_target(redirect_uri)))


def problem(words: str, back: str = "") -> HtmlPage:
    """What is wrong; `back` is where the person may go on to, and is not taken without them."""
    body = f"<h1>This cannot go on</h1><p>{escape(words)}</p>"
    if back:
        host = escape(shown_host(back))
        body += (
            f'<p class="dim">You may close this page. The program wants you at <strong>{host}</strong>;'
            " go there only if you know it.</p>"
            f'<p><a href="{escape(back)}" rel="noreferrer">Go on to {host}</a></p>'
        )
    return HtmlPage(_page("Not possible", body))


def _scope(scope: str) -> str:
    title, more = _MEANINGS.get(scope, (scope, ""))
    return f"<li>{escape(title)}<small>{escape(more)} <code>{escape(scope)}</code></small></li>"


def _hidden(csrf: str, what: str) -> str:
    return f'<input type="hidden" name="csrf" value="{escape(csrf)}"><input type="hidden" name="what" value="{what}">'


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · Gatehouse</title><style>{_STYLE}</style></head>"
        f'<body><main><p class="brand">Gatehouse</p><div class="card">{body}</div></main></body></html>'
    )


Pairs = Sequence[tuple[str, str]]


class CsrfTokens:
    """`cookie` names what a browser that is not signed in is known by."""

    def __init__(self, key: bytes, *, secure: bool) -> None:
        self._key = key
        self.cookie = "__Host-gatehouse-form" if secure else "gatehouse-form"

    def secret(self, cookies: Mapping[str, str]) -> tuple[str, str | None]:
        """What binds the form to the browser, and the cookie to set where it is new."""
        known = cookies.get(self.cookie)
        if known and len(known) <= 64:
            return known, None
        fresh = secrets.token_urlsafe(24)
        return fresh, f"{self.cookie}={fresh}; Max-Age=3600"

    def token(self, secret: str, query: Pairs) -> str:
        text = f"{secret}\n{urlencode(query)}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def holds(self, token: str, secret: str | None, query: Pairs) -> bool:
        return secret is not None and hmac.compare_digest(token.encode(), self.token(secret, query).encode())
