# SPDX-License-Identifier: GPL-2.0-or-later
"""The bars of the real-time bench: what the series has to reach on a real
clock, compared with stock QEMU and with the peer, upstream 11.1."""

from __future__ import annotations

from typing import List

from labbars import Verdict, at_least, at_most
from labfigures import PEER_DEFAULT, SERIES_DEFAULT, STOCK
from realtimefigures import Results, compare

MONITOR = "epoll"
SCENARIOS_MIN = 14
# Better, in the three digits that are shown
BETTER = 0.001


def judge(results: Results) -> List[Verdict]:
    """All bars, those to the peer if there is one; none when the figures are
    not there."""
    names = results.scenarios(MONITOR)
    have = set(results.variants())
    if not names or not {STOCK, SERIES_DEFAULT} <= have:
        return []
    verdicts = against_stock(results, names)
    if PEER_DEFAULT in have:
        verdicts += against_peer(results, names)
    return verdicts


def against_stock(results: Results, names: List[str]) -> List[Verdict]:
    stock = compare(results, MONITOR, SERIES_DEFAULT, STOCK, names)
    worst, scenario = stock.worst_iops()
    return [
        at_least(MONITOR, "scenarios", len(names), SCENARIOS_MIN),
        at_least(MONITOR, "IOPS mean", stock.mean_iops(), 0.995),
        at_least(MONITOR, "IOPS worst", worst, 0.95, scenario),
        at_most(MONITOR, "CPU mean", stock.mean_cpu(), 0.87),
    ]


def against_peer(results: Results, names: List[str]) -> List[Verdict]:
    peer = compare(results, MONITOR, SERIES_DEFAULT, PEER_DEFAULT, names)
    return [
        at_least(f"{MONITOR}, to 11.1", "IOPS mean", peer.mean_iops(),
                 1 + BETTER),
        at_most(f"{MONITOR}, to 11.1", "CPU mean", peer.mean_cpu(),
                1 - BETTER),
    ]
