"""The Connect page: configuration for each MCP client, ready to copy."""

from gateway.console import connect_lines
from gateway.console.components import card, copyable
from gateway.console.html import Html, h, markup
from gateway.console.page import ConsolePage, PageRequest


async def connect(request: PageRequest) -> ConsolePage:
    at = request.query.get("at", "/mcp")
    paths = list(request.sources.endpoints())
    chosen = at if at in paths else "/mcp"
    url, name = f"{request.sources.public_url}{chosen}", _entry_name(chosen)
    links = (
        h.a(path, href=request.url("connect", at=path), aria_current="true" if path == chosen else None)
        for path in paths
    )
    body = markup(
        h.h1("Connect a client"),
        h.p(
            "Clients need only the endpoint URL. They register themselves and open a browser to sign in and consent.",
            class_="lead",
        ),
        h.nav(links, class_="tabs", aria_label="Endpoint") if len(paths) > 1 else None,
        card("Endpoint URL", copyable(url, "endpoint URL"), id="address"),
        h.div(
            _client_card(
                "Claude Code", "Run in a terminal", connect_lines.claude_code(url, name), "command for Claude Code"
            ),
            _client_card("Cursor", "Add to ~/.cursor/mcp.json", connect_lines.cursor(url, name), "entry for Cursor"),
            _client_card("VS Code", "Run in a terminal", connect_lines.vs_code(url, name), "command for VS Code"),
            _client_card(
                "Other clients",
                "Without a browser, with a key from gatehouse key create",
                connect_lines.with_key(url, name),
                "entry with an API key",
            ),
            class_="cards",
        ),
    )
    return ConsolePage("Connect", body, "connect")


def _client_card(title: str, where: str, text: str, label: str) -> Html:
    return card(title, h.p(where, class_="dim"), copyable(text, label))


def _entry_name(path: str) -> str:
    """Each endpoint gets its own entry name, so a client can hold several."""
    return f"gatehouse-{path.removeprefix('/mcp/')}" if path != "/mcp" else "gatehouse"
