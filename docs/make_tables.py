"""Generates the tables within hand-written pages: `python docs/make_tables.py`.

A table is located between `<!-- table: NAME -->` and the next blank line.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from gateway.errors import TABLE

ROOT: Final = Path(__file__).resolve().parents[1]

THREATS: Final[Mapping[int, tuple[str, str]]] = {
    1: ("cross-tenant data access", "the tenant comes from the credential; every row and key is prefixed with it"),
    2: ("receiving another caller's response", "a response is bound to its exchange, never to a request id alone"),
    3: ("consent reused for another client", "consent per sign-in, bound to the browser and the request"),
    4: ("token passthrough to a backend", "backends receive the credentials of their entry, never the caller's"),
    5: ("token issued for another service", "the audience must be an endpoint of this gateway"),
    6: (
        "forged tokens: algorithm, key id, embedded keys",
        "ES256 and RS256 only; keys only from the issuer's own key set",
    ),
    7: ("expired tokens and streams", "30 s of leeway; streams end when their credential expires"),
    8: ("late revocation", "every process applies it within seconds; open streams end"),
    9: ("replayed codes and refresh tokens", "single use, enforced by the database; a replay revokes the family"),
    10: ("session hijacking", "session ids are sealed and bound to their principal; other callers get not found"),
    11: ("malicious web pages and DNS rebinding", "allow-lists of Host and Origin, checked before any other work"),
    12: ("Host header that changes the path", "only the parsed path selects the endpoint"),
    13: ("SSRF to private addresses", "every address is checked, and the connection uses the checked address"),
    14: ("path injection into REST backends", "there are no REST backends in this release"),
    15: ("parser differentials", "one strict parser; the checked message is the one forwarded"),
    16: ("headers that contradict the body", "rejected in 2026-07-28, ignored in earlier revisions"),
    17: ("hidden text in tool definitions", "such definitions are not listed; suspicious wording is logged"),
    18: ("tool definition changed after approval", "definitions are pinned by digest"),
    19: ("tool name spoofing", "the gateway assigns the namespace; look-alike names are not listed"),
    20: ("prompt injection in results", "results are size-limited, and cleaned if the backend entry enables it"),
    21: ("schemas that are expensive to validate", "a linear-time engine; references are never fetched"),
    22: ("regular expression denial of service", "user-supplied patterns never run in a backtracking engine"),
    23: ("oversized and deeply nested JSON", "limits on bytes, depth, keys and strings, checked before processing"),
    24: ("slow and excessive connections", "time and size limits for head, body, idle and read; caps per IP address"),
    25: ("unbounded streams", "caps per principal, tenant and process; slow readers are disconnected"),
    26: ("JSON-RPC batches", "rejected"),
    27: ("header injection through ids", "only plain ids are accepted, others are replaced"),
    28: ("log injection", "one line of escaped JSON per record"),
    29: ("secrets in logs, spans and errors", "redacted before writing; errors contain no exception text"),
    30: ("path traversal", "paths are resolved, then confined to their folder"),
    31: (
        "command injection",
        "only commands of the settings are run, without a shell, with a clean environment",
    ),
    32: (
        "idempotency key reused by another caller",
        "keys are bound to tenant, principal, tool and arguments",
    ),
    33: ("decompression bombs", "content encodings are rejected, and none are requested from upstreams"),
    34: ("timing attacks on keys", "equal work for unknown ids, constant-time comparison"),
    35: ("brute force", "failed credentials and registrations are rate-limited per IP address"),
    36: ("attacks through the sign-in pages", "exact redirects, escaped names, no scripts, no frames"),
    37: ("exposed operator interface", "its own scope, an optional separate port, no default secrets"),
    38: ("paths that bypass the checks", "one call path; every route is tested without a credential"),
    39: ("unavailable database", "authentication and authorization fail closed"),
    40: ("supply chain", "the image and the workflows are pinned by hash, and no lock file names a host"),
    41: (
        "one tenant makes a shared server unavailable",
        "a circuit breaker per tenant; that of the address needs evidence from two tenants or from the gateway's own"
        " probe",
    ),
    42: (
        "a changed tool definition takes effect unnoticed",
        "`catalogue.pins: deny`: definitions are compared before the first call to a started or reconnected server, and"
        " a change that one process reads is denied by all of them within a second",
    ),
    43: (
        "audit records removed with access to the database",
        "keyed hash chains, numbers per writer and anchors outside the database; `gatehouse audit verify` also reports"
        " records that a crash lost",
    ),
    44: (
        "a write that leaves no audit record",
        "a record is committed before a call that may write is sent; without it the call is refused",
    ),
    45: (
        "unknown names make the gateway flood a server with list requests",
        "only the backend that the name belongs to is read, calls join a read in progress, and a tenant whose name was"
        " not found has it read again only after ten seconds",
    ),
    46: (
        "one tenant slows down or breaks the calls of another",
        "limits, shares, queues and breakers per tenant; `make isolation` measures twenty ways to misbehave",
    ),
    47: ("metrics that name the tenants", "without a credential `/metrics` adds up all tenants"),
    48: (
        "a full disk",
        "calls that may write are refused with a clear message, others go on, `/readyz` says so; it recovers without"
        " a restart",
    ),
    50: (
        "mix-up of identity providers",
        "each provider has its own redirect address, the issuer of the redirect and of the ID token is checked",
    ),
    51: (
        "linking accounts by e-mail address",
        "an account is issuer and subject; an address is used only if the provider verified it, and never to link",
    ),
    52: (
        "confused deputy before an identity provider",
        "consent for each client precedes every redirect; state is single-use and bound to the browser's cookie",
    ),
    53: (
        "theft of a provider's tokens from the database",
        "sealed with AES-GCM and bound to their account; pending sign-ins are sealed with a value that is not stored",
    ),
    54: (
        "takeover through provisioning",
        "a SCIM token reaches the users of one tenant and one provider, and never local users or administrators",
    ),
    55: (
        "mix-up of authorization servers",
        "the issuer of the answer must be the one asked; codes go to its endpoint only; a redirect URI per backend",
    ),
    56: (
        "linking an account to the wrong person",
        "the state of the flow is sealed in a cookie of the browser and names the person who started it",
    ),
    57: (
        "theft of tokens from the vault",
        "sealed under a key per tenant, bound to their row and field; the master key is not in the database",
    ),
    58: (
        "consent phishing by the connect link",
        "a link works for one signed-in person only, and a page names the server before the redirect",
    ),
    59: (
        "tokens of accounts in logs, answers and files",
        "they exist in memory and sealed in the vault only; clients and logs never receive them",
    ),
    60: (
        "another caller reads, answers or cancels a task",
        "ids are sealed for their principal; content is encrypted in the database",
    ),
    61: (
        "work continues after access ended",
        "tasks of suspended tenants, revoked credentials and deleted users stop",
    ),
    62: (
        "another call runs than the one that was approved",
        "an approval is bound to tenant, caller, tool, arguments, definition and policy version; it is used once and"
        " expires",
    ),
    63: (
        "arguments that deceive an approver or a model",
        "approvers see all arguments, with hidden characters as escapes, or cannot approve; no MCP tool decides",
    ),
    64: (
        "approval by someone who may not approve",
        "only other users of the named group with the scope mcp:approve, which no MCP client gets; forms carry a token"
        " of the session",
    ),
    65: (
        "a virtual server taken for a boundary",
        "keys and tokens for one endpoint, policies, and rules in the entry of a backend hold at every endpoint",
    ),
    66: ("fixed argument overridden by a caller", "added by the gateway before validation; a call that sends it fails"),
    67: ("search that reveals hidden tools", "the index of a view has only what the caller's lists show"),
    68: (
        "arguments or the document of an API lead a request elsewhere",
        "path values are percent-encoded and dot segments refused, header values are printable ASCII, the address comes"
        " from the entry alone, and redirects are not followed",
    ),
    69: (
        "a caller sends or reads the credential of an API",
        "credentials and hop-by-hop headers are never arguments; the entry's credential goes to its own origin only and"
        " is removed from responses",
    ),
}
"""The threats of the security model and their mitigations."""


def errors() -> Iterator[str]:
    yield "| kind | HTTP | up to 2025-11-25 | 2026-07-28 | retryable | category |"
    yield "|---|---|---|---|---|---|"
    for kind, row in TABLE.items():
        retryable = "yes" if row.retryable else "no"
        yield f"| `{kind.value}` | {row.http} | {row.handshake} | {row.modern} | {retryable} | {row.category} |"


def threats() -> Iterator[str]:
    tested = tests_by_threat()
    yield "| threat | mitigation | tests |"
    yield "|---|---|---|"
    for number, (threat, mitigation) in THREATS.items():
        files = ", ".join(f"`{name}`" for name in tested.get(number, [])) or "no test yet"
        yield f"| **{number}** {threat} | {mitigation} | {files} |"


def tests_by_threat() -> dict[int, list[str]]:
    """Return the test files that contain a test named after each threat."""
    found: dict[int, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text("utf-8")
        if "test_threat_" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
                number := re.match(r"test_threat_0*(\d+)_", node.name)
            ):
                found.setdefault(int(number[1]), set()).add(path.relative_to(ROOT / "tests").as_posix())
    return {number: sorted(files) for number, files in found.items()}


TABLES: Final[Mapping[str, tuple[str, Callable[[], Iterator[str]]]]] = {
    "errors": ("errors.md", errors),
    "threats": ("security-model.md", threats),
}


def pages() -> dict[Path, str]:
    """Return each page with its tables regenerated."""
    rendered: dict[Path, str] = {}
    for name, (page, rows) in TABLES.items():
        path = ROOT / "docs" / page
        text = rendered.get(path) or path.read_text("utf-8")
        pattern = rf"(<!-- table: {name} -->\n\n)(?:\|[^\n]*\n)*"
        rendered[path], count = re.subn(pattern, lambda found, rows=rows: found[1] + "\n".join(rows()) + "\n", text)
        assert count == 1, f"{page} has no marker for the table {name}"
    return rendered


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
