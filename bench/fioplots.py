# SPDX-License-Identifier: GPL-2.0-or-later
"""Plots of the fio benchmark, as SVG: the same figures give the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Tuple

import matplotlib
matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: E402

from fiofigures import (Results, compare, median,
                        percentile_median)  # noqa: E402

# Without these, ids and a date in the file would differ every time.
matplotlib.rcParams.update({"svg.hashsalt": "poll-weight",
                            "svg.fonttype": "none", "font.size": 10})
METADATA: Any = {"Date": None, "Creator": None}
# Distinguishable without colour, too
STYLES: List[Tuple[str, str]] = [
    ("black", "s"), ("tab:blue", "o"), ("tab:orange", "D"),
    ("tab:green", "^"), ("tab:gray", "v"), ("tab:red", "P"),
    ("tab:purple", "X"), ("tab:brown", "*")]


def style(results: Results, variant: str) -> Tuple[str, str]:
    """The same for a variant in every plot."""
    names: List[str] = results.matrix["variants"]
    return STYLES[names.index(variant) % len(STYLES)]


def save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata=METADATA)
    pyplot.close(figure)


def draw_absolute(results: Results, path: Path) -> None:
    """IOPS against CPU time; what belongs to a cell is connected."""
    figure, axis = pyplot.subplots(figsize=(7, 5))
    for cell in results.cells:
        points = [(median(runs, "cpu_percent"), median(runs, "iops"))
                  for variant in results.variants
                  for runs in [results.runs.get((cell, variant))] if runs]
        axis.plot(*zip(*points), color="silver", linewidth=0.8, zorder=1)
    for variant in results.variants:
        colour, marker = style(results, variant)
        points = [(median(runs, "cpu_percent"), median(runs, "iops"))
                  for cell in results.cells
                  for runs in [results.runs.get((cell, variant))] if runs]
        axis.scatter(*zip(*points), color=colour, marker=marker, s=30,
                     alpha=0.8, label=variant, zorder=2)
    axis.set_xlim(left=0)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("CPU time of the IOThreads [% of one CPU]")
    axis.set_ylabel("IOPS")
    axis.grid(linewidth=0.3)
    axis.legend(fontsize=9)
    axis.set_title("Medians; a grey line connects the variants of a cell")
    save(figure, path)


def draw_relative(results: Results, path: Path) -> None:
    """Differences of IOPS and of CPU time per request, with intervals."""
    figure, axis = pyplot.subplots(figsize=(7, 5))
    for variant in results.variants:
        if variant == results.baseline:
            continue
        colour, marker = style(results, variant)
        label = variant
        for cell in results.cells:
            x = compare(results, cell, variant, "cpu_us")
            y = compare(results, cell, variant, "iops")
            if x is None or y is None:
                continue
            bars = {}
            for name, value in (("xerr", x), ("yerr", y)):
                if value.low is not None and value.high is not None:
                    bars[name] = [[max(0, value.middle - value.low) * 100],
                                  [max(0, value.high - value.middle) * 100]]
            axis.errorbar([x.middle * 100], [y.middle * 100], fmt=marker,
                          color=colour, markersize=5, elinewidth=0.6,
                          alpha=0.8, label=label, **bars)
            label = "_nolegend_"
    axis.axhline(0, color="black", linewidth=0.5)
    axis.axvline(0, color="black", linewidth=0.5)
    axis.set_xlabel(f"IOThread CPU per I/O, % against {results.baseline}")
    axis.set_ylabel(f"IOPS, % against {results.baseline}")
    axis.grid(linewidth=0.3)
    if axis.get_legend_handles_labels()[1]:
        axis.legend(fontsize=9)
    axis.set_title("One dot per cell; up and left is better")
    save(figure, path)


def draw_latency(results: Results, cell: str, path: Path) -> None:
    """Distribution of the latency: medians of the rounds."""
    figure, axis = pyplot.subplots(figsize=(7, 4))
    for variant in results.variants:
        runs = results.runs.get((cell, variant))
        if not runs:
            continue
        colour, marker = style(results, variant)
        shares = sorted(set.intersection(
            *(set(run.percentiles) for run in runs)))
        axis.plot([percentile_median(runs, share) for share in shares],
                  shares, color=colour, marker=marker, markersize=3,
                  linewidth=1, label=variant)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.yaxis.set_major_locator(MaxNLocator(6))
    axis.set_xlabel("latency [us]")
    axis.set_ylabel("requests that took no longer [%]")
    axis.grid(linewidth=0.3, which="both")
    axis.legend(fontsize=9)
    save(figure, path)


def draw(results: Results, directory: Path) -> None:
    draw_absolute(results, directory / "iops-cpu.svg")
    draw_relative(results, directory / "differences.svg")
    for cell in results.cells:
        draw_latency(results, cell, directory / f"latency-{cell}.svg")
