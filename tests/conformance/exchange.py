"""The context of one call, with an API for requests to the client that is the same in both eras.

In the handshake era a request is sent to the client and awaited. In the modern era the call ends with an
input-required result; its retry runs the handler again with the earlier answers, which `requestState` carries.
"""

import json
from typing import Any, Final, cast

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    InputResponseRequestParams,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from tests.conformance.subscribers import Subscribers

Json = dict[str, Any]
Context = ServerRequestContext[Any, Any]

_ANSWERS: Final[dict[str, type[ElicitResult] | type[CreateMessageResult] | type[ListRootsResult]]] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
}
_CAPABILITIES: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


class InputNeeded(Exception):
    """The call needs the client's answers to the requests in `result`."""

    def __init__(self, result: InputRequiredResult) -> None:
        super().__init__("input required")
        self.result = result


class Exchange:
    """Client requests, logging and notifications for the tools and prompts of the fixture."""

    def __init__(self, ctx: Context, params: InputResponseRequestParams, subscribers: Subscribers) -> None:
        self.ctx = ctx
        self.is_resumed = params.request_state is not None
        self.subscribers = subscribers
        self._answered = _earlier_answers(params.request_state)
        for key, answer in (params.input_responses or {}).items():
            self._answered[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    def has_capability(self, capability: str) -> bool:
        declared = self.ctx.session.client_capabilities or ClientCapabilities()
        return getattr(declared, capability) is not None

    def require(self, capability: str) -> None:
        if not self.has_capability(capability):
            raise MCPError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"The client did not declare {capability}.",
                {"requiredCapabilities": {capability: {}}},
            )

    async def request_input(self, requests: dict[str, InputRequest]) -> dict[str, InputResponse]:
        """Return the client's answers by key. Raises `InputNeeded` if answers are missing."""
        for request in requests.values():
            self.require(_CAPABILITIES[request.method])
        if not modern(self.ctx):
            return {key: await self._push(request) for key, request in requests.items()}
        answers = {key: self._answer(key, request) for key, request in requests.items()}
        missing = {key: requests[key] for key, answer in answers.items() if answer is None}
        if missing:
            answered = {key: value for key, value in self._answered.items() if key not in missing}
            raise InputNeeded(InputRequiredResult(input_requests=missing, request_state=json.dumps(answered)))
        return {key: answer for key, answer in answers.items() if answer is not None}

    async def elicit(self, key: str, message: str, schema: Json) -> ElicitResult:
        answers = await self.request_input({key: form(message, schema)})
        return cast("ElicitResult", answers[key])

    async def sample(self, key: str, prompt: str, max_tokens: int = 100) -> CreateMessageResult:
        answers = await self.request_input({key: sampling(prompt, max_tokens)})
        return cast("CreateMessageResult", answers[key])

    async def log(self, message: str) -> None:
        # Deprecated together with the capability, but the only method that honours the request's log level.
        await self.ctx.session.send_log_message("info", message, "fixture", self.ctx.request_id)  # pyright: ignore[reportDeprecated]

    async def _push(self, request: InputRequest) -> InputResponse:
        related = ServerMessageMetadata(related_request_id=self.ctx.request_id)
        return await self.ctx.session.send_request(request, _ANSWERS[request.method], metadata=related)

    def _answer(self, key: str, request: InputRequest) -> InputResponse | None:
        try:
            return _ANSWERS[request.method].model_validate(self._answered.get(key))
        except ValidationError:
            return None


def modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def form(message: str, schema: Json) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(prompt: str, max_tokens: int = 100) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(text=prompt))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=max_tokens))


def roots() -> ListRootsRequest:
    return ListRootsRequest()


def _earlier_answers(state: str | None) -> Json:
    """Return the answers of earlier rounds. Trailing data is ignored: only the host's seal detects tampering."""
    if state is None:
        return {}
    try:
        return json.JSONDecoder().raw_decode(state)[0]
    except json.JSONDecodeError as exc:
        raise MCPError(INVALID_PARAMS, "Unknown requestState") from exc
