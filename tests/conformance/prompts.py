"""The fixture's prompts, and the completion of their arguments."""

from typing import Final

from mcp import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    ContentBlock,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    TextContent,
)

from tests.conformance.content import embedded, image
from tests.conformance.exchange import Context, Exchange

_PROMPTS: Final = [
    Prompt(name="test_simple_prompt", description="One message."),
    Prompt(
        name="test_prompt_with_arguments",
        description="One message that holds both arguments.",
        arguments=[
            PromptArgument(name="arg1", description="First test argument", required=True),
            PromptArgument(name="arg2", description="Second test argument", required=True),
        ],
    ),
    Prompt(
        name="test_prompt_with_embedded_resource",
        description="A resource and what to do with it.",
        arguments=[PromptArgument(name="resourceUri", description="URI of the resource to embed", required=True)],
    ),
    Prompt(name="test_prompt_with_image", description="An image and what to do with it."),
    Prompt(name="test_input_required_result_prompt", description="Asks for its context first."),
]
_SUGGESTIONS: Final = ("paris", "park", "party")
_CONTEXT: Final = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}


async def list_prompts(ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
    return ListPromptsResult(prompts=_PROMPTS)


async def get_prompt(exchange: Exchange, params: GetPromptRequestParams) -> GetPromptResult:
    arguments = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return _messages(TextContent(text="This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            text = f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'"
            return _messages(TextContent(text=text))
        case "test_prompt_with_embedded_resource":
            resource = embedded(arguments.get("resourceUri", ""), "Embedded resource content for testing.")
            return _messages(resource, TextContent(text="Please process the embedded resource above."))
        case "test_prompt_with_image":
            return _messages(image(), TextContent(text="Please analyze the image above."))
        case "test_input_required_result_prompt":
            answer = await exchange.elicit("user_context", "What context should the prompt use?", _CONTEXT)
            return _messages(TextContent(text=f"Use this context: {(answer.content or {}).get('context')}"))
        case unknown:
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {unknown}")


async def complete(ctx: Context, params: CompleteRequestParams) -> CompleteResult:
    values = [value for value in _SUGGESTIONS if value.startswith(params.argument.value)]
    return CompleteResult(completion=Completion(values=values, total=len(values), has_more=False))


def _messages(*blocks: ContentBlock) -> GetPromptResult:
    return GetPromptResult(messages=[PromptMessage(role="user", content=block) for block in blocks])
