import base64
import re
from dataclasses import replace
from typing import Any, TypedDict, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocol.sealed_tokens import (
    InvalidSeal,
    RequestState,
    SessionToken,
    TokenSeal,
    mint_session,
    mint_state,
    read_session,
    read_state,
    session_digest,
)

OLD, NEW = b"o" * 32, b"n" * 32
NOW = 1_900_000_000
DAY = 24 * 3600
VISIBLE = re.compile(r"[!-~]+")

fuzzed = settings(deadline=None)
seal = TokenSeal([NEW])
token = SessionToken(
    tenant="default",
    principal="default/user:alice",
    version="2025-11-25",
    capabilities={"roots": {"listChanged": True}, "elicitation": {"form": {}, "url": {}}, "experimental": {"x": {}}},
    info={"name": "client", "version": "1.0"},
    issued=NOW,
    nonce="5f1c",
)


class Repeated(TypedDict):
    principal: str
    method: str
    target: str
    arguments_digest: str


def state_for(**changes: str) -> Repeated:
    request = Repeated(
        principal="default/user:alice",
        method="tools/call",
        target="roblox.script_create",
        arguments_digest="ab" * 32,
    )
    return cast("Repeated", request | changes)


# ---- the seal


@fuzzed
@given(st.binary(), st.binary(), st.text(st.characters(codec="utf-8")))
def test_token_opens_only_with_the_same_purpose_and_bound_data(payload: bytes, bound: bytes, purpose: str) -> None:
    text = seal.seal(purpose, payload, bound)
    assert re.fullmatch(r"v1\.[A-Za-z0-9_-]+", text)
    assert seal.open(purpose, text, bound) == payload
    for other in ((purpose + "x", text, bound), (purpose, text, bound + b"x")):
        with pytest.raises(InvalidSeal):
            seal.open(*other)


def test_two_seals_of_the_same_payload_differ() -> None:
    assert seal.seal("a", b"x") != seal.seal("a", b"x")


@fuzzed
@given(st.data())
def test_no_character_of_a_token_can_be_changed_dropped_or_added(data: st.DataObject) -> None:
    text = seal.seal("a", b"payload")
    place = data.draw(st.integers(0, len(text) - 1))
    character = data.draw(st.characters(codec="utf-8"))
    for changed in (
        text[:place] + character + text[place + 1 :],
        text[:place] + text[place + 1 :],
        text[:place] + character + text[place:],
        text + character,
    ):
        if changed != text:
            with pytest.raises(InvalidSeal):
                seal.open("a", changed)


@fuzzed
@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_any_other_text_is_an_invalid_seal(text: str) -> None:
    for attempt in (text, "v1." + text):
        with pytest.raises(InvalidSeal):
            seal.open("a", attempt)


def test_other_encodings_of_the_same_bytes_are_rejected() -> None:
    text = seal.seal("a", b"xy")
    blob = base64.urlsafe_b64decode(text[3:] + "=" * (-len(text[3:]) % 4))
    padded = "v1." + base64.urlsafe_b64encode(blob).decode()
    standard = "v1." + base64.b64encode(b"\xff" * 40).decode()
    for spelling in (
        padded,
        text + "=",
        text + "\n",
        " " + text,
        text[3:],
        "V1." + text[3:],
        "v2." + text[3:],
        standard,
    ):
        if spelling != text:
            with pytest.raises(InvalidSeal):
                seal.open("a", spelling)


def test_the_first_key_seals_and_every_key_opens() -> None:
    before, during, after = TokenSeal([OLD]), TokenSeal([NEW, OLD]), TokenSeal([NEW])
    old, new = before.seal("a", b"x"), during.seal("a", b"x")
    assert during.open("a", old) == during.open("a", new) == after.open("a", new) == b"x"
    for ring, text in ((after, old), (before, new)):
        with pytest.raises(InvalidSeal):
            ring.open("a", text)


