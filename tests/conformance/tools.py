"""The fixture's tools; the suite defines their names and texts."""

from collections.abc import Callable
from typing import Any, Final, Protocol

import anyio
from mcp_types import (
    AudioContent,
    CallToolResult,
    CreateMessageResult,
    ElicitResult,
    InputRequest,
    TextContent,
    Tool,
)

from tests.conformance import schemas
from tests.conformance.content import WAV, embedded, image, text_result
from tests.conformance.exchange import Exchange, form, roots, sampling

Json = dict[str, Any]


class Handler(Protocol):
    __name__: str

    async def __call__(self, exchange: Exchange, arguments: Json, /) -> CallToolResult: ...


TOOLS: Final[dict[str, tuple[Tool, Handler]]] = {}
"""In definition order; the suite calls the first tool without arguments."""

_PAUSE: Final = 0.05
_NAME: Final = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_OK: Final = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
_COLOUR: Final = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}


def tool(description: str, schema: Json = schemas.NOTHING) -> Callable[[Handler], Handler]:
    """Register the function as a tool under its own name."""

    def register(handler: Handler) -> Handler:
        definition = Tool(name=handler.__name__, description=description, input_schema=schema)
        TOOLS[definition.name] = (definition, handler)
        return handler

    return register


# ---- content ------------------------------------------------------------------------------------------------------


@tool("One text block.")
async def test_simple_text(exchange: Exchange, arguments: Json) -> CallToolResult:
    return text_result("This is a simple text response for testing.")


@tool("One image.")
async def test_image_content(exchange: Exchange, arguments: Json) -> CallToolResult:
    return CallToolResult(content=[image()])


@tool("One sound.")
async def test_audio_content(exchange: Exchange, arguments: Json) -> CallToolResult:
    return CallToolResult(content=[AudioContent(data=WAV, mime_type="audio/wav")])


@tool("One embedded resource.")
async def test_embedded_resource(exchange: Exchange, arguments: Json) -> CallToolResult:
    return CallToolResult(content=[embedded("test://embedded-resource", "This is an embedded resource content.")])


@tool("A text, an image and a resource.")
async def test_multiple_content_types(exchange: Exchange, arguments: Json) -> CallToolResult:
    data = embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
    return CallToolResult(content=[TextContent(text="Multiple content types test:"), image(), data])


@tool("Always fails.")
async def test_error_handling(exchange: Exchange, arguments: Json) -> CallToolResult:
    message = "This tool intentionally returns an error for testing"
    return CallToolResult(content=[TextContent(text=message)], is_error=True)


@tool("Tool with JSON Schema 2020-12 features", schemas.DIALECT)
async def json_schema_2020_12_tool(exchange: Exchange, arguments: Json) -> CallToolResult:
    return text_result(f"Called with {arguments}")


@tool("Mirrors its argument into a header.", schemas.HEADER)
async def test_header_mirror(exchange: Exchange, arguments: Json) -> CallToolResult:
    return text_result(f"Region: {arguments['region']}")


# ---- while a call runs --------------------------------------------------------------------------------------------


@tool("Three log messages.")
async def test_tool_with_logging(exchange: Exchange, arguments: Json) -> CallToolResult:
    await exchange.log("Tool execution started")
    await anyio.sleep(_PAUSE)
    await exchange.log("Tool processing data")
    await anyio.sleep(_PAUSE)
    await exchange.log("Tool execution completed")
    return text_result("Tool with logging executed successfully")


@tool("One log message, for clients that requested logs.")
async def test_logging_tool(exchange: Exchange, arguments: Json) -> CallToolResult:
    await exchange.log("Only for clients that requested logs")
    return text_result("Logged")


@tool("Three steps of progress.")
async def test_tool_with_progress(exchange: Exchange, arguments: Json) -> CallToolResult:
    for progress in (0, 50, 100):
        await exchange.ctx.session.report_progress(progress, 100)
        await anyio.sleep(_PAUSE)
    return text_result("Tool with progress executed successfully")


@tool("Closes its stream before the result; the client must reconnect to receive it.")
async def test_reconnection(exchange: Exchange, arguments: Json) -> CallToolResult:
    if exchange.ctx.close_sse_stream is not None:
        await exchange.ctx.close_sse_stream()
        await anyio.sleep(2 * _PAUSE)
    return text_result("Reconnection test completed successfully")


@tool("Sends a notification that the list of tools has changed.")
async def test_trigger_tool_change(exchange: Exchange, arguments: Json) -> CallToolResult:
    await exchange.subscribers.notify_tools_changed()
    return text_result("Notified")


@tool("Sends a notification that the list of prompts has changed.")
async def test_trigger_prompt_change(exchange: Exchange, arguments: Json) -> CallToolResult:
    await exchange.subscribers.notify_prompts_changed()
    return text_result("Notified")


