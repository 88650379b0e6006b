"""Reloading of policies: a valid edit replaces all of them, an invalid one keeps the last valid version."""

import logging
from pathlib import Path

import pytest

from gateway.policy.active_policies import ActivePolicies, load
from gateway.policy.source import SHIPPED, InvalidPolicies, folder_stamp, read_folder
from tests.deploy.kubelet import mount
from tests.gateway.policy.folders import policy_folder

LIST_ONLY = '@id("grant.list") permit (principal, action == Gw::Action::"list", resource);'


async def test_edit_is_activated_and_listeners_are_notified(tmp_path: Path) -> None:
    active = await ActivePolicies.open(policy_folder(tmp_path))
    versions: list[str] = []
    active.on_change(lambda: versions.append(active.current.version))
    before = active.current
    await active.refresh()
    assert active.current is before
    policy_folder(tmp_path, LIST_ONLY)
    await active.refresh()
    assert "grant.call" in before.default.notes
    assert "grant.call" not in active.current.default.notes
    assert versions == [active.current.version]
    assert active.current.version != before.version


async def test_invalid_edit_keeps_the_last_valid_version_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    active = await ActivePolicies.open(policy_folder(tmp_path))
    before = active.current
    policy_folder(tmp_path, LIST_ONLY + " permit (")
    with caplog.at_level(logging.ERROR):
        await active.refresh()
    assert active.current is before
    assert "default/10-grants.cedar" in active.problems[0]
    assert f"version {before.version} stays active" in caplog.text
    caplog.clear()
    await active.refresh()
    assert not caplog.records, "it is logged once"
    policy_folder(tmp_path, LIST_ONLY)
    await active.refresh()
    assert active.problems == ()
    assert active.current is not before


async def test_open_fails_without_a_schema(tmp_path: Path) -> None:
    with pytest.raises(InvalidPolicies, match=r"schema\.cedarschema is missing"):
        await ActivePolicies.open(tmp_path)


def test_tenant_with_its_own_folder_has_no_default_policies(tmp_path: Path) -> None:
    loaded = load(policy_folder(tmp_path, LIST_ONLY, tenant="acme"))
    assert set(loaded.for_tenant("acme").notes) & {"grant.list", "grant.call"} == {"grant.list"}
    assert "guard.tenant" in loaded.for_tenant("acme").notes
    assert loaded.for_tenant("other") is loaded.default


@pytest.mark.parametrize(
    ("grants", "message"),
    [
        ("permit (principal, action, resource);", "has no @id"),
        (
            '@id("x") permit (principal, action, resource); @id("x") forbid (principal, action, resource);',
            "used by another policy",
        ),
        ('@id("guard.x") permit (principal, action, resource);', "are reserved for org/"),
        ('@id("x") permit (principal in Gw::Tenant::"other", action, resource);', "may not name the tenant other"),
        ('@id("x") permit (principal, action, resource) when { resource.effekt > 1 };', "effekt"),
        ('@id("x") permit (principal, action, resource) when { context.args.path like "/*" };', "x:"),
        ('@id("x") permit (principal == ?principal, action, resource);', "templates"),
        ('@id("x") permit (principal, action)', "default/10-grants.cedar"),
    ],
)
def test_invalid_policies_are_rejected_on_load(tmp_path: Path, grants: str, message: str) -> None:
    with pytest.raises(InvalidPolicies) as caught:
        load(policy_folder(tmp_path, grants))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("lab.echo: [path]", "expected a mapping of fields"),
        ("lab.echo: {path: Text}", "expected one of"),
        ("lab.echo: {a: Long}\nlab.other: {a: String}", "another type in another entry"),
        ('lab.echo: {"a b": Long}', "not a valid Cedar identifier"),
        ("lab.echo: {a: {type: Long, of: x}}", "expected one of"),
        ("- x", "expected a mapping of tools"),
        ("a: [", "default/args.yaml"),
    ],
)
def test_invalid_projections_are_rejected_on_load(tmp_path: Path, args: str, message: str) -> None:
    with pytest.raises(InvalidPolicies) as caught:
        load(policy_folder(tmp_path, args=args))
    assert message in str(caught.value)


def test_mounted_config_map_is_read_with_subfolders_and_changes_are_detected(tmp_path: Path) -> None:
    shipped = {str(path.relative_to(SHIPPED)): path.read_bytes() for path in SHIPPED.rglob("*.*") if path.is_file()}
    shipped = {name: content for name, content in shipped.items() if not name.endswith(".md")}
    folder = tmp_path / "mounted"
    mount(folder, shipped, 0o644)
    assert load(folder).version == load(SHIPPED).version
    before = folder_stamp(folder)
    mount(folder, {**shipped, "tenants/acme/10-ours.cedar": b'@id("ours") permit (principal, action, resource);'})
    assert folder_stamp(folder) != before
    assert set(read_folder(folder).tenants) == {"acme"}
    (folder / "org" / "round").symlink_to("..")
    assert set(read_folder(folder).tenants) == {"acme"}


def test_hidden_versions_of_a_mounted_config_map_are_ignored(tmp_path: Path) -> None:
    folder = policy_folder(tmp_path)
    hidden = folder / "..2026_01_01"
    hidden.mkdir()
    (hidden / "10-grants.cedar").write_text("nonsense")
    assert load(folder).version == load(SHIPPED).version
    assert not any("..2026" in name for name, *_ in folder_stamp(folder))
