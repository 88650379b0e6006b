"""HTML pages of the authorization server: sign-in, consent and error; and the CSRF tokens of their forms.

The pages contain no scripts and load nothing. A CSRF token is bound to the browser and to the authorization request.
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
from gateway.auth.server.redirect_uris import display_host, form_action_source, is_loopback
from gateway.contract.caller import ADMIN, APPROVE

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
details{margin-top:1rem}summary{cursor:pointer;color:var(--dim);font-size:.9rem}
a{color:inherit}hr{border:0;border-top:1px solid var(--line);margin:1.5rem 0}
"""

_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


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
            # Not `no-referrer`: with it, browsers send `Origin: null` from the gateway's own forms.
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
        ]


def sign_in_page(
    client: RegisteredClient, csrf: str, *, codes: bool, passwords: bool, error: str | None = None, name: str = ""
) -> HtmlPage:
    """Build the sign-in page with a code form, a password form, or both."""
    forms: list[str] = []
    if codes:
        forms.append(_code_form(csrf, _LOCAL_CODE, autofocus=True))
    if passwords:
        forms.append(_password_form(csrf, name, autofocus=not codes))
    alert = f'<p class="bad" role="alert">{escape(error)}</p>' if error else ""
    purpose = "requests access to your tools."
    if client.first_party:
        is_console = set(client.scopes) <= {ADMIN, APPROVE}
        purpose = "is for operators of this gateway." if is_console else "is a page of this gateway."
    body = f"<h1>Sign in</h1><p><strong>{escape(client.name)}</strong> {purpose}</p>{alert}{'<hr>'.join(forms)}"
    return HtmlPage(_page("Sign in", body), ("'self'",))


def provider_page(
    client: RegisteredClient,
    redirect_uri: str,
    scopes: Iterable[tuple[str, str, str]],
    endpoint: str,
    providers: Sequence[tuple[str, str]],
    csrf: str,
    *,
    passwords: bool,
    error: str | None = None,
    name: str = "",
) -> HtmlPage:
    """Build the consent page of a browser that is not signed in, with a button for each provider (name and label).

    It precedes every redirect to a provider: a provider that signs the user in silently would otherwise give any client
    access.
    """
    alert = f'<p class="bad" role="alert">{escape(error)}</p>' if error else ""
    verb = "Sign in with" if client.first_party else "Allow and sign in with"
    buttons = "".join(
        f'<div class="row"><button class="go" name="provider" value="{escape(provider)}">{verb} {escape(label)}'
        "</button></div>"
        for provider, label in providers
    )
    deny = "" if client.first_party else '<div class="row"><button name="decision" value="deny">Deny</button></div>'
    form = f'<form method="post">{_hidden_fields(csrf, "provider")}{buttons}{deny}</form>'
    if client.first_party:
        head = f"<h1>Sign in</h1><p><strong>{escape(client.name)}</strong> is for operators of this gateway.</p>"
    else:
        head = _request_summary(client, redirect_uri, scopes, endpoint, [])
    others = _password_form(csrf, name, autofocus=False) if passwords else ""
    code = f"<details><summary>Use a sign-in code</summary>{_code_form(csrf, _OPERATOR_CODE)}</details>"
    body = f"{head}{alert}{form}<hr>{others}{code}"
    title = "Sign in" if client.first_party else "Allow access"
    return HtmlPage(_page(title, body), ("'self'", *_form_targets(client, redirect_uri)))


def _form_targets(client: RegisteredClient, redirect_uri: str) -> tuple[str, ...]:
    return () if client.first_party else (form_action_source(redirect_uri),)


def leaving_page(label: str, url: str) -> HtmlPage:
    """Build the page that leads to a provider.

    It is a page and not a redirect of the form: browsers apply `form-action` to every further redirect of a form, and
    a provider may redirect to hosts that the gateway does not know.
    """
    address = escape(url)
    body = (
        f"<h1>Continue to {escape(label)}</h1>"
        f'<p><a href="{address}" rel="noreferrer">Continue if nothing happens.</a></p>'
    )
    refresh = f'<meta http-equiv="refresh" content="0;url={address}">'
    return HtmlPage(_page("Sign in", body, refresh))


def refused_page(message: str) -> HtmlPage:
    """Build the page for a user whom the provider or the rules refuse."""
    return HtmlPage(_page("Access refused", f"<h1>Access refused</h1><p>{escape(message)}</p>"))


def consent_page(
    client: RegisteredClient,
    redirect_uri: str,
    scopes: Iterable[tuple[str, str, str]],
    user: tuple[str, str],
    endpoint: str,
    csrf: str,
) -> HtmlPage:
    """Build the consent page: client, redirect target, endpoint and requested scopes (name, title and detail)."""
    tenant, subject = user
    facts = [("Signed in as", subject if tenant == "default" else f"{subject} ({tenant})")]
    body = (
        f"{_request_summary(client, redirect_uri, scopes, endpoint, facts)}"
        f'<form method="post">{_hidden_fields(csrf, "consent")}<div class="row">'
        '<button name="decision" value="deny">Deny</button>'
        '<button class="go" name="decision" value="allow">Allow</button></div></form>'
        f'<form method="post" class="again">{_hidden_fields(csrf, "leave")}<button>Use another account</button></form>'
    )
    return HtmlPage(_page("Allow access", body), ("'self'", form_action_source(redirect_uri)))


