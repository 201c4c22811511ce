# SPDX-License-Identifier: GPL-2.0-or-later
"""The bars: what the series has to reach in the lab, compared with stock QEMU
and with the peer, upstream 11.1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, List, Mapping, Tuple

from labfigures import (BARS, PEER_DEFAULT, PROFILES, SELF_NOTIFY,
                        SERIES_DEFAULT, SERIES_URING, STOCK, Comparison,
                        Results, compare)

WEIGHTS = (1, 2, 3, 4, 6)
# Two neighbouring weights may differ by so much in the wrong direction
MONOTONE_TOLERANCE = 0.002
DEPTH_ONE = "nvme-qd1-80"

# Bars that are not reached on a base, and the figure that is.  They do not fail
# a check as long as the figure does not get worse; when a bar is reached after
# all, its line here fails the check until it is removed.
KNOWN_MISSES: Dict[str, Dict[str, float]] = {
    "v10.0": {
        "default, self-notification on: IOPS worst, other scenarios": 0.954,
        "vm, self-notification on: IOPS worst, other scenarios": 0.899,
    },
    # Waiting in io_uring, 11.1 hardly polls: in some loads it takes half of the
    # CPU time or less, and does up to 21 % fewer requests
    "v11.0": {
        "metal, self-notification off, io_uring: CPU worst": 1.235,
        "metal, self-notification off, to 11.1: CPU mean": 0.907,
        "metal, self-notification on, to 11.1: IOPS worst": 0.988,
        "default, self-notification off, io_uring: CPU worst": 1.225,
        "vm, self-notification off, io_uring: CPU worst": 1.235,
        "vm, self-notification on, io_uring: IOPS worst": 0.986,
        "default, self-notification on, to 11.1: IOPS worst": 0.969,
        "default, self-notification on: IOPS worst, other scenarios": 0.954,
        "vm, self-notification on: IOPS worst, other scenarios": 0.899,
    },
}

PASS, KNOWN, FAIL = "pass", "known miss", "FAIL"


@dataclass(frozen=True)
class Verdict:
    """One bar, and what was found."""

    where: str
    what: str
    found: float
    least: bool     # is the limit a lower or an upper one?
    limit: float
    scenario: str = ""

    def name(self) -> str:
        """What the bar is called in KNOWN_MISSES."""
        return f"{self.where}: {self.what}"

    def holds(self, limit: float) -> bool:
        """Figures are compared as they are shown, with three digits."""
        found = round(self.found, 3)
        return found >= limit if self.least else found <= limit

    def passed(self) -> bool:
        return self.holds(self.limit)

    def __str__(self) -> str:
        sign = ">=" if self.least else "<="
        scenario = f" ({self.scenario})" if self.scenario else ""
        return (f"{self.name()} {self.found:.3f}{scenario}, "
                f"bar {sign} {self.limit:.3f}")


@dataclass(frozen=True)
class Grade:
    """What a bar means for a check, and a line that says so."""

    grade: str
    text: str

    def __str__(self) -> str:
        return f"{self.grade:12}{self.text}"


def grades(verdicts: List[Verdict], known: Mapping[str, float],
           complete: bool) -> List[Grade]:
    """Grade all bars; @complete: none was left out."""
    made = [grade(verdict, known) for verdict in verdicts]
    names = {verdict.name() for verdict in verdicts}
    if complete:
        made += [Grade(FAIL, f"{name}: KNOWN_MISSES in bench/labbars.py names "
                       "it, but there is no such bar")
                 for name in known if name not in names]
    return made


def counts(graded: List[Grade]) -> Tuple[int, int, int]:
    """How many bars are reached, are missed, and are known to be missed."""
    passed, failed, known = (sum(one.grade == kind for one in graded)
                             for kind in (PASS, FAIL, KNOWN))
    return passed, failed, known


def grade(verdict: Verdict, known: Mapping[str, float]) -> Grade:
    listed = known.get(verdict.name())
    if listed is None:
        return Grade(PASS if verdict.passed() else FAIL, str(verdict))
    if verdict.passed():
        return Grade(FAIL, f"{verdict}: reached now; remove its line from "
                     "KNOWN_MISSES in bench/labbars.py")
    if verdict.holds(listed):
        return Grade(KNOWN, f"{verdict}, listed with {listed:.3f}")
    return Grade(FAIL, f"{verdict}: worse than the {listed:.3f} that "
                 "KNOWN_MISSES in bench/labbars.py lists")


def at_least(where: str, what: str, found: float, limit: float,
             scenario: str = "") -> Verdict:
    return Verdict(where, what, found, True, limit, scenario)


def at_most(where: str, what: str, found: float, limit: float,
            scenario: str = "") -> Verdict:
    return Verdict(where, what, found, False, limit, scenario)


def judge(results: Results) -> List[Verdict]:
    """All bars that the runs allow to judge."""
    verdicts: List[Verdict] = []
    have = set(results.variants())
    for profile in PROFILES:
        for selfnotify in SELF_NOTIFY:
            if {STOCK, SERIES_DEFAULT} <= have:
                verdicts += against_stock(results, profile, selfnotify)
            if {STOCK, SERIES_URING} <= have:
                verdicts += on_uring(results, profile, selfnotify)
            if {PEER_DEFAULT, SERIES_DEFAULT} <= have:
                verdicts += against_peer(results, profile, selfnotify)
            if {STOCK, *(f"series-w{w}" for w in WEIGHTS)} <= have:
                verdicts += weights(results, profile, selfnotify)
    return verdicts


def place(profile: str, selfnotify: int) -> str:
    return f"{profile}, self-notification {'on' if selfnotify else 'off'}"


def against_stock(results: Results, profile: str,
                  selfnotify: int) -> Iterator[Verdict]:
    where = place(profile, selfnotify)

    def ratios(names: List[str]) -> Comparison:
        return compare(results, SERIES_DEFAULT, STOCK, profile, selfnotify,
                       names)

    bars = ratios(results.names(lambda group: group == BARS))
    others = ratios(results.names(lambda group: group != BARS))
    yield from of_bars(where, bars)
    yield at_least(where, "IOPS worst, other scenarios",
                   others.worst_iops()[0], 0.98, others.worst_iops()[1])
    yield at_least(where, "IOPS of " + DEPTH_ONE, bars.iops[DEPTH_ONE], 1.0)
    yield at_most(where, "CPU of " + DEPTH_ONE, bars.cpu[DEPTH_ONE], 0.6)


def on_uring(results: Results, profile: str,
             selfnotify: int) -> Iterator[Verdict]:
    """Waiting in io_uring is as good as stock on its better fd monitor, which
    is the one without polling from user space."""
    yield from of_bars(
        place(profile, selfnotify) + ", io_uring",
        compare(results, SERIES_URING, STOCK, profile, selfnotify,
                results.names(lambda group: group == BARS)))


def of_bars(where: str, ratios: Comparison) -> Iterator[Verdict]:
    yield at_least(where, "IOPS mean", ratios.mean_iops(), 1.0)
    yield at_least(where, "IOPS worst", ratios.worst_iops()[0], 0.99,
                   ratios.worst_iops()[1])
    yield at_most(where, "CPU mean", ratios.mean_cpu(), 0.875)
    yield at_most(where, "CPU worst", ratios.worst_cpu()[0], 1.22,
                  ratios.worst_cpu()[1])


def against_peer(results: Results, profile: str,
                 selfnotify: int) -> Iterator[Verdict]:
    where = place(profile, selfnotify) + ", to 11.1"
    ratios = compare(results, SERIES_DEFAULT, PEER_DEFAULT, profile,
                     selfnotify, results.names(lambda group: True))

    if profile == "vm":
        yield at_least(where, "IOPS mean", ratios.mean_iops(), 0.99)
    else:
        yield at_least(where, "IOPS worst", ratios.worst_iops()[0], 0.99,
                       ratios.worst_iops()[1])
    yield at_most(where, "CPU mean", ratios.mean_cpu(), 0.9)


def weights(results: Results, profile: str,
            selfnotify: int) -> Iterator[Verdict]:
    """The larger the weight, the more IOPS and the more CPU time."""
    where = place(profile, selfnotify)
    names = results.names(lambda group: group == BARS)
    ratios = [compare(results, f"series-w{weight}", STOCK, profile,
                      selfnotify, names) for weight in WEIGHTS]

    for i in range(1, len(WEIGHTS)):
        what = f"weight {WEIGHTS[i]} to {WEIGHTS[i - 1]}, "
        yield at_least(where, what + "IOPS mean", ratios[i].mean_iops() /
                       ratios[i - 1].mean_iops(), 1 - MONOTONE_TOLERANCE)
        yield at_least(where, what + "CPU mean", ratios[i].mean_cpu() /
                       ratios[i - 1].mean_cpu(), 1 - MONOTONE_TOLERANCE)
