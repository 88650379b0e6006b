"""A dry run of a writing tool without support ends in the validate stage, before policies are asked."""

from typing import Any

import pytest

from gateway.catalogue.snapshot import allows_dry_run
from gateway.contract import Manifest
from gateway.contract.flags import FALSE_WORDS, TRUE_WORDS
from gateway.errors import Fault, Kind
from gateway.stages.validate import Validate
from tests.gateway.fakes.backend import FakeBackend
from tests.gateway.fakes.calls import a_call, a_route

BAD_VALUES = ["yes", "on", " true", "true ", "", "TrUe", 1, 0, 1.0, None, [], {"dryRun": True}]


async def run_call(meta: dict[str, Any], **route: Any) -> Any:
    call = a_call(params={"name": "lab_echo", "_meta": meta}, route=a_route(**route))

    async def backend(call: Any) -> Any:
        return {"reached": True}

    return await Validate(1000)(call, backend)


@pytest.mark.parametrize("value", [True, *TRUE_WORDS])
async def test_dry_run_of_a_writing_tool_without_support_is_rejected(value: Any) -> None:
    with pytest.raises(Fault) as raised:
        await run_call({"dryRun": value}, effect=2)
    assert raised.value.kind is Kind.INVALID_INPUT
    assert "lab.echo" in raised.value.message


@pytest.mark.parametrize("value", [False, *FALSE_WORDS])
async def test_call_that_declines_a_dry_run_reaches_the_backend(value: Any) -> None:
    assert await run_call({"dryRun": value}, effect=2) == {"reached": True}


async def test_dry_run_with_support_reaches_the_backend() -> None:
    assert await run_call({"dryRun": True}, effect=2, allows_dry_run=True) == {"reached": True}


@pytest.mark.parametrize("value", BAD_VALUES)
@pytest.mark.parametrize("flag", ["dryRun", "approved"])
async def test_flag_that_is_not_a_boolean_or_its_word_is_rejected(flag: str, value: Any) -> None:
    with pytest.raises(Fault) as raised:
        await run_call({flag: value}, effect=2, allows_dry_run=True)
    assert raised.value.kind is Kind.INVALID_INPUT
    assert raised.value.details["validation_path"] == f"_meta.{flag}"


@pytest.mark.parametrize(
    ("manifest", "definition", "trusted", "allowed"),
    [
        (Manifest(effects={"t": 0}), {}, True, True),
        (Manifest(effects={"t": 2}), {}, True, False),
        (Manifest(effects={"t": 2}, dry_run=frozenset({"t"})), {}, True, True),
        (Manifest(effects={"t": 2}, dry_run=frozenset({"other"})), {}, True, False),
        (Manifest(), {"annotations": {"readOnlyHint": True}}, True, True),
        (Manifest(), {"annotations": {"readOnlyHint": True}}, False, False),
        (Manifest(), {"_meta": {"gox:supportsDryRun": True}}, False, True),
        (Manifest(), {"_meta": {"gox:supportsDryRun": "true"}}, False, False),
    ],
)
def test_support_is_declared_by_manifest_or_tool_and_reads_need_none(
    manifest: Manifest, definition: Any, trusted: bool, allowed: bool
) -> None:
    backend = FakeBackend(manifest=manifest, trusted=trusted)
    assert allows_dry_run(backend, {"name": "t", **definition}) is allowed
