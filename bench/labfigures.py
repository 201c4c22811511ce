# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of the lab: what is kept of a run, how it is stored and compared.

The results file is made to be committed and compared: one line per scenario,
the same text for the same figures.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Tuple

FORMAT = 1
PROFILES = ("metal", "default", "vm")
SELF_NOTIFY = (0, 3)
STOCK, OFF, SPIN = "stock", "off", "spin"
PEER_DEFAULT = "peer-w3"
SERIES_DEFAULT = "series-w3"
# The same on the fd monitor that is like io_uring
ON_URING = "-uring"
SERIES_URING = SERIES_DEFAULT + ON_URING
# The scenarios that the estimator is judged by
BARS = "bars"


class Row(NamedTuple):
    """One scenario of one run; what is per request is divided already."""

    iops: float
    cpu_ns: float        # CPU time per request
    mean_ns: int         # latency
    p50_ns: int
    p99_ns: int
    p999_ns: int
    hit_ns: float        # spinning that an event ended, per request
    miss_ns: float       # other spinning, per request
    wakeups: float       # per request
    kicks: float         # VM exits per request
    iterations: float    # per request


class RunKey(NamedTuple):
    """Which run: a variant of the loop on a machine."""

    variant: str
    profile: str
    selfnotify: int

    def __str__(self) -> str:
        notify = "on" if self.selfnotify else "off"
        return f"{self.variant}, {self.profile}, self-notification {notify}"


Run = Dict[str, Row]


@dataclass
class Results:
    """All runs, and what is the same in all of them."""

    options: Dict[str, Any] = field(default_factory=dict)
    sets: Dict[str, str] = field(default_factory=dict)
    queues: Dict[str, int] = field(default_factory=dict)
    runs: Dict[RunKey, Run] = field(default_factory=dict)

    def variants(self) -> List[str]:
        """In the order in which they were added."""
        return list(dict.fromkeys(key.variant for key in self.runs))

    def names(self, wanted: Callable[[str], bool]) -> List[str]:
        """The scenarios of the sets that are wanted."""
        return [name for name, group in self.sets.items() if wanted(group)]

    def add(self, key: RunKey, output: Dict[str, Any]) -> None:
        """Take over what aio-poll-lab has printed."""
        self.runs[key] = {entry["name"]: row_of(entry)
                          for entry in output["scenarios"]}
        for entry in output["scenarios"]:
            self.sets[entry["name"]] = entry["set"]
            self.queues[entry["name"]] = entry["queues"]


def row_of(entry: Dict[str, Any]) -> Row:
    """The figures of one scenario as aio-poll-lab prints them."""
    ios = max(entry["ios"], 1)
    latency = entry["latency_ns"]

    def each(name: str, digits: int) -> float:
        value: float = round(entry[name] / ios, digits)
        return value

    return Row(entry["iops"], entry["cpu_ns_per_io"], latency["mean"],
               latency["p50"], latency["p99"], latency["p99.9"],
               each("spin_hit_ns", 1), each("spin_miss_ns", 1),
               each("wakeups", 4), each("kicks", 4), each("iterations", 4))


def save(results: Results, path: Path) -> None:
    """Write the results file."""
    lines = [f'{{"format": {FORMAT},',
             f' "options": {json.dumps(results.options)},',
             f' "columns": {json.dumps(Row._fields)},',
             ' "scenarios": {']
    lines.append(",\n".join(
        f"  {json.dumps(name)}: {json.dumps([group, results.queues[name]])}"
        for name, group in results.sets.items()))
    lines.append(' },\n "runs": [')
    lines.append(",\n".join(run_text(key, run)
                            for key, run in results.runs.items()))
    lines.append(" ]}\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def run_text(key: RunKey, run: Run) -> str:
    rows = ",\n".join(f"   {json.dumps(name)}: {json.dumps(list(row))}"
                      for name, row in run.items())
    return f'  {{"run": {json.dumps(list(key))}, "rows": {{\n{rows}}}}}'


def load(path: Path) -> Results:
    """Read a results file; ValueError when it is none."""
    data = json.loads(path.read_text())
    if data.get("format") != FORMAT or data["columns"] != list(Row._fields):
        raise ValueError("it has another format")
    results = Results(options=data["options"])
    for name, (group, queues) in data["scenarios"].items():
        results.sets[name] = group
        results.queues[name] = queues
    for entry in data["runs"]:
        results.runs[RunKey(*entry["run"])] = {
            name: Row(*row) for name, row in entry["rows"].items()}
    return results


# ---------------------------------------------------------------------------
# Ratios


def mean(values: Iterable[float]) -> float:
    """The geometric mean, as all figures here are ratios."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


@dataclass(frozen=True)
class Comparison:
    """One run against another one, over some scenarios."""

    iops: Dict[str, float]
    cpu: Dict[str, float]

    def worst_iops(self) -> Tuple[float, str]:
        return min((ratio, name) for name, ratio in self.iops.items())

    def worst_cpu(self) -> Tuple[float, str]:
        return max((ratio, name) for name, ratio in self.cpu.items())

    def mean_iops(self) -> float:
        return mean(self.iops.values())

    def mean_cpu(self) -> float:
        return mean(self.cpu.values())


def compare(results: Results, variant: str, against: str, profile: str,
            selfnotify: int, names: Iterable[str]) -> Comparison:
    """Ratios of @variant to @against; KeyError when one was not run."""
    new = results.runs[RunKey(variant, profile, selfnotify)]
    old = results.runs[RunKey(against, profile, selfnotify)]
    chosen = list(names)
    return Comparison(
        {name: new[name].iops / old[name].iops for name in chosen},
        {name: new[name].cpu_ns / old[name].cpu_ns for name in chosen})


# ---------------------------------------------------------------------------
# Differences between two results files


def differences(expected: Results, found: Results,
                tolerance: float) -> List[str]:
    """What has changed in the runs that were made, one line each."""
    lines = []
    for key, run in found.runs.items():
        if key not in expected.runs:
            lines.append(f"{key}: not expected at all")
            continue
        lines += run_differences(key, expected.runs[key], run, tolerance)
    return lines


def run_differences(key: RunKey, expected: Run, found: Run,
                    tolerance: float) -> List[str]:
    lines = [f"{key}: {name} is missing" for name in expected
             if name not in found]
    for name, row in found.items():
        if name not in expected:
            lines.append(f"{key}: {name} is new")
            continue
        old = expected[name]
        for what, was, now in (("IOPS", old.iops, row.iops),
                               ("CPU ns per I/O", old.cpu_ns, row.cpu_ns)):
            if abs(now - was) > tolerance * was:
                lines.append(f"{key}: {name}: {what} {was:.1f} -> {now:.1f} "
                             f"({(now / was - 1) * 100:+.2f} %)")
    return lines
