"""HTML pages of the accounts: the list, the connect page, and messages. They contain no scripts and load nothing."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

from gateway.accounts.store import AccountInfo

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#59636e;--line:#d1d9e0;--page:#f6f8fa;--card:#fff;--go:#1f6f43;
--bad:#c1352b}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9198a1;--line:#3d444d;--page:#0d1117;--card:#151b23;
--go:#2f9e62;--bad:#ff7b72}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:44rem;margin:6vh auto;padding:0 1rem}main.narrow{max-width:27rem}
.brand{font-weight:600;color:var(--dim);margin:0 0 1rem;display:flex;justify-content:space-between;gap:1rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:1.5rem;margin:0 0 1rem}
h1{font-size:1.4rem;line-height:1.3;margin:0 0 .5rem;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:0;overflow-wrap:anywhere}
p{margin:.5rem 0}.dim{color:var(--dim);font-size:.9rem}.bad{color:var(--bad);font-weight:600}
.good{color:var(--go);font-weight:600}
.head{display:flex;justify-content:space-between;align-items:center;gap:1rem;flex-wrap:wrap}
dl{margin:.75rem 0;border-top:1px solid var(--line)}
dl div{display:flex;gap:1rem;justify-content:space-between;padding:.5rem 0;border-bottom:1px solid var(--line)}
dt{color:var(--dim)}dd{margin:0;text-align:right;overflow-wrap:anywhere;font-weight:500}
label{display:block;margin:.9rem 0 .3rem;font-weight:500}
input{width:100%;font:inherit;padding:.6rem .7rem;border:1px solid var(--line);border-radius:8px;
background:var(--page);color:inherit}
button,a.button{font:inherit;font-weight:600;padding:.5rem 1rem;border-radius:8px;border:1px solid var(--line);
cursor:pointer;background:var(--card);color:inherit;text-decoration:none;display:inline-block}
button.go,a.go{background:var(--go);border-color:var(--go);color:#fff}
.row{display:flex;gap:.75rem;margin-top:1.25rem;flex-wrap:wrap}
table{width:100%;border-collapse:collapse;font-size:.9rem}th,td{text-align:left;padding:.4rem .5rem .4rem 0;
border-bottom:1px solid var(--line);overflow-wrap:anywhere}th{color:var(--dim);font-weight:500}
a{color:inherit}form{margin:0}.link{border:0;background:none;padding:0;font-weight:400;color:var(--dim);
text-decoration:underline}
"""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HEADERS: Final = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; frame-ancestors 'none'; "
        "form-action 'self'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # Not `no-referrer`: with it, browsers send `Origin: null` from the gateway's own forms.
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True, slots=True)
class AccountEntry:
    """One backend on the page, with the person's account there, if any."""

    backend: str
    host: str
    kind: str
    account: AccountInfo | None


def accounts_page(
    person: str, entries: Sequence[AccountEntry], csrf: str, others: Sequence[AccountInfo] = (), notice: str = ""
) -> str:
    """The list of a person's accounts; for an administrator also who else is connected."""
    cards = "".join(_card(entry, csrf) for entry in entries)
    if not entries:
        cards = '<div class="card"><p>No server here asks for an account of your own.</p></div>'
    message = f'<p class="good" role="status">{escape(notice)}</p>' if notice else ""
    intro = (
        '<p class="dim">Servers that act in your name use the accounts that you connect here. Only your own calls use '
        "them. The tokens are shown to no one.</p>"
    )
    return _page("Your accounts", f"<h1>Your accounts</h1>{message}{intro}{cards}{_others(others, csrf)}", person, csrf)


def connect_page(person: str, backend: str, facts: Sequence[tuple[str, str]], fields: str, csrf: str) -> str:
    """Asks before the person is sent to the server's own sign-in."""
    body = (
        f'<div class="card"><h1>Connect {escape(backend)}?</h1>{_facts(facts)}'
        '<p class="dim">Continue only if you have just asked for this. Calls that you make through this gateway will '
        "act in your name at that server.</p>"
        f'<form method="post">{_hidden(csrf)}{fields}<div class="row">'
        '<a class="button" href="/accounts">Cancel</a><button class="go">Connect</button></div></form></div>'
    )
    return _page(f"Connect {backend}", body, person, csrf, narrow=True)


