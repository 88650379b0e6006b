"""Approval by a group: the annotations `@approval`, `@approvers` and `@within` of a policy."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

DEFAULT_SECONDS: Final = 3600.0
MAX_SECONDS: Final = 7 * 86400.0
_MAX_APPROVERS: Final = 10
_GROUP: Final = re.compile(r"group:([^\s:,/\"]{1,128})")
_DURATION: Final = re.compile(r"([1-9][0-9]{0,5})([smhd])", re.ASCII)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """The approval that one policy requires: by members of a group, other than the caller, within a time."""

    group: str
    approvers: int = 1
    seconds: float = DEFAULT_SECONDS


@dataclass(frozen=True, slots=True)
class ApprovalRequirement:
    """The approval that a call requires, of all policies that ask for one."""

    groups: tuple[tuple[str, int], ...]
    """Each group with the number of its members that must approve."""
    seconds: float

    @property
    def names(self) -> frozenset[str]:
        return frozenset(group for group, _ in self.groups)

    def is_met(self, approvers: Iterable[frozenset[str]]) -> bool:
        """Whether these approvers suffice; each is given by its groups and counts for each of them."""
        present = list(approvers)
        return all(sum(group in groups for groups in present) >= count for group, count in self.groups)

    def describe(self) -> str:
        return " and ".join(
            f"a member of the group {group}" if count == 1 else f"{count} members of the group {group}"
            for group, count in self.groups
        )


def parse_rule(annotations: Mapping[str, str]) -> ApprovalRule | None:
    """Parse the annotations of a policy; None without `@approval`. Raises `ValueError`."""
    if "approval" not in annotations:
        if found := [name for name in ("approvers", "within") if name in annotations]:
            raise ValueError(f'@{found[0]} needs @approval("group:NAME")')
        return None
    group = _GROUP.fullmatch(annotations["approval"])
    if group is None:
        raise ValueError('@approval must name a group, such as @approval("group:platform")')
    count = annotations.get("approvers", "1")
    if not count.isascii() or not count.isdigit() or not 1 <= int(count) <= _MAX_APPROVERS:
        raise ValueError(f"@approvers must be a number from 1 to {_MAX_APPROVERS}")
    return ApprovalRule(group[1], int(count), _seconds(annotations.get("within")))


def combine_rules(rules: Iterable[ApprovalRule]) -> ApprovalRequirement | None:
    """Combine the rules of all policies that ask: every group must approve, within the shortest time."""
    groups: dict[str, int] = {}
    seconds = MAX_SECONDS
    for rule in rules:
        groups[rule.group] = max(groups.get(rule.group, 0), rule.approvers)
        seconds = min(seconds, rule.seconds)
    return ApprovalRequirement(tuple(sorted(groups.items())), seconds) if groups else None


def _seconds(text: str | None) -> float:
    if text is None:
        return DEFAULT_SECONDS
    match = _DURATION.fullmatch(text)
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError("@within must be a duration up to 7d, such as 30m")
    return float(seconds)