def error_page(message: str, continue_url: str = "") -> HtmlPage:
    """Build an error page. `continue_url` is shown as a link; there is no automatic redirect."""
    body = f"<h1>Authorization failed</h1><p>{escape(message)}</p>"
    if continue_url:
        host = escape(display_host(continue_url))
        body += (
            f'<p class="dim">You can close this page. The application asks to continue at <strong>{host}</strong>;'
            " do so only if you trust it.</p>"
            f'<p><a href="{escape(continue_url)}" rel="noreferrer">Continue to {host}</a></p>'
        )
    return HtmlPage(_page("Authorization failed", body))


def _request_summary(
    client: RegisteredClient,
    redirect_uri: str,
    scopes: Iterable[tuple[str, str, str]],
    endpoint: str,
    facts: Sequence[tuple[str, str]],
) -> str:
    published = [("Published by", client.document)] if client.document else []
    shown = [*facts, *published, ("Redirects to", display_host(redirect_uri)), ("Endpoint", endpoint)]
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in shown)
    permissions = "".join(_scope(*scope) for scope in scopes)
    warning = (
        '<p class="dim">This application runs on your computer, and its name is not verified. '
        "Continue only if you have just started it.</p>"
        if is_loopback(redirect_uri)
        else ""
    )
    return (
        f"<h1>Allow {escape(client.name)}?</h1>{warning}<dl>{rows}</dl><p>It will be able to:</p><ul>{permissions}</ul>"
    )


_LOCAL_CODE: Final = "Gatehouse prints a code when it starts. To get a new one, run <code>gatehouse user code</code>."
_OPERATOR_CODE: Final = (
    "For administrators, if the identity provider cannot be used. "
    "<code>gatehouse signin-code --admin</code> prints one on the gateway's machine."
)


def _code_form(csrf: str, hint: str, *, autofocus: bool = False) -> str:
    focus = " autofocus" if autofocus else ""
    return (
        f'<form method="post">{_hidden_fields(csrf, "code")}'
        '<label for="code">Code from the terminal</label>'
        '<input id="code" name="code" class="code" autocomplete="one-time-code" autocapitalize="characters" '
        f'spellcheck="false" maxlength="16" required{focus} placeholder="XXXXX-XXXXX">'
        f'<p class="dim">{hint}</p>'
        '<div class="row"><button class="go">Sign in</button></div></form>'
    )


def _password_form(csrf: str, name: str, *, autofocus: bool) -> str:
    focus = " autofocus" if autofocus else ""
    return (
        f'<form method="post">{_hidden_fields(csrf, "password")}'
        f'<label for="name">Name</label><input id="name" name="name" autocomplete="username" maxlength="200" '
        f'autocapitalize="none" spellcheck="false" required value="{escape(name)}"{focus}>'
        '<label for="password">Password</label><input id="password" name="password" type="password" '
        'autocomplete="current-password" maxlength="1024" required>'
        '<div class="row"><button class="go">Sign in</button></div></form>'
    )


def _scope(scope: str, title: str, detail: str) -> str:
    return f"<li>{escape(title)}<small>{escape(detail)} <code>{escape(scope)}</code></small></li>"


def _hidden_fields(csrf: str, what: str) -> str:
    return f'<input type="hidden" name="csrf" value="{escape(csrf)}"><input type="hidden" name="what" value="{what}">'


def _page(title: str, body: str, head: str = "") -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{head}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · Gatehouse</title><style>{_STYLE}</style></head>"
        f'<body><main><p class="brand">Gatehouse</p><div class="card">{body}</div></main></body></html>'
    )


Pairs = Sequence[tuple[str, str]]


class CsrfTokens:
    """Creates and verifies CSRF tokens. `cookie` is the name of the cookie for browsers that are not signed in."""

    def __init__(self, key: bytes, *, secure: bool) -> None:
        self._key = key
        self.cookie = "__Host-gatehouse-form" if secure else "gatehouse-form"

    def secret(self, cookies: Mapping[str, str]) -> tuple[str, str | None]:
        """Return the secret that binds a form to the browser, and the cookie to set if it is new."""
        known = cookies.get(self.cookie)
        if known and len(known) <= 64:
            return known, None
        secret = secrets.token_urlsafe(24)
        return secret, f"{self.cookie}={secret}; Max-Age=3600"

    def token(self, secret: str, query: Pairs) -> str:
        text = f"{secret}\n{urlencode(query)}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def verify(self, token: str, secret: str | None, query: Pairs) -> bool:
        return secret is not None and hmac.compare_digest(token.encode(), self.token(secret, query).encode())
