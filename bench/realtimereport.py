# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables of the real-time bench, in Markdown."""

from __future__ import annotations

from typing import List

from labfigures import STOCK
from labreport import cell, title
from realtimebars import judge
from realtimefigures import (Key, Results, column, compare, median,
                             spread)


def report(results: Results) -> str:
    """The whole page."""
    parts = ["<!-- SPDX-License-Identifier: GPL-2.0-or-later -->\n",
             "# The event loop in real time\n",
             "Measured by `make bench`; docs/benchmarking.md says how. "
             "Medians of the rounds.\nThese are the figures of one machine:\n",
             machine(results), "## The bars\n", bars(results),
             tables(results)]
    return "\n".join(parts)


def tables(results: Results) -> str:
    """What can be shown of a part of the scenarios, too."""
    parts = ["## Ratios to stock\n",
             "Each cell: IOPS, geometric mean / worst scenario; CPU time per "
             "request, geometric\nmean / worst scenario.\n",
             summary(results)]
    for monitor in results.monitors():
        parts.append(f"## Each scenario, {monitor}\n")
        parts.append("Spread: distance of the quartiles of IOPS and of CPU "
                     "time, divided by the median.\nLate: the 99th "
                     "percentile of how late guests and disks were.\n")
        parts.append(scenarios(results, monitor))
    return "\n".join(parts)


def machine(results: Results) -> str:
    lines = ["| | |", "|---|---|"]
    lines += [f"| {name} | {value} |"
              for facts in (results.machine, results.options)
              for name, value in facts.items()]
    return "\n".join(lines) + "\n"


def summary(results: Results) -> str:
    lines = ["| monitor | scenarios | variant | |", "|---|--:|---|---|"]
    for monitor in results.monitors():
        names = results.scenarios(monitor)
        for variant in results.variants():
            if variant == STOCK:
                continue
            ratios = compare(results, monitor, variant, STOCK, names)
            lines.append(f"| {monitor} | {len(names)} | {title(variant)} "
                         f"| {cell(ratios)} |")
    return "\n".join(lines) + "\n"


def bars(results: Results) -> str:
    lines = ["| | found | bar | |", "|---|--:|--:|---|"]
    for verdict in judge(results):
        sign = "≥" if verdict.least else "≤"
        scenario = f" ({verdict.scenario})" if verdict.scenario else ""
        lines.append(f"| {verdict.where}: {verdict.what}{scenario} "
                     f"| {figure(verdict.found)} "
                     f"| {sign} {figure(verdict.limit)} "
                     f"| {'reached' if verdict.passed() else 'MISSED'} |")
    return "\n".join(lines) + "\n"


def figure(value: float) -> str:
    """A ratio, or the number of scenarios."""
    return f"{value:.3f}" if value < 10 else f"{value:.0f}"


def scenarios(results: Results, monitor: str) -> str:
    """IOPS, latency, CPU, wake-ups and kicks, side by side."""
    lines = ["| scenario | variant | IOPS | ratio | CPU us/IO | ratio | CPU % "
             "| mean us | p50 us | p99 us | wake-ups/IO | kicks/IO "
             "| spread % | late us |",
             "|---|---|" + "--:|" * 12]
    for scenario in results.scenarios(monitor):
        for variant in results.variants():
            lines.append(scenario_line(results, Key(monitor, scenario,
                                                    variant)))
    return "\n".join(lines) + "\n"


def scenario_line(results: Results, key: Key) -> str:
    samples = results.samples[key]
    ratios = compare(results, key.monitor, key.variant, STOCK, [key.scenario])

    def middle(name: str) -> float:
        return median(samples, name)

    def micro(name: str) -> str:
        return f"{middle(name) / 1000:.1f}"

    def range_of(name: str) -> str:
        values = column(samples, name)
        return f"{spread(values) * 100:.1f}" if len(values) > 1 else "-"

    cells: List[str] = [
        key.scenario if key.variant == STOCK else "", key.variant,
        f"{middle('iops'):.0f}", f"{ratios.mean_iops():.3f}",
        f"{middle('cpu_ns') / 1000:.2f}", f"{ratios.mean_cpu():.2f}",
        f"{middle('cpu_percent'):.0f}", micro("mean_ns"), micro("p50_ns"),
        micro("p99_ns"), f"{middle('wakeups'):.2f}", f"{middle('kicks'):.2f}",
        f"{range_of('iops')}, {range_of('cpu_ns')}", micro("late_p99_ns")]
    return "| " + " | ".join(cells) + " |"
