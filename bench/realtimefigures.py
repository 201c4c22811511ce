# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of the real-time bench: what is kept of a run, medians and spread,
and how they are stored.

The results file holds every sample, so that all that is said about them can
be computed again.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence

from labfigures import Comparison

FORMAT = 1
# Above this, a median says more about the machine than about the program
SPREAD_MAX = 0.10


class Sample(NamedTuple):
    """One scenario of one run; what is per request is divided already."""

    iops: float
    cpu_ns: float        # CPU time of the loop's thread per request
    cpu_percent: float
    mean_ns: int         # latency
    p50_ns: int
    p99_ns: int
    wakeups: float       # sleeps of the loop's thread, per request
    kicks: float         # writes to an eventfd by the guest, per request
    preempted: int       # times that something else ran in its place
    late_p99_ns: int     # how late guests and disks were


class Key(NamedTuple):
    """What was run."""

    monitor: str
    scenario: str
    variant: str

    def __str__(self) -> str:
        return f"{self.monitor}, {self.scenario}, {self.variant}"


@dataclass
class Results:
    """All samples, in the order of the rounds."""

    machine: Dict[str, Any] = field(default_factory=dict)
    options: Dict[str, Any] = field(default_factory=dict)
    samples: Dict[Key, List[Sample]] = field(default_factory=dict)

    def add(self, key: Key, sample: Sample) -> None:
        self.samples.setdefault(key, []).append(sample)

    def monitors(self) -> List[str]:
        return list(dict.fromkeys(key.monitor for key in self.samples))

    def scenarios(self, monitor: str) -> List[str]:
        return list(dict.fromkeys(key.scenario for key in self.samples
                                  if key.monitor == monitor))

    def variants(self) -> List[str]:
        return list(dict.fromkeys(key.variant for key in self.samples))


def sample_of(output: Dict[str, Any]) -> Sample:
    """The figures as aio-poll-realtime prints them; KeyError, IndexError or
    TypeError when they are none."""
    entry = output["scenarios"][0]
    latency = entry["latency_ns"]
    ios = entry["ios"]
    return Sample(entry["iops"], entry["cpu_ns_per_io"], entry["cpu_percent"],
                  latency["mean"], latency["p50"], latency["p99"],
                  round(entry["wakeups"] / ios, 4),
                  round(entry["kicks"] / ios, 4), entry["preempted"],
                  entry["late_ns"]["p99"])


# ---------------------------------------------------------------------------
# Statistics


def column(samples: Sequence[Sample], name: str) -> List[float]:
    return [getattr(sample, name) for sample in samples]


def median(samples: Sequence[Sample], name: str) -> float:
    return statistics.median(column(samples, name))


def spread(values: Sequence[float]) -> float:
    """Distance of the quartiles, divided by the median.

    With five values these are the second and the fourth, so one disturbed run
    on each side changes the spread as little as it changes the median; two on
    the same side show.
    """
    lower, middle, upper = statistics.quantiles(values, n=4,
                                                method="inclusive")
    return (upper - lower) / middle


class Noise(NamedTuple):
    """A figure that is not steady enough."""

    key: Key
    what: str
    spread: float

    def __str__(self) -> str:
        return (f"{self.key}: {self.what} spread over "
                f"{self.spread * 100:.1f} %")


def noise_of(key: Key, samples: Sequence[Sample]) -> List[Noise]:
    """What is too noisy; nothing can be said about a single sample."""
    if len(samples) < 2:
        return []
    found = [Noise(key, what, spread(column(samples, name)))
             for what, name in (("IOPS", "iops"), ("CPU time", "cpu_ns"))]
    return [noise for noise in found if noise.spread > SPREAD_MAX]


def noisy(results: Results) -> List[Noise]:
    return [noise for key, samples in results.samples.items()
            for noise in noise_of(key, samples)]


def compare(results: Results, monitor: str, variant: str, against: str,
            names: Iterable[str]) -> Comparison:
    """Ratios of the medians; KeyError when one was not run."""
    chosen = list(names)

    def ratios(name: str) -> Dict[str, float]:
        return {scenario: median(results.samples[Key(monitor, scenario,
                                                     variant)], name) /
                median(results.samples[Key(monitor, scenario, against)], name)
                for scenario in chosen}

    return Comparison(ratios("iops"), ratios("cpu_ns"))


# ---------------------------------------------------------------------------
# The results file


def save(results: Results, path: Path) -> None:
    """Write it: one line per monitor, scenario and variant."""
    lines = [f'{{"format": {FORMAT},',
             f' "machine": {json.dumps(results.machine)},',
             f' "options": {json.dumps(results.options)},',
             f' "columns": {json.dumps(Sample._fields)},',
             ' "runs": [']
    lines.append(",\n".join(
        f'  {{"run": {json.dumps(key)}, "samples": {json.dumps(samples)}}}'
        for key, samples in results.samples.items()))
    lines.append(" ]}\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def load(path: Path) -> Results:
    """Read it; ValueError when it is none."""
    data = json.loads(path.read_text())
    if (data.get("format") != FORMAT or
            data["columns"] != list(Sample._fields)):
        raise ValueError("it has another format")
    results = Results(data["machine"], data["options"])
    for entry in data["runs"]:
        results.samples[Key(*entry["run"])] = [
            Sample(*sample) for sample in entry["samples"]]
    return results
