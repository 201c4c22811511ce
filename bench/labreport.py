# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables of the lab's figures, in Markdown."""

from __future__ import annotations

from typing import List

from labfigures import (BARS, ON_URING, PEER_DEFAULT, PROFILES, SELF_NOTIFY,
                        SERIES_DEFAULT, STOCK, Comparison, Results, RunKey,
                        compare)

TITLES = {
    STOCK: "stock, adaptive polling as it is",
    "off": "polling off",
    "spin": "always spin up to the maximum",
}


def title(variant: str) -> str:
    """A variant as the reader knows it."""
    if variant.endswith(ON_URING):
        return f"{title(variant[:-len(ON_URING)])}, waits in io_uring"
    if variant.startswith("series-w"):
        return f"series, poll-weight {variant[8:]}"
    if variant.startswith("peer-w"):
        return f"upstream 11.1, poll-weight {variant[6:]}"
    return TITLES[variant]


def report(results: Results) -> str:
    """The whole page."""
    base = results.options.get("base")
    of_base = f", {base}" if base else ""
    parts = ["<!-- SPDX-License-Identifier: GPL-2.0-or-later -->\n",
             f"# The event loop in virtual time{of_base}\n",
             "Figures of a model, made by `tools/lab`; docs/benchmarking.md "
             "says what it models.\nEach cell: IOPS, geometric mean / worst "
             "scenario; CPU time per request, geometric\nmean / worst "
             "scenario. Ratios to stock.\n"]
    for group, text in ((True, "The 17 scenarios of the bars"),
                        (False, "All other scenarios")):
        for selfnotify in reversed(SELF_NOTIFY):
            notify = "on" if selfnotify else "off"
            parts.append(f"## {text}, self-notification {notify}\n")
            parts.append(summary(results, group, selfnotify))
    if RunKey(SERIES_DEFAULT, "default", 3) in results.runs:
        parts.append("## Each scenario, profile `default`, "
                     "self-notification on\n")
        parts.append(scenarios(results))
    return "\n".join(parts)


def summary(results: Results, bars: bool, selfnotify: int) -> str:
    names = results.names(lambda group: (group == BARS) == bars)
    lines = ["| variant | " + " | ".join(PROFILES) + " |",
             "|---|" + "---|" * len(PROFILES)]
    for variant in results.variants():
        if variant == STOCK:
            continue
        cells = [cell(compare(results, variant, STOCK, profile, selfnotify,
                              names))
                 if RunKey(variant, profile, selfnotify) in results.runs
                 else "" for profile in PROFILES]
        lines.append(f"| {title(variant)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def cell(ratios: Comparison) -> str:
    return (f"{ratios.mean_iops():.3f} / {ratios.worst_iops()[0]:.3f}; "
            f"{ratios.mean_cpu():.2f} / {ratios.worst_cpu()[0]:.2f}")


def loads(results: Results, profile: str) -> str:
    """Each scenario in a line: stock, then the ratios of the others to it."""
    others = [variant for variant in results.variants() if variant != STOCK]
    notify = SELF_NOTIFY[-1]
    lines = ["| load | stock: IOPS | CPU us/IO | "
             + " | ".join(f"{title(variant)}: IOPS | CPU"
                          for variant in others) + " |",
             "|---|--:|--:|" + "--:|--:|" * len(others)]
    for name in results.sets:
        row = results.runs[RunKey(STOCK, profile, notify)][name]
        cells = [f"{row.iops:.0f}", f"{row.cpu_ns / 1000:.2f}"]
        for variant in others:
            ratios = compare(results, variant, STOCK, profile, notify, [name])
            cells += [f"{ratios.mean_iops():.3f}", f"{ratios.mean_cpu():.2f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def scenarios(results: Results) -> str:
    """IOPS, latency, CPU, spinning, wake-ups and exits, side by side."""
    shown: List[str] = [variant for variant in
                        (STOCK, PEER_DEFAULT, SERIES_DEFAULT)
                        if RunKey(variant, "default", 3) in results.runs]
    lines = ["| scenario | variant | IOPS | mean us | p99 us | CPU us/IO | "
             "hit us/IO | missed us/IO | wake-ups/IO | exits/IO |",
             "|---|---|" + "--:|" * 8]
    for name in results.sets:
        for variant in shown:
            row = results.runs[RunKey(variant, "default", 3)][name]
            lines.append(
                f"| {name if variant == STOCK else ''} | {variant} "
                f"| {row.iops:.0f} | {row.mean_ns / 1000:.1f} "
                f"| {row.p99_ns / 1000:.1f} | {row.cpu_ns / 1000:.2f} "
                f"| {row.hit_ns / 1000:.2f} | {row.miss_ns / 1000:.2f} "
                f"| {row.wakeups:.2f} | {row.kicks:.2f} |")
    return "\n".join(lines) + "\n"
