"""Reads the document of an entry from a file or a URL, and builds its tools when the content has changed."""

import asyncio
import logging
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol

from gateway.errors import Fault, Kind
from gateway.upstream.concurrency import SingleFlight
from gateway.upstream.http.target import HttpTarget
from gateway.upstream.openapi.document import MAX_DOCUMENT_BYTES, DocumentError, parse_document
from gateway.upstream.openapi.operations import Api, OperationFilter, read_api

log = logging.getLogger("gatehouse.upstream")

_ACCEPT: Final = b"accept: application/json, application/yaml;q=0.9, */*;q=0.1\r\n"
_MAX_REPORTED: Final = 20
"""Operations that are not served and are logged by name; of the others only the number."""


class DocumentSource(Protocol):
    """Where a document comes from."""

    async def read(self) -> bytes:
        """The current content. Raises `Fault(UNAVAILABLE)`."""
        ...

    async def close(self) -> None: ...


class FileSource:
    """A document in a local file."""

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path

    async def read(self) -> bytes:
        return await asyncio.to_thread(self._read)

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(MAX_DOCUMENT_BYTES + 1)
        except OSError as exc:
            message = f"The OpenAPI document of {self._name} cannot be read: {exc.strerror}."
            raise Fault(Kind.UNAVAILABLE, message, retryable=False) from exc

    async def close(self) -> None:
        """Do nothing: the file is open only while it is read."""


class UrlSource:
    """A document at a URL. `target` carries a credential only if the URL has the origin of the API."""

    def __init__(self, name: str, target: HttpTarget, path: str) -> None:
        self._name = name
        self._target = target
        self._path = path

    async def read(self) -> bytes:
        leased = await self._target.request("GET", self._path, _ACCEPT, None, idempotent=True)
        try:
            status, body = leased.response.status, leased.response.body
        finally:
            leased.release()
        if status != 200 or body is None:
            message = f"The OpenAPI document of {self._name} cannot be read: its URL responded with HTTP {status}."
            raise Fault(Kind.UNAVAILABLE, message)
        return body

    async def close(self) -> None:
        await self._target.close()


class ApiLoader:
    """Keeps the tools of a document. A changed document replaces them; one that cannot be read does not."""

    def __init__(
        self,
        name: str,
        source: DocumentSource,
        include: OperationFilter,
        exclude: OperationFilter,
        fixed_headers: Sequence[str],
    ) -> None:
        self._name = name
        self._source = source
        self._include = include
        self._exclude = exclude
        self._fixed_headers = fixed_headers
        self._digest = b""
        self._load_once = SingleFlight(self._load)
        self.api: Api | None = None
        """The tools as last read; None until the first success."""

    async def load(self) -> Api:
        """Read the document. Raises `Fault` if it cannot be read or served."""
        return await self._load_once()

    async def _load(self) -> Api:
        raw = await self._source.read()
        digest = sha256(raw).digest()
        if self.api is not None and digest == self._digest:
            return self.api
        try:
            # In a thread: large documents take seconds.
            api = await asyncio.to_thread(self._build, raw)
        except DocumentError as exc:
            message = f"The OpenAPI document of {self._name} cannot be served: {exc}."
            raise Fault(Kind.UNAVAILABLE, message, retryable=False) from exc
        self._report(api)
        self.api, self._digest = api, digest
        return api

    def _build(self, raw: bytes) -> Api:
        return read_api(parse_document(raw), self._include, self._exclude, self._fixed_headers)

    def _report(self, api: Api) -> None:
        for operation, reason in list(api.problems.items())[:_MAX_REPORTED]:
            log.warning("openapi %s: %r is not served: %s", self._name, operation, reason)
        if (more := len(api.problems) - _MAX_REPORTED) > 0:
            log.warning("openapi %s: %d more operations are not served", self._name, more)

    async def close(self) -> None:
        await self._source.close()