@pytest.mark.parametrize("keys", [[], [b""], [b"x" * 31], [b"x" * 32, b"short"]])
def test_key_ring_with_a_short_key_is_rejected(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        TokenSeal(keys)


# ---- sessions


def test_any_replica_opens_the_complete_session() -> None:
    assert read_session(TokenSeal([NEW]), mint_session(TokenSeal([NEW]), token), now=NOW) == token


def test_session_expires_after_thirty_days() -> None:
    text = mint_session(seal, token)
    assert read_session(seal, text, now=NOW + 30 * DAY - 1) == token
    assert read_session(seal, text, now=NOW + 30 * DAY) is None


def test_session_minted_by_a_clock_ahead_of_ours_is_valid() -> None:
    assert read_session(seal, mint_session(seal, token), now=NOW - 60) == token


def test_token_of_another_purpose_or_key_is_not_a_session() -> None:
    for text in (
        "",
        "nonsense",
        seal.seal("session", b"{}"),
        seal.seal("other", b"{}"),
        mint_session(TokenSeal([OLD]), token),
        mint_state(seal, **state_for(), namespace="a", state=None),
    ):
        assert read_session(seal, text, now=NOW) is None


def test_unknown_capabilities_are_left_out_before_the_clients_name() -> None:
    crowded = replace(token, capabilities={**token.capabilities, "experimental": {"x": "y" * 3000}})
    read = read_session(seal, mint_session(seal, crowded), now=NOW)
    assert read == replace(token, capabilities={"roots": {"listChanged": True}, "elicitation": {"form": {}, "url": {}}})


def test_the_clients_name_is_left_out_when_it_does_not_fit() -> None:
    read = read_session(seal, mint_session(seal, replace(token, info={"name": "n" * 3000})), now=NOW)
    assert read is not None
    assert read.info is None
    assert read.capabilities == {"roots": {"listChanged": True}, "elicitation": {"form": {}, "url": {}}}


def test_identity_that_does_not_fit_raises_value_error() -> None:
    with pytest.raises(ValueError, match="too long"):
        mint_session(seal, replace(token, principal="p" * 3000))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8"), max_size=600),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
capability_names = st.sampled_from(["roots", "sampling", "elicitation", "tasks", "experimental"]) | st.text(max_size=6)


@fuzzed
@given(
    st.dictionaries(capability_names, json_values, max_size=4),
    st.none() | st.dictionaries(st.text(max_size=6), json_values, max_size=3),
)
def test_a_session_id_is_at_most_two_kibibytes_of_visible_ascii(
    capabilities: dict[str, Any], info: dict[str, Any] | None
) -> None:
    original = replace(token, capabilities=capabilities, info=info)
    text = mint_session(seal, original)
    assert len(text) <= 2048
    assert VISIBLE.fullmatch(text)
    read = read_session(seal, text, now=NOW)
    assert read is not None
    assert replace(read, capabilities={}, info=None) == replace(token, capabilities={}, info=None)
    assert read.capabilities.keys() <= capabilities.keys()
    assert read.info in (info, None)


def test_session_digest_is_short_and_differs_from_the_id() -> None:
    one, other = mint_session(seal, token), mint_session(seal, token)
    assert re.fullmatch(r"[0-9a-f]{32}", session_digest(one))
    assert session_digest(one) == session_digest(one) != session_digest(other)
    assert session_digest("\ud800")


# ---- requestState


@pytest.mark.parametrize("state", [None, "", "opaque", "é" * 1000, '{"json":1}'])
def test_request_state_opens_to_the_state_of_the_backend(state: str | None) -> None:
    text = mint_state(seal, **state_for(), namespace="roblox", state=state, ttl=600, now=NOW)
    assert read_state(seal, text, **state_for(), now=NOW + 599) == RequestState("roblox", state, NOW + 600)


@pytest.mark.parametrize(
    "changes",
    [
        {"principal": "default/user:bob"},
        {"principal": "default/service:alice"},
        {"method": "prompts/get"},
        {"target": "roblox.script_delete"},
        {"arguments_digest": "cd" * 32},
        {"method": "tools", "target": "/callroblox.script_create"},
    ],
    ids=str,
)
def test_request_state_is_invalid_for_another_principal_or_request(changes: dict[str, str]) -> None:
    text = mint_state(seal, **state_for(), namespace="roblox", state="s", now=NOW)
    with pytest.raises(InvalidSeal):
        read_state(seal, text, **state_for(**changes), now=NOW)


def test_request_state_expires() -> None:
    text = mint_state(seal, **state_for(), namespace="roblox", state="s", ttl=600, now=NOW)
    with pytest.raises(InvalidSeal):
        read_state(seal, text, **state_for(), now=NOW + 600)


def test_session_id_is_not_a_request_state() -> None:
    with pytest.raises(InvalidSeal):
        read_state(seal, mint_session(seal, token), **state_for(), now=NOW)


def test_lone_surrogate_in_a_backend_state_is_replaced() -> None:
    text = mint_state(seal, **state_for(), namespace="roblox", state="\ud800", now=NOW)
    assert read_state(seal, text, **state_for(), now=NOW).state == "\ufffd"


def test_system_clock_is_the_default() -> None:
    assert read_state(seal, mint_state(seal, **state_for(), namespace="a", state=None), **state_for()).state is None
    assert read_session(seal, mint_session(seal, replace(token, issued=0))) is None