# ---- questions to the client --------------------------------------------------------------------------------------


@tool("Requests an answer from the client's model.", schemas.strings(prompt="The prompt to send to the LLM"))
async def test_sampling(exchange: Exchange, arguments: Json) -> CallToolResult:
    return text_result(f"LLM response: {_text_of(await exchange.sample('answer', arguments['prompt']))}")


@tool("Asks the user.", schemas.strings(message="The message to show the user"))
async def test_elicitation(exchange: Exchange, arguments: Json) -> CallToolResult:
    schema = schemas.strings(username="User's response", email="User's email address")
    answer = await exchange.elicit("user", arguments["message"], schema)
    return text_result(f"User response: action={answer.action}, content={answer.content}")


@tool("Asks the user with a default in every field.")
async def test_elicitation_sep1034_defaults(exchange: Exchange, arguments: Json) -> CallToolResult:
    return _completed(await exchange.elicit("defaults", "Please review the defaults", schemas.DEFAULTS))


@tool("Asks the user with every kind of choice.")
async def test_elicitation_sep1330_enums(exchange: Exchange, arguments: Json) -> CallToolResult:
    return _completed(await exchange.elicit("choices", "Please choose", schemas.ENUMS))


@tool("Asks the user while the response may be a stream.")
async def test_streaming_elicitation(exchange: Exchange, arguments: Json) -> CallToolResult:
    await exchange.ctx.session.report_progress(1, 2)
    return _completed(await exchange.elicit("confirm", "Please confirm", _OK))


@tool("Needs a client that can sample.")
async def test_missing_capability(exchange: Exchange, arguments: Json) -> CallToolResult:
    exchange.require("sampling")
    return text_result("The client can sample")


@tool("Asks for a name.")
async def test_input_required_result_elicitation(exchange: Exchange, arguments: Json) -> CallToolResult:
    return text_result(f"Hello, {_field(await exchange.elicit('user_name', 'What is your name?', _NAME), 'name')}!")


@tool("Asks the client's model.")
async def test_input_required_result_sampling(exchange: Exchange, arguments: Json) -> CallToolResult:
    return text_result(_text_of(await exchange.sample("capital_question", "What is the capital of France?")))


@tool("Asks for the client's roots.")
async def test_input_required_result_list_roots(exchange: Exchange, arguments: Json) -> CallToolResult:
    answers = await exchange.request_input({"client_roots": roots()})
    return text_result(f"Roots: {answers['client_roots'].model_dump_json(include={'roots'})}")


@tool("Reports whether its request state was returned.")
async def test_input_required_result_request_state(exchange: Exchange, arguments: Json) -> CallToolResult:
    await exchange.elicit("confirm", "Please confirm", _OK)
    return text_result("state-ok" if exchange.is_resumed else "no state")


@tool("Asks three things at once.")
async def test_input_required_result_multiple_inputs(exchange: Exchange, arguments: Json) -> CallToolResult:
    answers = await exchange.request_input(
        {
            "user_name": form("What is your name?", _NAME),
            "greeting": sampling("Generate a greeting", 50),
            "client_roots": roots(),
        }
    )
    return text_result(f"Answered: {', '.join(sorted(answers))}")


@tool("Asks one thing after another.")
async def test_input_required_result_multi_round(exchange: Exchange, arguments: Json) -> CallToolResult:
    name = _field(await exchange.elicit("step1", "Step 1: What is your name?", _NAME), "name")
    colour = _field(await exchange.elicit("step2", "Step 2: What is your favorite color?", _COLOUR), "color")
    return text_result(f"{name} likes {colour}")


@tool("Trusts its request state: the hosting server must reject a tampered one.")
async def test_input_required_result_tampered_state(exchange: Exchange, arguments: Json) -> CallToolResult:
    await exchange.elicit("confirm", "Please confirm", _OK)
    return text_result("Confirmed")


@tool("Asks only what the client can answer.")
async def test_input_required_result_capabilities(exchange: Exchange, arguments: Json) -> CallToolResult:
    possible: dict[str, InputRequest] = {}
    if exchange.has_capability("sampling"):
        possible["greeting"] = sampling("Generate a greeting", 50)
    if exchange.has_capability("elicitation"):
        possible["user_name"] = form("What is your name?", _NAME)
    answers = await exchange.request_input(possible)
    return text_result(f"Answered: {', '.join(sorted(answers))}")


def _text_of(answer: CreateMessageResult) -> str:
    return answer.content.text if isinstance(answer.content, TextContent) else f"({answer.content.type})"


def _field(answer: ElicitResult, name: str) -> str:
    return str((answer.content or {}).get(name, answer.action))


def _completed(answer: ElicitResult) -> CallToolResult:
    return text_result(f"Elicitation completed: action={answer.action}, content={answer.content}")
