"""From cells to figures: medians over rounds, and ratios taken inside each round before their median."""

from dataclasses import dataclass
from statistics import median

from bench.run import Cell, Findings, Standing

BUSY = (16, 64)
"""The concurrencies whose CPU per call is the headline: the loop is busy, and no queue is measured."""


@dataclass(frozen=True, slots=True)
class Line:
    """One candidate at one concurrency, over all rounds."""

    candidate: str
    concurrency: int
    cpu_us: float
    ratio: float | None
    """Its CPU per call as a multiple of its floor's; None when the floor was not measured."""
    p50_us: float
    p99_us: float
    calls_per_second: float
    driver_us: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """One candidate in short."""

    standing: Standing
    cpu_us: float
    ratio: float | None
    calls: int
    errors: int
    complaint: str | None

    @property
    def trouble(self) -> str | None:
        """Why it does not hold what it must; None when it does."""
        candidate = self.standing.candidate
        if self.standing.failure is not None:
            return f"{candidate.name}: {self.standing.failure}"
        if self.errors:
            return f"{candidate.name}: {self.errors} wrong answers, the first: {self.complaint}"
        if candidate.bound is not None and self.ratio is None:
            return f"{candidate.name}: its floor, {candidate.floor}, was not measured"
        if candidate.bound is not None and self.ratio is not None and self.ratio > candidate.bound:
            return f"{candidate.name}: {self.ratio:.2f} × {candidate.floor}, over the bound of {candidate.bound:g} ×"
        return None


@dataclass(frozen=True, slots=True)
class Summary:
    verdicts: tuple[Verdict, ...]
    lines: tuple[Line, ...]


def summarise(findings: Findings) -> Summary:
    measured = tuple(cell for cell in findings.cells if cell.calls)
    floors = {standing.candidate.name: standing.candidate.floor for standing in findings.standings}
    pairs = {(cell.candidate, cell.concurrency): None for cell in measured}
    lines = [_line(name, concurrency, floors[name], measured) for name, concurrency in pairs]
    order = list(floors)
    lines.sort(key=lambda line: (order.index(line.candidate), line.concurrency))
    return Summary(tuple(_verdict(standing, findings.cells) for standing in findings.standings), tuple(lines))


def _line(name: str, concurrency: int, floor: str, cells: tuple[Cell, ...]) -> Line:
    own = [cell for cell in cells if cell.candidate == name and cell.concurrency == concurrency]
    return Line(
        candidate=name,
        concurrency=concurrency,
        cpu_us=median(cell.cpu_us for cell in own),
        ratio=_ratio(own, floor, cells),
        p50_us=median(cell.p50_us for cell in own),
        p99_us=median(cell.p99_us for cell in own),
        calls_per_second=median(cell.calls / cell.seconds for cell in own),
        driver_us=median(cell.driver_us for cell in own),
    )


def _verdict(standing: Standing, cells: tuple[Cell, ...]) -> Verdict:
    every = [cell for cell in cells if cell.candidate == standing.candidate.name]
    own = [cell for cell in every if cell.calls]
    # A run with other concurrencies than the usual has its headline over all of them.
    busy = [cell for cell in own if cell.concurrency in BUSY] or own
    return Verdict(
        standing=standing,
        cpu_us=median(cell.cpu_us for cell in busy) if busy else 0.0,
        ratio=_ratio(busy, standing.candidate.floor, cells),
        calls=sum(cell.calls for cell in own),
        errors=sum(cell.errors for cell in every),
        complaint=next((cell.complaint for cell in every if cell.complaint), None),
    )


def _ratio(own: list[Cell], floor: str, cells: tuple[Cell, ...]) -> float | None:
    below = {(cell.concurrency, cell.round): cell.cpu_us for cell in cells if cell.candidate == floor}
    ratios = [cell.cpu_us / cost for cell in own if (cost := below.get((cell.concurrency, cell.round)))]
    return median(ratios) if ratios else None
