"""Models that draft sections: the calling client's own model by MCP sampling, or an OpenAI-compatible endpoint."""

import logging
from typing import Any, Protocol, cast

import httpx
from mcp import MCPError
from mcp.server.session import ServerSession
from mcp.types import ClientCapabilities, SamplingCapability, SamplingMessage, TextContent

from backends.launch.job import Job
from backends.launch.options import Options
from backends.launch.outbound import OutboundClients
from backends.launch.pipeline import MODEL_DRAFT
from backends.launch.writers.model_writer import SYSTEM
from gateway.contract import Json
from gateway.errors import Fault

log = logging.getLogger("gatehouse.launch")

_MAX_TOKENS = 1200
_ATTEMPTS = 2


class ModelClient(Protocol):
    """A model. `name` is recorded as the writer of its sections."""

    name: str

    async def complete(self, prompt: str) -> str | None:
        """Return the model's text, or None if it declines or cannot be reached."""
        ...


class SamplingClient:
    """The model of the client that made the call."""

    name = "sampling"

    def __init__(self, session: ServerSession) -> None:
        self._session = session

    @property
    def is_offered(self) -> bool:
        return self._session.check_client_capability(ClientCapabilities(sampling=SamplingCapability()))

    async def complete(self, prompt: str) -> str | None:
        message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        try:
            # Deprecated in the modern era, but the only request that clients of both eras answer.
            answer = await self._session.create_message(  # pyright: ignore[reportDeprecated]
                [message], max_tokens=_MAX_TOKENS, system_prompt=SYSTEM
            )
        except (Fault, MCPError) as exc:
            log.info("launch sampling: the client did not answer: %s", exc)
            return None
        content: Any = answer.content
        return content.text if isinstance(content, TextContent) else None


class EndpointClient:
    """A model behind an OpenAI-compatible endpoint."""

    name = "llm"

    def __init__(self, options: Options, outbound: OutboundClients) -> None:
        self._url = f"{(options.llm_base_url or '').rstrip('/')}/chat/completions"
        self._model = options.llm_model
        self._outbound = outbound
        self._key_env = options.llm_key_env

    async def complete(self, prompt: str) -> str | None:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]
        body: Json = {"model": self._model, "messages": messages, "temperature": 0, "max_tokens": _MAX_TOKENS}
        try:
            headers = self._outbound.bearer_header(self._key_env, self._url) if self._key_env else {}
            response = await self._outbound.client(self._url).post(self._url, json=body, headers=headers, timeout=120)
            answer: Any = response.json() if response.status_code == 200 else {}
        except (httpx.HTTPError, Fault, ValueError) as exc:
            log.warning("launch llm: request to the endpoint failed: %s", type(exc).__name__)
            return None
        choices = cast("list[Json]", answer.get("choices") or [])
        text: Any = choices[0].get("message", {}).get("content") if choices else None
        return text if isinstance(text, str) else None


async def draft_sections(job: Job, model: ModelClient) -> None:
    """Have the model draft every section of prose. A section whose drafts fail twice is left to the facts writer."""
    prompts: Json = (await job.run_work(MODEL_DRAFT, "prompts"))["prompts"]
    accepted: Json = {}
    pending = dict(prompts)
    for _ in range(_ATTEMPTS):
        answers: Json = {}
        for key, prompt in pending.items():
            answer = await model.complete(prompt)
            if answer is None:
                # The model declined: the facts writer writes what is left.
                pending = {}
                break
            answers[key] = answer
            await job.progress(f"drafted {key.rpartition('/')[2]}")
        checked: Json = {"accepted": {}, "rejected": {}}
        if answers:
            checked = await job.run_work(MODEL_DRAFT, "check", {"answers": answers})
        accepted |= checked["accepted"]
        rejected: Json = checked["rejected"]
        pending = {
            key: f"{prompts[key]}\nA first draft was rejected. {reason}\n"
            for key, reason in rejected.items()
            if key in pending
        }
        if not pending:
            break
    await job.run_work(MODEL_DRAFT, "store", {"accepted": accepted, "writer": model.name})
