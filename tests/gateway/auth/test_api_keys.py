import asyncio
import re
import string
import zlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from gateway.auth.api_keys import ApiKeys
from gateway.contract import Caller
from gateway.errors import Fault, Kind
from gateway.state.database import Database
from gateway.state.tenants import Tenants

PEPPER = b"p" * 32


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def database(tmp_path: Path, database_url: str | None) -> AsyncGenerator[Database, None]:
    database = await Database.open(tmp_path, database_url)
    yield database
    await database.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def keys(database: Database, clock: Clock) -> AsyncGenerator[ApiKeys, None]:
    keys = ApiKeys(database, PEPPER, clock=clock)
    yield keys
    await keys.close()


async def test_verified_key_returns_its_caller(keys: ApiKeys) -> None:
    key, info = await keys.create("default", "alice", groups=["staff"], expires=2000.0, label="laptop")
    assert re.fullmatch(r"gth_[a-z0-9]{12}_[A-Za-z0-9_-]{43}_[A-Za-z0-9]{6}", key)
    assert await keys.verify(key) == Caller(
        tenant="default",
        subject="alice",
        kind="user",
        groups=frozenset({"staff"}),
        scopes=frozenset({"mcp:list", "mcp:call", "mcp:call:write"}),
        credential=info.id,
        expires=2000.0,
    )


async def test_service_key_has_the_scopes_it_was_created_with(keys: ApiKeys) -> None:
    key, _ = await keys.create("default", "ci", kind="service", scopes=["mcp:list"])
    caller = await keys.verify(key)
    assert caller is not None
    assert caller.principal == "default/service:ci"
    assert caller.scopes == {"mcp:list"}
    assert caller.expires is None


async def test_secret_is_not_stored(keys: ApiKeys, database: Database) -> None:
    key, _ = await keys.create("default", "alice")
    async with database.reading() as connection:
        row = (await connection.execute(text("SELECT * FROM api_keys"))).one()
    assert not any(key[17:60] in str(value) for value in row)


async def test_key_is_invalid_under_another_pepper(keys: ApiKeys, database: Database) -> None:
    key, _ = await keys.create("default", "alice")
    assert await ApiKeys(database, b"q" * 32).verify(key) is None


async def test_key_is_rejected_after_its_expiry(keys: ApiKeys, clock: Clock) -> None:
    key, _ = await keys.create("default", "alice", expires=clock.now + 10)
    clock.now += 9.9
    assert await keys.verify(key) is not None
    clock.now += 0.1
    assert await keys.verify(key) is None


async def test_revoked_key_is_rejected_at_once_in_all_processes(
    keys: ApiKeys, tmp_path: Path, database_url: str | None
) -> None:
    elsewhere = await Database.open(tmp_path, database_url)
    others = ApiKeys(elsewhere, PEPPER)
    key, info = await keys.create("default", "alice")
    assert await others.verify(key) is not None
    assert await keys.revoke(info.id)
    assert await others.verify(key) is None
    assert await keys.verify(key) is None
    assert not await keys.revoke(info.id)
    assert not await keys.revoke("nosuchkey123")
    await others.close()
    await elsewhere.close()


async def test_listener_is_called_after_a_revocation_in_another_process(
    keys: ApiKeys, tmp_path: Path, database_url: str | None
) -> None:
    elsewhere = await Database.open(tmp_path, database_url)
    notified = asyncio.Event()
    ApiKeys(elsewhere, PEPPER).on_revoke(notified.set)
    _, info = await keys.create("default", "alice")
    await keys.revoke(info.id)
    await asyncio.wait_for(notified.wait(), 5)
    await elsewhere.close()


async def test_listener_is_not_called_for_other_writes(keys: ApiKeys, database: Database) -> None:
    tenants, seen = await Tenants.open(database), asyncio.Event()
    tenants.on_change(seen.set)
    await tenants.apply({"watched": {}})
    await asyncio.wait_for(seen.wait(), 5)
    notified = asyncio.Event()
    keys.on_revoke(notified.set)
    text, first = await keys.create("default", "alice")
    assert await keys.verify(text) is not None
    await keys.close()  # writes the time of last use
    seen.clear()
    # Changes are announced in order: this one comes after those of the keys.
    database.on_change("tenants", lambda _names: seen.set())
    await tenants.apply({"later": {}})
    await asyncio.wait_for(seen.wait(), 5)
    assert not notified.is_set()
    await keys.revoke(first.id)
    await asyncio.wait_for(notified.wait(), 5)


