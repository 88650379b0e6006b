"""One call and its way back to the client, the same to write for in both eras.

In the handshake era a question is pushed and awaited. In the modern one the call ends with it, and its retry runs the
handler again from the top with the answers so far, which `requestState` carries.
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

from tests.conformance.subscribers import Audience

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
    """The call cannot go on before the client has answered `result`."""

    def __init__(self, result: InputRequiredResult) -> None:
        super().__init__("input required")
        self.result = result


class Exchange:
    """What a tool or prompt of the fixture may do beside returning."""

    def __init__(self, ctx: Context, params: InputResponseRequestParams, audience: Audience) -> None:
        self.ctx = ctx
        self.resumed = params.request_state is not None
        self.audience = audience
        self._answered = _earlier(params.request_state)
        for key, answer in (params.input_responses or {}).items():
            self._answered[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    def can(self, capability: str) -> bool:
        declared = self.ctx.session.client_capabilities or ClientCapabilities()
        return getattr(declared, capability) is not None

    def require(self, capability: str) -> None:
        if not self.can(capability):
            raise MCPError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"The client did not declare {capability}.",
                {"requiredCapabilities": {capability: {}}},
            )

    async def ask(self, requests: dict[str, InputRequest]) -> dict[str, InputResponse]:
        """The client's answers by the same keys. Raises `InputNeeded` for those that are not there yet."""
        for request in requests.values():
            self.require(_CAPABILITIES[request.method])
        if not modern(self.ctx):
            return {key: await self._push(request) for key, request in requests.items()}
        answers = {key: self._answer(key, request) for key, request in requests.items()}
        missing = {key: requests[key] for key, answer in answers.items() if answer is None}
        if missing:
            kept = {key: value for key, value in self._answered.items() if key not in missing}
            raise InputNeeded(InputRequiredResult(input_requests=missing, request_state=json.dumps(kept)))
        return {key: answer for key, answer in answers.items() if answer is not None}

    async def elicit(self, key: str, message: str, schema: Json) -> ElicitResult:
        answers = await self.ask({key: form(message, schema)})
        return cast("ElicitResult", answers[key])

    async def sample(self, key: str, prompt: str, max_tokens: int = 100) -> CreateMessageResult:
        answers = await self.ask({key: sampling(prompt, max_tokens)})
        return cast("CreateMessageResult", answers[key])

    async def log(self, words: str) -> None:
        # Deprecated with the capability, and the only way that honours the request's own log level.
        await self.ctx.session.send_log_message("info", words, "fixture", self.ctx.request_id)  # pyright: ignore[reportDeprecated]

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


def _earlier(state: str | None) -> Json:
    """The answers of earlier rounds. What follows them is ignored: only the host's seal may refuse a tampered state."""
    if state is None:
        return {}
    try:
        return json.JSONDecoder().raw_decode(state)[0]
    except json.JSONDecodeError as exc:
        raise MCPError(INVALID_PARAMS, "Unknown requestState") from exc
