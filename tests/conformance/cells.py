"""Direct beside through the gateway, for each front and each backend: nothing lost, nothing added."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.conformance.suite import Check
from tests.conformance.target import alone, gateway, remote

EXPECTED: Final = Path(__file__).with_name("expected-failures.yaml")

Name = str
"""`scenario:check`."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One revision at the front, one kind of server behind."""

    front: str
    behind: str
    target: Callable[[Path], AbstractAsyncContextManager[str]]

    @property
    def name(self) -> str:
        return f"{self.front} over {self.behind}"


def _direct(era: str) -> Callable[[Path], AbstractAsyncContextManager[str]]:
    @asynccontextmanager
    async def target(folder: Path) -> AsyncGenerator[str]:
        async with alone(folder, era) as url:
            yield url

    return target


def _through(era: str) -> Callable[[Path], AbstractAsyncContextManager[str]]:
    @asynccontextmanager
    async def target(folder: Path) -> AsyncGenerator[str]:
        async with remote(folder, era) as url:
            yield url

    return target


DIRECT: Final = (
    Cell("2025-11-25", "direct", _direct("handshake")),
    Cell("2026-07-28", "direct", _direct("modern")),
)
CELLS: Final = (
    Cell("2025-11-25", "handshake", _through("handshake")),
    Cell("2025-11-25", "modern", _through("modern")),
    Cell("2025-11-25", "module", gateway),
    Cell("2026-07-28", "handshake", _through("handshake")),
    Cell("2026-07-28", "modern", _through("modern")),
    Cell("2026-07-28", "module", gateway),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """What the gateway changed in what the suite sees."""

    direct: int
    through: int
    lost: tuple[Name, ...]
    """Passed direct and not through the gateway."""
    added: tuple[str, ...]
    """Failures and warnings that are not there direct, and not of a check that was lost."""


def compare(direct: Sequence[Check], through: Sequence[Check]) -> Difference:
    before, after = _with(direct, "SUCCESS"), _with(through, "SUCCESS")
    lost = before - after
    trouble = _with(through, "FAILURE", "WARNING") - _with(direct, "FAILURE", "WARNING")
    known = set(lost)
    return Difference(
        before.total(),
        after.total(),
        tuple(sorted(lost.elements())),
        tuple(sorted(name for name in trouble.elements() if name not in known)),
    )


def expected(file: Path = EXPECTED) -> Mapping[str, Mapping[Name, str]]:
    """Cell -> check -> why it cannot be bridged. Raises `ValueError` for one without a reason."""
    told: dict[str, dict[Name, str]] = yaml.safe_load(file.read_text())
    for cell, checks in told.items():
        for name, reason in checks.items():
            if not isinstance(reason, str) or len(reason.split()) < 5:
                raise ValueError(f"{file.name}: {cell}: {name} has no reason")
    return told


def verdict(difference: Difference, reasons: Mapping[Name, str]) -> list[str]:
    """What is wrong with a cell; nothing when all that is lost has its reason, and no reason is stale."""
    wrong = [f"lost {name}" for name in difference.lost if name not in reasons]
    wrong += [f"added {name}" for name in difference.added]
    wrong += [f"{name} is expected to fail, and passes" for name in reasons if name not in difference.lost]
    return wrong


def table(rows: Sequence[tuple[Cell, Difference, Mapping[Name, Any]]]) -> str:
    lines = [f"{'front':12}{'backend':12}{'direct':>8}{'through':>9}{'lost':>7}{'of these expected':>20}{'added':>8}"]
    for cell, difference, reasons in rows:
        known = sum(name in reasons for name in difference.lost)
        counts = f"{difference.direct:>8}{difference.through:>9}{len(difference.lost):>7}{known:>20}"
        lines.append(f"{cell.front:12}{cell.behind:12}{counts}{len(difference.added):>8}")
    return "\n".join(lines)


def _with(checks: Sequence[Check], *statuses: str) -> Counter[Name]:
    return Counter(f"{check.scenario}:{check.id}" for check in checks if check.status in statuses)
