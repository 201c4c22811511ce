# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of the fio benchmark: what is taken from the files of the runs, and
what may be said about a difference.

A results directory has matrix.json, machine.json and a file per measured
run; nothing else is read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy

FORMAT = 1
# Resamples, and the seed that makes the report the same every time
RESAMPLES = 10000
SEED = 20170610
CONFIDENCE = 0.95
# With fewer rounds there is no 95 % interval for a median: the least and the
# greatest of five values enclose it with 1 - 2 * 0.5^5 = 94 %.
ROUNDS_MIN = 5
# A careful fio run repeats within this; the least that counts as a difference
NOISE_MIN = 0.03


class Metric(NamedTuple):
    """A figure of a run."""

    key: str
    title: str
    unit: str
    digits: int
    more_is_better: bool


METRICS = (
    Metric("iops", "IOPS", "", 0, True),
    Metric("cpu_percent", "IOThread CPU", "%", 1, False),
    Metric("cpu_us", "IOThread CPU per I/O", "us", 2, False),
    Metric("vcpu_us", "vCPU CPU per I/O", "us", 2, False),
    Metric("p50_us", "latency p50", "us", 1, False),
    Metric("p99_us", "latency p99", "us", 1, False),
)
BY_KEY = {metric.key: metric for metric in METRICS}


class Run(NamedTuple):
    """One measured run."""

    path: str            # of its file, below the results directory
    round: int
    figures: Dict[str, float]
    percentiles: Dict[float, float]  # latency in us
    data: Dict[str, Any]


class Failure(NamedTuple):
    """A run that was tried and not made."""

    path: str
    error: str


@dataclass
class Results:
    """All runs of a results directory, by cell and variant."""

    matrix: Dict[str, Any]
    machine: Dict[str, Any]
    runs: Dict[Tuple[str, str], List[Run]] = field(default_factory=dict)
    failures: List[Failure] = field(default_factory=list)

    @property
    def cells(self) -> List[str]:
        return [cell for cell in self.matrix["cells"]
                if any((cell, variant) in self.runs
                       for variant in self.matrix["variants"])]

    @property
    def variants(self) -> List[str]:
        return [variant for variant in self.matrix["variants"]
                if any((cell, variant) in self.runs
                       for cell in self.matrix["cells"])]

    @property
    def baseline(self) -> str:
        return str(self.matrix["variants"][0])

    def count(self) -> int:
        return sum(map(len, self.runs.values()))

    def wanted(self) -> int:
        """How many runs there are when the cells that were begun are done."""
        return (len(self.cells) * len(self.matrix["variants"]) *
                int(self.matrix["rounds"]))

    def one(self) -> Run:
        """Any run, for what all have in common."""
        return next(iter(self.runs.values()))[0]

    def of_variant(self, variant: str) -> Run:
        return next(runs[0] for (_, name), runs in self.runs.items()
                    if name == variant)


# ---------------------------------------------------------------------------
# Reading


def run_of(path: str, data: Dict[str, Any]) -> Run:
    """KeyError, ValueError or the like when the file has no figures."""
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']}")
    job, = data["fio"]["client_stats"]
    parts = [job[name] for name in ("read", "write")
             if job[name]["total_ios"]]
    part, = parts  # every load reads or writes, none does both
    percentiles = {float(name): value / 1e3
                   for name, value in part["lat_ns"]["percentile"].items()}
    cpu_ns = data["host"]["cpu_ns"]
    ios = part["total_ios"]
    figures = {
        "iops": part["iops"],
        "cpu_percent": cpu_ns["iothreads"] / (part["runtime"] * 1e6) * 100,
        "cpu_us": cpu_ns["iothreads"] / ios / 1e3,
        "vcpu_us": cpu_ns["vcpus"] / ios / 1e3,
        "p50_us": percentiles[50.0],
        "p99_us": percentiles[99.0],
    }
    return Run(path, data["round"], figures, percentiles, data)


def load(directory: Path) -> Results:
    """Read a results directory; ValueError says what is wrong with it."""
    results = Results(_read(directory / "matrix.json"),
                      _read(directory / "machine.json"))
    for cell in results.matrix["cells"]:
        for variant in results.matrix["variants"]:
            for number in range(1, results.matrix["rounds"] + 1):
                _add(results, directory, cell, variant, number)
    if results.baseline not in results.variants:
        raise ValueError(f"{directory} has no run of {results.baseline}, "
                         "which the others are compared with")
    return results


def _read(path: Path) -> Dict[str, Any]:
    try:
        data: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    return data


