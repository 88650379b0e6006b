"""`gatehouse tools` and `gatehouse call`: list and call the tools of any MCP endpoint of revision 2026-07-28."""

import json
from typing import Any, Final, cast

from rich.markup import escape
from rich.table import Table

from gateway.cli.failure import CALL_FAILED, CommandError
from gateway.cli.mcp_client import McpClient, RpcCallError, suggested_fixes, to_command_error
from gateway.cli.output import open_output
from gateway.cli.progress import ProgressBar
from gateway.contract import Json


def list_tools(url: str, token: str | None, as_json: bool) -> None:
    with McpClient(url, token) as client:
        try:
            tools = client.tools()
        except RpcCallError as exc:
            raise to_command_error(exc) from exc
    show(tools, as_json)


def show(tools: list[Json], as_json: bool) -> None:
    if as_json:
        print(json.dumps(tools, indent=2, ensure_ascii=False))
    else:
        _show(tools)


def _show(tools: list[Json]) -> None:
    # On a narrow terminal only the description is truncated: names must stay copyable.
    output = open_output()
    table = Table(box=None, pad_edge=False, expand=output.is_terminal)
    table.add_column("tool", no_wrap=True)
    table.add_column("effect", no_wrap=True)
    table.add_column("description", no_wrap=True, overflow="ellipsis", ratio=1)
    for tool in tools:
        table.add_row(escape(tool["name"]), _effect(tool), escape(_first_line(tool.get("description") or "")))
    output.print(table)


_EFFECTS: Final = ("read", "idempotent write", "write", "destructive")


def _effect(tool: Json) -> str:
    """The effect as the gateway and its policies see it; for another server, from its annotations."""
    meta: Json = tool.get("_meta") or {}
    effect: Any = meta.get("gatehouse/effect")
    if isinstance(effect, int) and 0 <= effect < len(_EFFECTS):
        return _EFFECTS[effect]
    hints: Json = tool.get("annotations") or {}
    return "read" if hints.get("readOnlyHint") else "write"


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else ""


def call(tool: str, arguments: str, url: str, token: str | None, as_json: bool, *, approve: bool = False) -> None:
    with McpClient(url, token) as client, ProgressBar(tool) as progress:
        try:
            result = client.call(tool, _object(arguments), progress.update, approved=approve)
        except RpcCallError as exc:
            if as_json:
                print(json.dumps({"error": exc.error}, indent=2, ensure_ascii=False))
            raise to_command_error(exc) from exc
    print(json.dumps(result, indent=2, ensure_ascii=False) if as_json else _text(result))
    if result.get("resultType") == "input_required":
        raise CommandError(f"{tool} requires input, which this command does not support; use an MCP client")
    if result.get("isError"):
        raise CommandError(f"{tool} failed; see the result above", *_fixes(_error(result)), code=CALL_FAILED)


def _fixes(error: Any) -> list[str]:
    """The suggested fix. For an approval that the caller may give, it is an option of this command."""
    if isinstance(error, dict) and cast("Json", error).get("kind") == "approval_required":
        details: Json = cast("Json", error).get("details") or {}
        if not details.get("approval_id"):
            return ["repeat the command with --approve to approve the call"]
    return suggested_fixes(error)


def _error(result: Json) -> Any:
    """The error object of a failed result."""
    structured: Json = result.get("structuredContent") or {}
    meta: Json = result.get("_meta") or {}
    return structured.get("error") or meta.get("gatehouse/error")


def _object(text: str) -> Json:
    try:
        arguments: Any = json.loads(text)
    except ValueError as exc:
        raise CommandError(
            f'arguments are not valid JSON: {exc}; write them as \'{{"name": "value"}}\'', code=2
        ) from exc
    if not isinstance(arguments, dict):
        raise CommandError('arguments must be a JSON object, such as \'{"name": "value"}\'', code=2)
    return cast("Json", arguments)


def _text(result: Json) -> str:
    return "\n".join(map(_block, result.get("content") or []))


def _block(block: Json) -> str:
    match block.get("type"):
        case "text":
            return block["text"]
        case "resource_link":
            return f"[resource {block.get('uri')}]"
        case "resource":
            inner = cast("Json", block.get("resource") or {})
            return f"[resource {inner.get('uri')}]"
        case kind:
            return f"[{kind}: use --json to show it]"
