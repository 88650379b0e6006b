import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.catalogue.names import NAMESPACE, SHORTEST_LIMIT, Mode, canonical, collisions, exposed, split

EXPOSED = re.compile(r"[A-Za-z0-9_-]{1,48}")

fuzzed = settings(deadline=None)
namespaces = st.from_regex(NAMESPACE, fullmatch=True)
tools = (
    st.text(alphabet="ab_.-é/ ", min_size=1, max_size=12)
    | st.text(alphabet="abc_", min_size=30, max_size=70)
    | st.text(st.characters(codec=None, exclude_categories=()), min_size=1, max_size=20)
)


@pytest.mark.parametrize(
    ("namespace", "tool", "underscore", "dotted"),
    [
        ("roblox", "script_create", "roblox_script_create", "roblox.script_create"),
        ("workflow", "run", "workflow_run", "workflow.run"),
        ("launch", "launch_start_run", "launch_start_run", "launch.start_run"),
        ("godot", "godot_scene_manager", "godot_scene_manager", "godot.scene_manager"),
        ("a-b", "x-Y9", "a-b_x-Y9", "a-b.x-Y9"),
        ("ns", "ns", "ns_ns", "ns.ns"),
        ("ns", "ns_", "ns_ns_", "ns.ns_"),
        ("ns", "nsx", "ns_nsx", "ns.nsx"),
        ("ns", "ns-x", "ns_ns-x", "ns.ns-x"),
        ("ns", "ns_ns_x", "ns_ns_x", "ns.ns_x"),
        ("ns", "other_pay", "ns_other_pay", "ns.other_pay"),
        ("ns", "a" * 45, "ns_" + "a" * 45, "ns." + "a" * 45),
    ],
)
def test_a_name_is_its_namespace_and_tool(namespace: str, tool: str, underscore: str, dotted: str) -> None:
    assert exposed(namespace, tool, "underscore") == underscore
    assert exposed(namespace, tool, "dotted") == canonical(namespace, tool) == dotted
    assert exposed(namespace, tool, "bare") == tool


# Written out: clients keep these names in their settings, so a change of rule must show here.
@pytest.mark.parametrize(
    ("tool", "underscore"),
    [
        ("repo.create", "github_repo_create_7c7sma"),
        ("repo/create", "github_repo_create_qdboig"),
        ("größe", "github_gr__e_vq2y73"),
        ("a" * 42, "github_" + "a" * 34 + "_l6ckxp"),
        ("github_" + "a" * 42, "github_" + "a" * 34 + "_l6ckxp"),
    ],
)
def test_a_name_that_does_not_fit_is_mended_and_gets_a_digest(tool: str, underscore: str) -> None:
    assert exposed("github", tool, "underscore") == underscore


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("roblox_script_create", ("roblox", "script_create")),
        ("roblox.script_create", ("roblox", "script_create")),
        ("a-b_c.d", ("a-b", "c.d")),
        ("a.b_c", ("a", "b_c")),
        ("ns_\n", ("ns", "\n")),
        ("ns_", None),
        ("_x", None),
        (".x", None),
        ("ns", None),
        ("", None),
        ("Ns_x", None),
        ("9s_x", None),
        ("n s_x", None),
        ("a" * 21 + "_x", None),
        ("ns\n_x", None),
    ],
)
def test_the_first_underscore_or_dot_splits(name: str, parts: tuple[str, str] | None) -> None:
    assert split(name) == parts


@fuzzed
@given(namespaces, tools)
def test_a_name_in_underscore_mode_fits_every_client_and_says_whose_it_is(namespace: str, tool: str) -> None:
    name = exposed(namespace, tool, "underscore")
    assert EXPOSED.fullmatch(name)
    for spoken in (name, canonical(namespace, tool)):
        parts = split(spoken)
        assert parts is not None
        assert parts[0] == namespace


@fuzzed
@given(namespaces, namespaces, tools)
def test_no_backend_can_make_a_name_with_the_prefix_of_another(mine: str, other: str, tool: str) -> None:
    assume(mine != other)
    modes: tuple[Mode, ...] = ("underscore", "dotted")
    for mode in modes:
        for named in (tool, f"{other}_{tool}", f"{other}.{tool}"):
            assert not exposed(mine, named, mode).startswith((f"{other}_", f"{other}."))


@fuzzed
@given(namespaces, st.sets(tools, max_size=12), st.data())
def test_no_two_tools_share_a_name_unless_reported(namespace: str, listed: set[str], data: st.DataObject) -> None:
    twice = data.draw(st.sets(st.sampled_from(sorted(listed)))) if listed else set[str]()
    mended = data.draw(st.sets(st.sampled_from(sorted(listed)))) if listed else set[str]()
    offered = listed | {f"{namespace}_{tool}" for tool in twice}
    offered |= {exposed(namespace, tool, "underscore") for tool in mended}
    quarantined = collisions(namespace, offered)
    assert quarantined <= offered
    served = offered - quarantined
    assert len({exposed(namespace, tool, "underscore") for tool in served}) == len(served)
    assert len({canonical(namespace, tool) for tool in served}) == len(served)


@fuzzed
@given(namespaces, namespaces, tools, tools)
def test_tools_of_two_backends_never_share_a_name(one: str, other: str, tool: str, another: str) -> None:
    assume(one != other)
    assert exposed(one, tool, "underscore") != exposed(other, another, "underscore")
    assert canonical(one, tool) != canonical(other, another)


@pytest.mark.parametrize(
    ("offered", "quarantined"),
    [
        ({"x", "y"}, set[str]()),
        ({"x", "ns_x"}, {"x"}),
        ({"x!", "ns_x!"}, {"x!"}),
        ({"ns_", "ns_ns_"}, {"ns_"}),
        ({"x", "ns_x", "ns_ns_x"}, {"x"}),
        ({"a" * 60, "ns_" + "a" * 60}, {"a" * 60}),
        ({"x!", "x?", "x_"}, set[str]()),
        ({"x!", exposed("ns", "x!", "underscore")}, {"x!"}),
        ({"x!", exposed("ns", "x!", "underscore").removeprefix("ns_")}, {"x!"}),
    ],
)
def test_of_tools_that_would_share_a_name_the_plainest_stays(offered: set[str], quarantined: set[str]) -> None:
    assert collisions("ns", offered) == quarantined


def test_of_two_names_that_digests_made_alike_neither_is_served() -> None:
    seen: dict[str, str] = {}
    twins: set[str] = set()
    for number in range(200_000):
        # A cut of the same length leaves only the digest to tell them apart.
        tool = f"{'a' * 60}{number}"
        first = seen.setdefault(exposed("ns", tool, "underscore"), tool)
        if first != tool:
            twins = {first, tool}
            break
    assert len(twins) == 2
    assert collisions("ns", [*twins, "x"]) == twins


def test_the_limits_are_the_operators() -> None:
    assert exposed("ns", "a" * 60, "underscore", max_length=128) == "ns_" + "a" * 60
    assert len(exposed("ns", "a" * 60, "underscore", max_length=64, prefix_budget=0)) == 63
    assert len(exposed("n" * 20, "a" * 60, "underscore", SHORTEST_LIMIT, 0)) == SHORTEST_LIMIT
    with pytest.raises(ValueError, match="at least"):
        exposed("ns", "x", "underscore", SHORTEST_LIMIT - 1, 0)