def _add(results: Results, directory: Path, cell: str, variant: str,
         number: int) -> None:
    name = f"runs/{cell}/{variant}.{number}.json"
    failed = directory / name.replace(".json", ".failed")
    if (directory / name).exists():
        data = _read(directory / name)
        try:
            run = run_of(name, data)
        except (KeyError, ValueError, TypeError, ZeroDivisionError) as error:
            raise ValueError(f"{directory / name} has no figures: "
                             f"{error!r}; remove it and run again") from error
        results.runs.setdefault((cell, variant), []).append(run)
    elif failed.exists():
        results.failures.append(Failure(
            str(failed.relative_to(directory)), _read(failed)["error"]))


# ---------------------------------------------------------------------------
# Statistics


def median(runs: Sequence[Run], key: str) -> float:
    return float(numpy.median([run.figures[key] for run in runs]))


def percentile_median(runs: Sequence[Run], percentile: float) -> float:
    return float(numpy.median([run.percentiles[percentile] for run in runs]))


class Difference(NamedTuple):
    """Of a variant to the baseline, as ratios minus 1."""

    middle: float
    low: Optional[float]   # None: too few rounds for an interval
    high: Optional[float]

    def beyond(self, limit: float) -> bool:
        """Is it more than noise?"""
        if self.low is None or self.high is None:
            return False
        return abs(self.middle) > limit and not self.low <= 0 <= self.high


def ratios(base: Sequence[Run], runs: Sequence[Run],
           key: str) -> List[float]:
    """Of the runs of the same round, which were made one after the other:
    what drifts slowly does not show in them."""
    by_round = {run.round: run.figures[key] for run in base}
    return [run.figures[key] / by_round[run.round] for run in runs
            if by_round.get(run.round)]


def resampled_medians(values: Sequence[float],
                      random: numpy.random.Generator) -> Any:
    """The medians of samples that are drawn from a sample."""
    drawn = random.integers(0, len(values), (RESAMPLES, len(values)))
    return numpy.median(numpy.asarray(values)[drawn], axis=1)


def interval(medians: Any) -> Tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = numpy.quantile(medians, [tail, 1 - tail])
    return float(low), float(high)


def difference(values: Sequence[float]) -> Optional[Difference]:
    """Median of ratios with a bootstrap interval; None without any."""
    if not values:
        return None
    middle = float(numpy.median(values)) - 1
    if len(values) < ROUNDS_MIN:
        return Difference(middle, None, None)
    low, high = interval(
        resampled_medians(values, numpy.random.default_rng(SEED)))
    return Difference(middle, low - 1, high - 1)


def compare(results: Results, cell: str, variant: str,
            key: str) -> Optional[Difference]:
    """A variant with the baseline, in one cell."""
    base = results.runs.get((cell, results.baseline), [])
    runs = results.runs.get((cell, variant), [])
    return difference(ratios(base, runs, key))


class Overall(NamedTuple):
    """A variant with the baseline, over all cells."""

    mean: Difference   # geometric
    worst: float
    worst_cell: str


def overall(results: Results, variant: str, key: str) -> Optional[Overall]:
    """Geometric mean over the cells, each weighing the same; its interval
    comes from drawing rounds within every cell."""
    base = results.baseline
    by_cell = {}
    for cell in results.cells:
        values = ratios(results.runs.get((cell, base), []),
                        results.runs.get((cell, variant), []), key)
        if values:
            by_cell[cell] = values
    if not by_cell:
        return None
    middles = {cell: float(numpy.median(values))
               for cell, values in by_cell.items()}
    pick = min if BY_KEY[key].more_is_better else max
    worst = pick(middles, key=lambda cell: middles[cell])
    mean = float(numpy.exp(numpy.mean(numpy.log(list(middles.values())))))
    if min(map(len, by_cell.values())) < ROUNDS_MIN:
        return Overall(Difference(mean - 1, None, None),
                       middles[worst] - 1, worst)
    random = numpy.random.default_rng(SEED)
    logs = [numpy.log(resampled_medians(values, random))
            for values in by_cell.values()]
    low, high = interval(numpy.exp(numpy.mean(logs, axis=0)))
    return Overall(Difference(mean - 1, low - 1, high - 1),
                   middles[worst] - 1, worst)


# ---------------------------------------------------------------------------
# Noise


def twins(results: Results) -> List[str]:
    """Variants that are the same as the baseline under another name."""
    def what(variant: str) -> Tuple[str, Dict[str, Any]]:
        setting = results.of_variant(variant).data["setting"]
        return setting["qemu"]["sha256"], setting["properties"]
    return [variant for variant in results.variants
            if variant != results.baseline and
            what(variant) == what(results.baseline)]


def noise_limit(results: Results, key: str) -> float:
    """What two runs of the same thing differ by, at the most seen here."""
    found = [NOISE_MIN]
    for twin in twins(results):
        for cell in results.cells:
            seen = compare(results, cell, twin, key)
            if seen:
                found.append(abs(seen.middle))
    return max(found)
