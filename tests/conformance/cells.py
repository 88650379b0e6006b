"""The test matrix: compares the suite's results direct and through the gateway, per protocol version and backend."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.conformance.suite import Check
from tests.conformance.target import gateway_over_sdk_server, gateway_server, sdk_server

EXPECTED: Final = Path(__file__).with_name("expected-failures.yaml")

CheckName = str
"""`scenario:check`."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One protocol version on the client side and one kind of backend."""

    front: str
    backend: str
    target: Callable[[Path], AbstractAsyncContextManager[str]]

    @property
    def name(self) -> str:
        return f"{self.front} over {self.backend}"


def _direct(era: str) -> Callable[[Path], AbstractAsyncContextManager[str]]:
    @asynccontextmanager
    async def target(folder: Path) -> AsyncGenerator[str]:
        async with sdk_server(folder, era) as url:
            yield url

    return target


def _through(era: str) -> Callable[[Path], AbstractAsyncContextManager[str]]:
    @asynccontextmanager
    async def target(folder: Path) -> AsyncGenerator[str]:
        async with gateway_over_sdk_server(folder, era) as url:
            yield url

    return target


DIRECT: Final = (
    Cell("2025-11-25", "direct", _direct("handshake")),
    Cell("2026-07-28", "direct", _direct("modern")),
)
CELLS: Final = (
    Cell("2025-11-25", "handshake", _through("handshake")),
    Cell("2025-11-25", "modern", _through("modern")),
    Cell("2025-11-25", "module", gateway_server),
    Cell("2026-07-28", "handshake", _through("handshake")),
    Cell("2026-07-28", "modern", _through("modern")),
    Cell("2026-07-28", "module", gateway_server),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences between the results direct and through the gateway."""

    direct: int
    through: int
    lost: tuple[CheckName, ...]
    """Checks that pass direct but not through the gateway."""
    added: tuple[str, ...]
    """Checks that fail or warn only through the gateway, excluding lost checks."""


def compare(direct: Sequence[Check], through: Sequence[Check]) -> Difference:
    before, after = _count_checks(direct, "SUCCESS"), _count_checks(through, "SUCCESS")
    lost = before - after
    added = _count_checks(through, "FAILURE", "WARNING") - _count_checks(direct, "FAILURE", "WARNING")
    known = set(lost)
    return Difference(
        before.total(),
        after.total(),
        tuple(sorted(lost.elements())),
        tuple(sorted(name for name in added.elements() if name not in known)),
    )


def load_expected_failures(file: Path = EXPECTED) -> Mapping[str, Mapping[CheckName, str]]:
    """Load the expected failures: cell -> check -> reason. Raises `ValueError` for a check without a reason."""
    failures: dict[str, dict[CheckName, str]] = yaml.safe_load(file.read_text())
    for cell, checks in failures.items():
        for name, reason in checks.items():
            if not isinstance(reason, str) or len(reason.split()) < 5:
                raise ValueError(f"{file.name}: {cell}: {name} has no reason")
    return failures


def find_problems(difference: Difference, reasons: Mapping[CheckName, str]) -> list[str]:
    """Return the problems of a cell: lost checks without a reason, added failures, and stale reasons."""
    problems = [f"lost {name}" for name in difference.lost if name not in reasons]
    problems += [f"added {name}" for name in difference.added]
    problems += [f"{name} is expected to fail but passes" for name in reasons if name not in difference.lost]
    return problems


def format_table(rows: Sequence[tuple[Cell, Difference, Mapping[CheckName, Any]]]) -> str:
    lines = [f"{'front':12}{'backend':12}{'direct':>8}{'through':>9}{'lost':>7}{'of these expected':>20}{'added':>8}"]
    for cell, difference, reasons in rows:
        known = sum(name in reasons for name in difference.lost)
        counts = f"{difference.direct:>8}{difference.through:>9}{len(difference.lost):>7}{known:>20}"
        lines.append(f"{cell.front:12}{cell.backend:12}{counts}{len(difference.added):>8}")
    return "\n".join(lines)


def _count_checks(checks: Sequence[Check], *statuses: str) -> Counter[CheckName]:
    return Counter(f"{check.scenario}:{check.id}" for check in checks if check.status in statuses)
