"""`python -m bench.accounts`: CPU that a connected account adds to a call of a remote server, beside a static header.

Both calls run through `RemoteBackend` and the HTTP transport; a pool in memory answers them, so that neither sockets
nor a server blur the difference. The account's token is cached, as it is for all calls but the first.
"""

import gc
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from gateway.accounts.access import BackendAccounts
from gateway.accounts.credentials import ProofKeys
from gateway.accounts.store import Account, AccountStore, Secret
from gateway.accounts.tokens import AccountTokens
from gateway.accounts.vault import MasterKeys, Vault
from gateway.auth.dpop import DpopKey
from gateway.contract import Call, Caller, ClientProfile, Manifest, NullWire, Record
from gateway.errors import Fault, Kind
from gateway.outbound import parse_target
from gateway.state.database import Database
from gateway.upstream.http.connection import UpstreamResponse
from gateway.upstream.http.modern import ModernHttp
from gateway.upstream.http.request import RequestHead
from gateway.upstream.http.sse import SseHttp
from gateway.upstream.http.target import HttpTarget
from gateway.upstream.http.transport import HttpTransport
from gateway.upstream.remote import RemoteBackend

_BATCHES: Final = 60
_BATCH: Final = 500
_URL: Final = "https://server.example/mcp"
_CALLER: Final = Caller("default", "alice")
_TOKEN: Final = "t" * 64


class _MemoryPool:
    """Answers every request at once."""

    name = "bench"

    def __init__(self) -> None:
        self._id = 0
        self.last = b""

    async def exchange(self, request: bytes, idempotent: bool = False) -> Any:
        self.last = request
        self._id += 1
        result = {"content": [{"type": "text", "text": "hello"}], "resultType": "complete"}
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": self._id, "result": result})
        return _Leased(UpstreamResponse(200, {"content-type": "application/json"}, body))

    def close(self) -> None:
        """Nothing is open."""


class _Leased:
    def __init__(self, response: UpstreamResponse) -> None:
        self.response = response

    def release(self) -> None:
        """Nothing is leased."""


class _NoSeal:
    def seal(self, purpose: str, payload: bytes) -> str:
        return ""

    def open(self, purpose: str, text: str) -> bytes | None:
        return None


def _backend(headers: dict[str, str], accounts: BackendAccounts | None) -> tuple[RemoteBackend, _MemoryPool]:
    destination, pool = parse_target(_URL), _MemoryPool()
    head = RequestHead(destination, headers)
    target = HttpTarget(pool, head, None, accounts.credential if accounts is not None else None)  # pyright: ignore[reportArgumentType]
    transport = HttpTransport(
        "bench", target, ModernHttp("bench", target, 1 << 20), None, SseHttp("bench", target, destination, 1 << 20, {}),
        {}, None, accounts,
    )  # fmt: skip
    transport.known_eras = frozenset({"modern"})
    return RemoteBackend("bench", Manifest(), transport, {}, accounts=accounts), pool


def _require(owner: str, was_connected: bool) -> Fault:
    return Fault(Kind.ILLEGAL_STATE, "There is no account.")


async def _no_refresh(account: Account, proof: Any) -> Any:
    raise AssertionError


async def _accounts(folder: Path) -> tuple[BackendAccounts, Database]:
    database = await Database.open(folder)
    store = AccountStore(database, Vault(database, MasterKeys(b"m" * 32)))
    await store.put(
        Account(
            tenant=_CALLER.tenant,
            principal=_CALLER.principal,
            backend="bench",
            kind="oauth",
            access=Secret(_TOKEN),
            client={},
            expires_at=time.time() + 3600,
            lifetime=3600,
        )
    )
    keys = ProofKeys(DpopKey.generate, DpopKey.load)
    tokens = AccountTokens("bench", store, _no_refresh, _require, worker="w", origin=_URL, keys=keys)
    return BackendAccounts("bench", "oauth", tokens, store, seal=_NoSeal(), public_url=""), database


def _call() -> Call:
    return Call(
        id="c", caller=_CALLER, method="tools/call", params={"name": "echo", "arguments": {"text": "hello"}},
        client=ClientProfile("2026-07-28", {}), wire=NullWire(), record=Record(),
    )  # fmt: skip


async def _measure(backends: list[tuple[RemoteBackend, _MemoryPool]]) -> list[float]:
    """The minimum CPU of a call in µs, for each backend. The batches alternate, so that noise hits both."""
    for backend, pool in backends:
        await backend.send(_call())
        assert b"authorization: Bearer " + _TOKEN.encode() in pool.last, pool.last
    gc.collect()
    gc.disable()
    best = [float("inf")] * len(backends)
    for _ in range(_BATCHES):
        for index, (backend, _) in enumerate(backends):
            calls = [_call() for _ in range(_BATCH)]
            started = time.thread_time()
            for call in calls:
                await backend.send(call)
            best[index] = min(best[index], (time.thread_time() - started) / _BATCH * 1e6)
    return best


async def run(folder: Path) -> tuple[float, float]:
    """The CPU of a call in µs: with a static header, and with a connected account."""
    accounts, database = await _accounts(folder)
    try:
        static = _backend({"authorization": f"Bearer {_TOKEN}"}, None)
        header, account = await _measure([static, _backend({}, accounts)])
    finally:
        await database.close()
    return header, account


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as folder:
        header, account = uvloop.run(run(Path(folder)))
    print(f"CPU per call of a remote server: static header {header:.1f} µs, connected account {account:.1f} µs")
    print(f"a connected account adds {account - header:+.1f} µs")


if __name__ == "__main__":
    main()