def key_page(person: str, backend: str, host: str, help: str, csrf: str, error: str = "") -> str:
    """A form for a personal key."""
    alert = f'<p class="bad" role="alert">{escape(error)}</p>' if error else ""
    hint = f'<p class="dim">{escape(help)}</p>' if help else ""
    body = (
        f'<div class="card"><h1>Your key for {escape(backend)}</h1>{_facts([("Server", host)])}{alert}'
        f'<form method="post">{_hidden(csrf)}<label for="key">Key</label>'
        '<input id="key" name="key" type="password" autocomplete="off" maxlength="4096" required autofocus>'
        f'{hint}<div class="row"><a class="button" href="/accounts">Cancel</a>'
        '<button class="go">Save</button></div></form></div>'
    )
    return _page(f"Key for {backend}", body, person, csrf, narrow=True)


def leaving_page(url: str, host: str) -> str:
    """Sends the browser to the authorization server. A redirect would be refused: `form-action` covers its targets."""
    body = (
        f'<div class="card"><h1>Continue at {escape(host)}</h1><p>You are being sent to its sign-in.</p>'
        f'<div class="row"><a class="button go" href="{escape(url)}" rel="noreferrer">Continue</a></div></div>'
    )
    return _page("Continue", body, narrow=True, head=f'<meta http-equiv="refresh" content="0;url={escape(url)}">')


def message_page(title: str, message: str, *, is_error: bool = True) -> str:
    role = "alert" if is_error else "status"
    body = (
        f'<div class="card"><h1>{escape(title)}</h1><p role="{role}">{escape(message)}</p>'
        '<div class="row"><a class="button" href="/accounts">Your accounts</a></div></div>'
    )
    return _page(title, body, narrow=True)


def _card(entry: AccountEntry, csrf: str) -> str:
    name, account = escape(entry.backend), entry.account
    connect = "Enter key" if entry.kind == "key" else "Connect"
    if account is None:
        action = f'<a class="button go" href="/accounts/connect/{name}">{connect}</a>'
        return (
            f'<div class="card"><div class="head"><div><h2>{name}</h2><span class="dim">{escape(entry.host)} · '
            f"not connected</span></div>{action}</div></div>"
        )
    connected = account.state == "connected"
    status = '<span class="good">connected</span>' if connected else '<span class="bad">reconnect needed</span>'
    facts = [("Connected", _date(account.connected_at)), ("Last used", _date(account.used_at))]
    if entry.kind == "oauth":
        facts += [("Permissions", " ".join(account.scopes) or "as the server decides"), ("Issued by", account.issuer)]
    again = "" if connected else f'<a class="button go" href="/accounts/connect/{name}">Reconnect</a>'
    replace = f'<a class="button" href="/accounts/connect/{name}">Replace key</a>' if entry.kind == "key" else ""
    return (
        f'<div class="card"><div class="head"><div><h2>{name}</h2><span class="dim">{escape(entry.host)} · </span>'
        f"{status}</div></div>{_facts(facts)}"
        f'<div class="row">{again}{replace}<form method="post" action="/accounts/disconnect/{name}">{_hidden(csrf)}'
        "<button>Disconnect</button></form></div></div>"
    )


def _others(accounts: Sequence[AccountInfo], csrf: str) -> str:
    if not accounts:
        return ""
    rows = "".join(
        f"<tr><td>{escape(each.principal)}</td><td>{escape(each.backend)}</td><td>{escape(each.state)}</td>"
        f"<td>{_date(each.used_at)}</td><td>"
        f'<form method="post" action="/accounts/disconnect/{escape(each.backend)}">{_hidden(csrf)}'
        f'<input type="hidden" name="principal" value="{escape(each.principal)}">'
        '<button class="link">Disconnect</button></form></td></tr>'
        for each in accounts
    )
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("Principal", "Server", "Status", "Last used", ""))
    return (
        '<div class="card"><h2>Accounts of others</h2><p class="dim">Visible to administrators.</p>'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f"<dl>{rows}</dl>"


def _hidden(csrf: str) -> str:
    return f'<input type="hidden" name="csrf" value="{escape(csrf)}">'


def _date(timestamp: float | None) -> str:
    return "never" if timestamp is None else datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _page(title: str, body: str, person: str = "", csrf: str = "", *, narrow: bool = False, head: str = "") -> str:
    leave = ""
    if person:
        leave = (
            f'<span>{escape(person)} <form method="post" action="/accounts/sign-out">{_hidden(csrf)}'
            '<button class="link">Sign out</button></form></span>'
        )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{head}'
        f"<title>{escape(title)} · Gatehouse</title><style>{_STYLE}</style></head>"
        f'<body><main{" class=narrow" if narrow else ""}><div class="brand"><span>Gatehouse</span>{leave}</div>'
        f"{body}</main></body></html>"
    )