async def test_keys_are_listed_by_tenant_without_their_secret(keys: ApiKeys) -> None:
    _, ours = await keys.create("ours", "alice", label="laptop")
    _, theirs = await keys.create("theirs", "bob", kind="service")
    assert await keys.list() == [ours, theirs]
    assert await keys.list("theirs") == [theirs]
    assert await keys.list("unknown") == []
    await keys.revoke(ours.id)
    assert (await keys.list("ours"))[0].revoked == 1000.0


async def test_last_use_is_written_in_the_background_once_a_minute(keys: ApiKeys, clock: Clock) -> None:
    key, _ = await keys.create("default", "alice")
    await keys.verify(key)
    while (await keys.list())[0].last_used is None:
        await asyncio.sleep(0.005)
    clock.now += 30
    await keys.verify(key)
    assert (await keys.list())[0].last_used == 1000.0
    await keys.close()
    assert (await keys.list())[0].last_used == 1030.0


async def test_rejected_key_has_no_last_use(keys: ApiKeys) -> None:
    key, info = await keys.create("default", "alice")
    await keys.revoke(info.id)
    await keys.verify(key)
    await keys.close()
    assert (await keys.list())[0].last_used is None


@pytest.mark.parametrize(
    "bad",
    [
        {"tenant": "../x"},
        {"subject": ""},
        {"subject": "a\nb"},
        {"subject": "x" * 257},
        {"kind": "admin"},
        {"scopes": ["mcp:list mcp:admin"]},
        {"scopes": [""]},
        {"groups": ["a\0"]},
        {"expires": 999.0},
        {"expires": float("nan")},
        {"label": "a\x1b[31m"},
    ],
)
async def test_key_with_invalid_metadata_is_not_created(keys: ApiKeys, bad: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"tenant": "default", "subject": "alice"} | bad
    with pytest.raises(Fault) as caught:
        await keys.create(**arguments)
    assert caught.value.kind is Kind.INVALID_INPUT
    assert await keys.list() == []


@st.composite
def mutations(draw: st.DrawFn, key: str) -> str:
    positions = st.integers(0, len(key) - 1)
    characters = st.one_of(st.sampled_from(string.ascii_letters + string.digits + "_-= \n"), st.characters())
    at, to = draw(positions), draw(positions)
    mutation = draw(
        st.one_of(
            characters.map(lambda character: key[:at] + character + key[at + 1 :]),
            characters.map(lambda character: key[:at] + character + key[at:]),
            st.just(key[:at] + key[to:]),
            st.just(key[:at] + key[at:to][::-1] + key[to:]),
            st.just(key[:at] + key[at:].swapcase()),
            st.text(min_size=1, max_size=3).map(lambda more: key + more),
            st.text(min_size=1, max_size=3).map(lambda more: more + key),
            st.text(max_size=80),
        )
    )
    assume(mutation != key)
    return mutation


def with_checksum(key: str) -> str:
    """Return the text with a matching checksum, as an attacker would send it: CRC-32 in base 62."""
    digits, stem = string.digits + string.ascii_letters, key[:-7]
    value = zlib.crc32(stem.encode("utf-8", "replace"))
    return f"{stem}_{''.join(digits[value // 62**place % 62] for place in range(5, -1, -1))}"


async def test_checksum_is_the_documented_one(keys: ApiKeys) -> None:
    key, _ = await keys.create("default", "alice")
    assert with_checksum(key) == key


async def test_no_mutation_of_a_key_is_valid(keys: ApiKeys) -> None:
    key, _ = await keys.create("default", "alice")
    tried: list[str] = []

    @settings(max_examples=200, deadline=None)
    @given(mutations(key))
    def collect(mutation: str) -> None:
        tried.append(mutation)

    collect()
    for mutation in tried:
        assert await keys.verify(mutation) is None, mutation
        if with_checksum(mutation) != key:
            assert await keys.verify(with_checksum(mutation)) is None, mutation
    assert await keys.verify(key) is not None


class NoDatabase:
    def reading(self) -> None:
        raise AssertionError("the database was queried")


async def test_typo_is_detected_without_a_database_lookup(keys: ApiKeys) -> None:
    key, _ = await keys.create("default", "alice")
    offline = ApiKeys(cast("Database", NoDatabase()), PEPPER)
    for at in range(len(key)):
        typo = key[:at] + ("x" if key[at] != "x" else "y") + key[at + 1 :]
        assert await offline.verify(typo) is None
    with pytest.raises(AssertionError, match="was queried"):
        await offline.verify(key)


async def test_secrets_of_two_keys_cannot_be_swapped(keys: ApiKeys) -> None:
    (alice, _), (bob, _) = await keys.create("default", "alice"), await keys.create("default", "bob")
    assert await keys.verify(with_checksum(alice[:17] + bob[17:])) is None
