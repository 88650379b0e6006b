import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.catalogue.names import MIN_NAME_LENGTH, NAMESPACE, Mode, canonical, collisions, exposed_name, split

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
def test_name_consists_of_namespace_and_tool(namespace: str, tool: str, underscore: str, dotted: str) -> None:
    assert exposed_name(namespace, tool, "underscore") == underscore
    assert exposed_name(namespace, tool, "dotted") == canonical(namespace, tool) == dotted
    assert exposed_name(namespace, tool, "bare") == tool


# Literal values: clients store these names in their settings, so a changed rule must fail here.
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
def test_invalid_or_long_name_is_sanitized_and_gets_a_digest(tool: str, underscore: str) -> None:
    assert exposed_name("github", tool, "underscore") == underscore


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
def test_first_underscore_or_dot_separates_the_namespace(name: str, parts: tuple[str, str] | None) -> None:
    assert split(name) == parts


@fuzzed
@given(namespaces, tools)
def test_underscore_name_is_valid_for_every_client_and_contains_its_namespace(namespace: str, tool: str) -> None:
    name = exposed_name(namespace, tool, "underscore")
    assert EXPOSED.fullmatch(name)
    for form in (name, canonical(namespace, tool)):
        parts = split(form)
        assert parts is not None
        assert parts[0] == namespace


@fuzzed
@given(namespaces, namespaces, tools)
def test_backend_cannot_create_a_name_with_the_prefix_of_another(mine: str, other: str, tool: str) -> None:
    assume(mine != other)
    modes: tuple[Mode, ...] = ("underscore", "dotted")
    for mode in modes:
        for named in (tool, f"{other}_{tool}", f"{other}.{tool}"):
            assert not exposed_name(mine, named, mode).startswith((f"{other}_", f"{other}."))


@fuzzed
@given(namespaces, st.sets(tools, max_size=12), st.data())
def test_no_two_tools_share_a_name_unless_reported(namespace: str, listed: set[str], data: st.DataObject) -> None:
    prefixed = data.draw(st.sets(st.sampled_from(sorted(listed)))) if listed else set[str]()
    sanitized = data.draw(st.sets(st.sampled_from(sorted(listed)))) if listed else set[str]()
    listed_tools = listed | {f"{namespace}_{tool}" for tool in prefixed}
    listed_tools |= {exposed_name(namespace, tool, "underscore") for tool in sanitized}
    quarantined = collisions(namespace, listed_tools)
    assert quarantined <= listed_tools
    served = listed_tools - quarantined
    assert len({exposed_name(namespace, tool, "underscore") for tool in served}) == len(served)
    assert len({canonical(namespace, tool) for tool in served}) == len(served)


@fuzzed
@given(namespaces, namespaces, tools, tools)
def test_tools_of_two_backends_never_share_a_name(one: str, other: str, tool: str, another: str) -> None:
    assume(one != other)
    assert exposed_name(one, tool, "underscore") != exposed_name(other, another, "underscore")
    assert canonical(one, tool) != canonical(other, another)


@pytest.mark.parametrize(
    ("listed_tools", "quarantined"),
    [
        ({"x", "y"}, set[str]()),
        ({"x", "ns_x"}, {"x"}),
        ({"x!", "ns_x!"}, {"x!"}),
        ({"ns_", "ns_ns_"}, {"ns_"}),
        ({"x", "ns_x", "ns_ns_x"}, {"x"}),
        ({"a" * 60, "ns_" + "a" * 60}, {"a" * 60}),
        ({"x!", "x?", "x_"}, set[str]()),
        ({"x!", exposed_name("ns", "x!", "underscore")}, {"x!"}),
        ({"x!", exposed_name("ns", "x!", "underscore").removeprefix("ns_")}, {"x!"}),
    ],
)
def test_of_tools_with_the_same_name_the_literal_or_prefixed_one_stays(
    listed_tools: set[str], quarantined: set[str]
) -> None:
    assert collisions("ns", listed_tools) == quarantined


def test_two_tools_with_the_same_digest_name_are_both_quarantined() -> None:
    seen: dict[str, str] = {}
    colliding: set[str] = set()
    for number in range(200_000):
        # Truncated to the same prefix, so that only the digests differ.
        tool = f"{'a' * 60}{number}"
        first = seen.setdefault(exposed_name("ns", tool, "underscore"), tool)
        if first != tool:
            colliding = {first, tool}
            break
    assert len(colliding) == 2
    assert collisions("ns", [*colliding, "x"]) == colliding


def test_length_limits_are_configurable() -> None:
    assert exposed_name("ns", "a" * 60, "underscore", max_length=128) == "ns_" + "a" * 60
    assert len(exposed_name("ns", "a" * 60, "underscore", max_length=64, prefix_budget=0)) == 63
    assert len(exposed_name("n" * 20, "a" * 60, "underscore", MIN_NAME_LENGTH, 0)) == MIN_NAME_LENGTH
    with pytest.raises(ValueError, match="at least"):
        exposed_name("ns", "x", "underscore", MIN_NAME_LENGTH - 1, 0)
