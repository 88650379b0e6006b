"""Requests from the gateway to a client of the handshake era, and the answers it posts, wherever it posts them."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from uuid import uuid4

import msgspec

from gateway.contract import Bus, Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.protocol.messages import Message
from gateway.protocol.multi_round import missing_capabilities
from gateway.protocol.responses import request_bytes
from gateway.protocol.sealed_tokens import InvalidSeal, TokenSeal

ANSWER_SECONDS: Final = 600.0
_TOPIC: Final = "asking.answer"
_OURS: Final = "gth."
_PURPOSE: Final = "asking"


class ClientRequests:
    """Each request carries the worker in its own id, so that an answer posted anywhere finds its call.

    The id is sealed for the session that is asked: no client can make one, and so none can post what was not asked.
    """

    def __init__(self, bus: Bus, seal: TokenSeal) -> None:
        self._bus = bus
        self._seal = seal
        self._prefix = f"{_OURS}{bus.worker}."
        self._numbers = itertools.count(1)
        self._open: dict[str, tuple[str, asyncio.Future[Json]]] = {}
        bus.respond(_TOPIC, self._passed_on)

    async def ask(
        self, session: str, capabilities: Json, requests: Mapping[str, Json], send: Callable[[bytes], Awaitable[None]]
    ) -> dict[str, Json]:
        """All the answers. Raises `ForeignError` when the client refuses, `Fault` when it cannot or does not answer."""
        missing = missing_capabilities(capabilities, dict(requests))
        if missing:
            raise Fault(Kind.UNSUPPORTED, f"The client cannot do {' and '.join(missing)}.")
        loop = asyncio.get_running_loop()
        ids = {key: self._id(session) for key in requests}
        futures = {key: loop.create_future() for key in requests}
        self._open |= {ids[key]: (session, futures[key]) for key in requests}
        try:
            for key, request in requests.items():
                await send(request_bytes(ids[key], request["method"], _params(request)))
            async with asyncio.timeout(ANSWER_SECONDS):
                answers = await asyncio.gather(*futures.values())
        except TimeoutError as exc:
            raise Fault(Kind.TIMEOUT, "The client did not answer in time.") from exc
        finally:
            for id in ids.values():
                self._open.pop(id, None)
        return dict(zip(requests, answers, strict=True))

    def _id(self, session: str) -> str:
        plain = f"{self._prefix}{next(self._numbers)}"
        return f"{plain}.{self._seal.seal(_PURPOSE, b'', _bound(session, plain))}"

    def taken(self, session: str, answer: Message) -> bool:
        """Give a posted answer to the call of this worker that waits for it; false when none does."""
        waiting = self._open.get(str(answer.id))
        if waiting is None or waiting[0] != session or waiting[1].done():
            return False
        if answer.error is not None:
            waiting[1].set_exception(_refused(answer.error))
        else:
            waiting[1].set_result(answer.result or {})
        return True

    async def passed_on(self, session: str, answer: Message) -> bool:
        """Give it to the other worker that asked; false when that is gone, or cannot be reached by the bus."""
        about: Json = {"session": session, "id": answer.id, "result": answer.result, "error": answer.error}
        try:
            return bool((await self._bus.request(str(answer.id).split(".")[1], _TOPIC, about))["taken"])
        except Fault:
            return False

    async def _passed_on(self, about: Json) -> Json:
        answer = Message("response", about["id"], result=about["result"], error=about["error"])
        return {"taken": self.taken(about["session"], answer)}

    def is_anothers(self, session: str, id: object) -> bool:
        """Whether another worker of this house asked that, and asked it of this session."""
        if not isinstance(id, str) or not id.startswith(_OURS) or id.startswith(self._prefix):
            return False
        words = id.split(".", 3)
        if len(words) < 4:
            return False
        try:
            self._seal.open(_PURPOSE, words[3], _bound(session, ".".join(words[:3])))
        except InvalidSeal:
            return False
        return True

    def answered_elsewhere(self, session: str, id: str, value: str) -> None:
        """The same for an answer that another worker was given for us, in the JSON that it wrote."""
        if id in self._open:
            given: Json = msgspec.json.decode(value)
            self.taken(session, Message("response", id, result=given.get("result"), error=given.get("error")))


def _bound(session: str, plain: str) -> bytes:
    return f"{session} {plain}".encode()


def posted(answer: Message) -> str:
    """An answer as another worker can read it."""
    return msgspec.json.encode({"result": answer.result, "error": answer.error}).decode()


def _params(request: Json) -> Json:
    params = dict(request.get("params") or {})
    if request["method"] == "elicitation/create" and params.get("mode") == "url":
        # This era's clients name each such request; the newer one has no such name.
        params.setdefault("elicitationId", str(uuid4()))
    return params


def _refused(error: Json) -> ForeignError:
    code: Any = error.get("code")
    return ForeignError(
        code if isinstance(code, int) else -32603, str(error.get("message", ""))[:1000], error.get("data")
    )
