"""Summarizes cells: medians over rounds, and medians of the ratios taken within each round."""

from dataclasses import dataclass
from statistics import median

from bench.run import CandidateResult, Cell, RunResults

HEADLINE_CONCURRENCY = (16, 64)
"""The concurrencies of the headline CPU per call: the event loop is busy, but queueing does not dominate."""


@dataclass(frozen=True, slots=True)
class Line:
    """One candidate at one concurrency, over all rounds."""

    candidate: str
    concurrency: int
    cpu_us: float
    ratio: float | None
    """CPU per call as a multiple of the baseline's; None when the baseline was not measured."""
    p50_us: float
    p99_us: float
    calls_per_second: float
    driver_us: float


@dataclass(frozen=True, slots=True)
class CandidateSummary:
    """The headline figures of one candidate."""

    result: CandidateResult
    cpu_us: float
    ratio: float | None
    calls: int
    errors: int
    complaint: str | None

    @property
    def problem(self) -> str | None:
        """The reason why the candidate failed or exceeds its bound; None when it passes."""
        candidate = self.result.candidate
        if self.result.failure is not None:
            return f"{candidate.name}: {self.result.failure}"
        if self.errors:
            return f"{candidate.name}: {self.errors} wrong responses, the first: {self.complaint}"
        if candidate.bound is not None and self.ratio is None:
            return f"{candidate.name}: its baseline {candidate.baseline} was not measured"
        if candidate.bound is not None and self.ratio is not None and self.ratio > candidate.bound:
            return f"{candidate.name}: {self.ratio:.2f} × {candidate.baseline}, over the bound of {candidate.bound:g} ×"
        return None


@dataclass(frozen=True, slots=True)
class Summary:
    candidates: tuple[CandidateSummary, ...]
    lines: tuple[Line, ...]


def summarise(results: RunResults) -> Summary:
    measured = tuple(cell for cell in results.cells if cell.calls)
    baselines = {result.candidate.name: result.candidate.baseline for result in results.candidates}
    pairs = {(cell.candidate, cell.concurrency): None for cell in measured}
    lines = [_line(name, concurrency, baselines[name], measured) for name, concurrency in pairs]
    order = list(baselines)
    lines.sort(key=lambda line: (order.index(line.candidate), line.concurrency))
    return Summary(tuple(_summarise_candidate(result, results.cells) for result in results.candidates), tuple(lines))


def _line(name: str, concurrency: int, baseline: str, cells: tuple[Cell, ...]) -> Line:
    own = [cell for cell in cells if cell.candidate == name and cell.concurrency == concurrency]
    return Line(
        candidate=name,
        concurrency=concurrency,
        cpu_us=median(cell.cpu_us for cell in own),
        ratio=_ratio(own, baseline, cells),
        p50_us=median(cell.p50_us for cell in own),
        p99_us=median(cell.p99_us for cell in own),
        calls_per_second=median(cell.calls / cell.seconds for cell in own),
        driver_us=median(cell.driver_us for cell in own),
    )


def _summarise_candidate(result: CandidateResult, cells: tuple[Cell, ...]) -> CandidateSummary:
    all_cells = [cell for cell in cells if cell.candidate == result.candidate.name]
    own = [cell for cell in all_cells if cell.calls]
    # A run without the headline concurrencies uses all of its concurrencies.
    headline = [cell for cell in own if cell.concurrency in HEADLINE_CONCURRENCY] or own
    return CandidateSummary(
        result=result,
        cpu_us=median(cell.cpu_us for cell in headline) if headline else 0.0,
        ratio=_ratio(headline, result.candidate.baseline, cells),
        calls=sum(cell.calls for cell in own),
        errors=sum(cell.errors for cell in all_cells),
        complaint=next((cell.complaint for cell in all_cells if cell.complaint), None),
    )


def _ratio(own: list[Cell], baseline: str, cells: tuple[Cell, ...]) -> float | None:
    baseline_costs = {(cell.concurrency, cell.round): cell.cpu_us for cell in cells if cell.candidate == baseline}
    ratios = [cell.cpu_us / cost for cell in own if (cost := baseline_costs.get((cell.concurrency, cell.round)))]
    return median(ratios) if ratios else None
