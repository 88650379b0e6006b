"""Sends requests to clients of the handshake era and delivers their answers to the calls that wait for them.

`LegacyWire` asks through it; `LegacyEra` passes the posted answers to it.
"""

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
_ID_PREFIX: Final = "gth."
_PURPOSE: Final = "asking"


class ClientRequests:
    """The pending client requests of this worker.

    The id of a request names its worker, so that an answer posted to any worker reaches its call. The id is sealed for
    the session: a client cannot forge one and answer a request that it did not get.
    """

    def __init__(self, bus: Bus, seal: TokenSeal) -> None:
        self._bus = bus
        self._seal = seal
        self._prefix = f"{_ID_PREFIX}{bus.worker}."
        self._numbers = itertools.count(1)
        self._pending: dict[str, tuple[str, asyncio.Future[Json]]] = {}
        bus.respond(_TOPIC, self._deliver_forwarded)

    async def ask(
        self, session: str, capabilities: Json, requests: Mapping[str, Json], send: Callable[[bytes], Awaitable[None]]
    ) -> dict[str, Json]:
        """Send the requests and return all answers by key.

        Raises `ForeignError` if the client answers with an error, `Fault` if it cannot or does not answer.
        """
        missing = missing_capabilities(capabilities, dict(requests))
        if missing:
            raise Fault(Kind.UNSUPPORTED, f"The client does not support {' and '.join(missing)}.")
        loop = asyncio.get_running_loop()
        ids = {key: self._new_id(session) for key in requests}
        futures = {key: loop.create_future() for key in requests}
        self._pending |= {ids[key]: (session, futures[key]) for key in requests}
        try:
            for key, request in requests.items():
                await send(request_bytes(ids[key], request["method"], _params(request)))
            async with asyncio.timeout(ANSWER_SECONDS):
                answers = await asyncio.gather(*futures.values())
        except TimeoutError as exc:
            raise Fault(Kind.TIMEOUT, "The client did not answer in time.") from exc
        finally:
            for id in ids.values():
                self._pending.pop(id, None)
        return dict(zip(requests, answers, strict=True))

    def _new_id(self, session: str) -> str:
        plain = f"{self._prefix}{next(self._numbers)}"
        return f"{plain}.{self._seal.seal(_PURPOSE, b'', _associated_data(session, plain))}"

    def deliver(self, session: str, answer: Message) -> bool:
        """Deliver a posted answer to the call of this worker that waits for it; return False if there is none."""
        pending = self._pending.get(str(answer.id))
        if pending is None or pending[0] != session or pending[1].done():
            return False
        if answer.error is not None:
            pending[1].set_exception(_client_error(answer.error))
        else:
            pending[1].set_result(answer.result or {})
        return True

    async def forward(self, session: str, answer: Message) -> bool:
        """Forward an answer to the worker that sent the request; return False if it was not delivered there."""
        payload: Json = {"session": session, "id": answer.id, "result": answer.result, "error": answer.error}
        try:
            return bool((await self._bus.request(str(answer.id).split(".")[1], _TOPIC, payload))["taken"])
        except Fault:
            return False

    async def _deliver_forwarded(self, payload: Json) -> Json:
        answer = Message("response", payload["id"], result=payload["result"], error=payload["error"])
        return {"taken": self.deliver(payload["session"], answer)}

    def belongs_to_other_worker(self, session: str, id: object) -> bool:
        """Return whether another worker of this gateway sent the request with this id to this session."""
        if not isinstance(id, str) or not id.startswith(_ID_PREFIX) or id.startswith(self._prefix):
            return False
        parts = id.split(".", 3)
        if len(parts) < 4:
            return False
        try:
            self._seal.open(_PURPOSE, parts[3], _associated_data(session, ".".join(parts[:3])))
        except InvalidSeal:
            return False
        return True

    def deliver_stored(self, session: str, id: str, value: str) -> None:
        """Deliver an answer that another worker stored, encoded by `encode_response`."""
        if id in self._pending:
            answer: Json = msgspec.json.decode(value)
            self.deliver(session, Message("response", id, result=answer.get("result"), error=answer.get("error")))


def _associated_data(session: str, plain: str) -> bytes:
    return f"{session} {plain}".encode()


def encode_response(answer: Message) -> str:
    """Encode an answer for `deliver_stored` of another worker."""
    return msgspec.json.encode({"result": answer.result, "error": answer.error}).decode()


def _params(request: Json) -> Json:
    params = dict(request.get("params") or {})
    if request["method"] == "elicitation/create" and params.get("mode") == "url":
        # This era requires an elicitation id; the modern era has none.
        params.setdefault("elicitationId", str(uuid4()))
    return params


def _client_error(error: Json) -> ForeignError:
    code: Any = error.get("code")
    return ForeignError(
        code if isinstance(code, int) else -32603, str(error.get("message", ""))[:1000], error.get("data")
    )
