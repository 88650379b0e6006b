"""Policies are swapped whole, and a broken edit leaves the last good ones in force."""

import logging
from pathlib import Path

import pytest

from gateway.policy.active_policies import ActivePolicies, load
from gateway.policy.source import SHIPPED, InvalidPolicies, read, stamp
from tests.deploy.kubelet import mount
from tests.gateway.policy.folders import a_folder

LIST_ONLY = '@id("grant.list") permit (principal, action == Gw::Action::"list", resource);'


async def test_an_edit_is_in_force_and_told_of(tmp_path: Path) -> None:
    kept = await ActivePolicies.open(a_folder(tmp_path))
    told: list[str] = []
    kept.on_change(lambda: told.append(kept.now.version))
    before = kept.now
    await kept.refresh()
    assert kept.now is before
    a_folder(tmp_path, LIST_ONLY)
    await kept.refresh()
    assert "grant.call" in before.default.notes
    assert "grant.call" not in kept.now.default.notes
    assert told == [kept.now.version]
    assert kept.now.version != before.version


async def test_a_broken_edit_keeps_the_last_good_version_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = await ActivePolicies.open(a_folder(tmp_path))
    before = kept.now
    a_folder(tmp_path, LIST_ONLY + " permit (")
    with caplog.at_level(logging.ERROR):
        await kept.refresh()
    assert kept.now is before
    assert "default/10-grants.cedar" in kept.trouble[0]
    assert f"version {before.version} stays" in caplog.text
    caplog.clear()
    await kept.refresh()
    assert not caplog.records, "it is said once"
    a_folder(tmp_path, LIST_ONLY)
    await kept.refresh()
    assert kept.trouble == ()
    assert kept.now is not before


async def test_nothing_is_served_under_policies_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidPolicies, match=r"no schema\.cedarschema"):
        await ActivePolicies.open(tmp_path)


def test_a_tenant_with_a_folder_of_its_own_has_none_of_the_defaults(tmp_path: Path) -> None:
    loaded = load(a_folder(tmp_path, LIST_ONLY, tenant="acme"))
    assert set(loaded.of("acme").notes) & {"grant.list", "grant.call"} == {"grant.list"}
    assert "guard.tenant" in loaded.of("acme").notes
    assert loaded.of("other") is loaded.default


@pytest.mark.parametrize(
    ("grants", "said"),
    [
        ("permit (principal, action, resource);", "has no @id"),
        (
            '@id("x") permit (principal, action, resource); @id("x") forbid (principal, action, resource);',
            "another policy",
        ),
        ('@id("guard.x") permit (principal, action, resource);', "are the organisation's"),
        ('@id("x") permit (principal in Gw::Tenant::"other", action, resource);', "names the tenant other"),
        ('@id("x") permit (principal, action, resource) when { resource.effekt > 1 };', "effekt"),
        ('@id("x") permit (principal, action, resource) when { context.args.path like "/*" };', "x:"),
        ('@id("x") permit (principal == ?principal, action, resource);', "templates"),
        ('@id("x") permit (principal, action)', "default/10-grants.cedar"),
    ],
)
def test_every_mistake_is_found_before_it_decides_anything(tmp_path: Path, grants: str, said: str) -> None:
    with pytest.raises(InvalidPolicies) as caught:
        load(a_folder(tmp_path, grants))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("lab.echo: [path]", "expected fields"),
        ("lab.echo: {path: Text}", "expected one of"),
        ("lab.echo: {a: Long}\nlab.other: {a: String}", "another type elsewhere"),
        ('lab.echo: {"a b": Long}', "not a name"),
        ("lab.echo: {a: {type: Long, of: x}}", "expected one of"),
        ("- x", "expected tools"),
        ("a: [", "default/args.yaml"),
    ],
)
def test_every_mistake_in_a_projection_is_found(tmp_path: Path, args: str, said: str) -> None:
    with pytest.raises(InvalidPolicies) as caught:
        load(a_folder(tmp_path, args=args))
    assert said in str(caught.value)


def test_a_config_map_is_read_as_kubernetes_mounts_it_its_folders_too_and_seen_to_change(tmp_path: Path) -> None:
    shipped = {str(path.relative_to(SHIPPED)): path.read_bytes() for path in SHIPPED.rglob("*.*") if path.is_file()}
    shipped = {name: content for name, content in shipped.items() if not name.endswith(".md")}
    folder = tmp_path / "mounted"
    mount(folder, shipped, 0o644)
    assert load(folder).version == load(SHIPPED).version
    before = stamp(folder)
    mount(folder, {**shipped, "tenants/acme/10-ours.cedar": b'@id("ours") permit (principal, action, resource);'})
    assert stamp(folder) != before
    assert set(read(folder).tenants) == {"acme"}
    (folder / "org" / "round").symlink_to("..")
    assert set(read(folder).tenants) == {"acme"}


def test_versions_of_a_mounted_config_map_are_not_read_twice(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    hidden = folder / "..2026_01_01"
    hidden.mkdir()
    (hidden / "10-grants.cedar").write_text("nonsense")
    assert load(folder).version == load(SHIPPED).version
    assert not any("..2026" in name for name, *_ in stamp(folder))
