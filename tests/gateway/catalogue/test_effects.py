"""The effect of a tool and whether it calls for approval, by the entry's `effects` and `trust`."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.catalogue.effects import effect_of, needs_approval, unmatched_overrides
from gateway.contract import Manifest

Json = dict[str, Any]
DESTRUCTIVE: Json = {"name": "drop", "annotations": {"destructiveHint": True}}
READS: Json = {"name": "look", "annotations": {"readOnlyHint": True}}


@dataclass
class AnyBackend:
    manifest: Manifest = field(default_factory=Manifest)
    trusted: bool = False


@pytest.mark.parametrize(
    ("trust", "tool", "expected"),
    [
        ("strict", DESTRUCTIVE, True),
        ("strict", READS, True),  # the annotation of a remote server never lowers the effect below 2
        ("annotations", DESTRUCTIVE, True),
        ("annotations", READS, False),
        ("client", DESTRUCTIVE, False),
        ("client", READS, False),
    ],
)
def test_trust_decides_which_effects_of_a_remote_server_call_for_approval(
    trust: Any, tool: Json, expected: bool
) -> None:
    backend: Any = AnyBackend(Manifest(trust=trust))
    assert needs_approval(backend, tool) is expected
    assert effect_of(backend, tool) == (3 if tool is DESTRUCTIVE else 2)  # the same under every trust


@pytest.mark.parametrize(("trust", "asked"), [("strict", True), ("annotations", True), ("client", True)])
def test_an_effect_that_the_entry_states_calls_for_approval_under_every_trust(trust: Any, asked: bool) -> None:
    backend: Any = AnyBackend(Manifest(trust=trust, effect_overrides={"dr*": 3}))
    assert needs_approval(backend, {"name": "drop"}) is asked


def test_a_read_that_the_entry_states_needs_no_approval_of_a_strict_server() -> None:
    backend: Any = AnyBackend(Manifest(trust="strict", effect_overrides={"look": 0}))
    assert not needs_approval(backend, READS)


def test_trust_does_not_change_the_effects_that_a_module_declares() -> None:
    for trust in ("strict", "annotations", "client"):
        backend: Any = AnyBackend(Manifest(trust=trust, effects={"drop": 3, "make": 2}), trusted=True)
        assert needs_approval(backend, {"name": "drop"})
        assert not needs_approval(backend, {"name": "make"})


def test_a_name_takes_precedence_over_patterns_and_the_first_pattern_over_later_ones() -> None:
    overrides = {"read_*": 0, "*_file": 2, "read_secret": 3}
    backend: Any = AnyBackend(Manifest(effect_overrides=overrides, effects={"write_file": 1}))
    effects = {name: effect_of(backend, {"name": name}) for name in ("read_file", "write_file", "read_secret", "other")}
    assert effects == {"read_file": 0, "write_file": 2, "read_secret": 3, "other": 2}


def test_names_and_patterns_that_match_no_tool_are_found() -> None:
    manifest = Manifest(effect_overrides={"drop": 3, "dorp": 3, "read_*": 0, "*": 2})
    assert unmatched_overrides(manifest, ["drop", "look"]) == ["dorp", "read_*"]
    assert unmatched_overrides(manifest, []) == []  # nothing is listed yet
