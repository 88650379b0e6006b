"""How clients connect: lines to copy."""

from gateway.console import connect_lines
from gateway.console.components import card, copyable
from gateway.console.html import Html, h, markup
from gateway.console.queries import ConsolePage, ConsoleQueries


async def connect(look: ConsoleQueries) -> ConsolePage:
    at = look.query.get("at", "/mcp")
    paths = list(look.sources.endpoints())
    chosen = at if at in paths else "/mcp"
    url, name = f"{look.sources.public_url}{chosen}", _name(chosen)
    links = (
        h.a(path, href=look.to("connect", at=path), aria_current="true" if path == chosen else None) for path in paths
    )
    body = markup(
        h.h1("Connect a client"),
        h.p(
            "Clients need the address only: they register themselves and open a browser, where you sign in and agree.",
            class_="lead",
        ),
        h.nav(links, class_="tabs", aria_label="Which address") if len(paths) > 1 else None,
        card("The address", copyable(url, "the address"), id="address"),
        h.div(
            _way("Claude Code", "In a terminal", connect_lines.claude_code(url, name), "the line for Claude Code"),
            _way("Cursor", "In ~/.cursor/mcp.json", connect_lines.cursor(url, name), "the entry for Cursor"),
            _way("VS Code", "In a terminal", connect_lines.vs_code(url, name), "the line for VS Code"),
            _way(
                "Any other",
                "Without a browser, with a key from gatehouse key create",
                connect_lines.with_key(url, name),
                "the entry with a key",
            ),
            class_="cards",
        ),
    )
    return ConsolePage("Connect", body, "connect")


def _way(title: str, where: str, text: str, label: str) -> Html:
    return card(title, h.p(where, class_="dim"), copyable(text, label))


def _name(path: str) -> str:
    """One entry for each address, told apart by its name."""
    return f"gatehouse-{path.removeprefix('/mcp/')}" if path != "/mcp" else "gatehouse"
