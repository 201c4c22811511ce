# SPDX-License-Identifier: GPL-2.0-or-later
"""Draw the plots of the lab: labplots.py RESULTS DIRECTORY

Run with the python that has matplotlib."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

from labfigures import (OFF, PEER_DEFAULT, PROFILES, SERIES_DEFAULT, SPIN,
                        STOCK, Results, RunKey, compare, load)
from labreport import title

STYLES = {
    STOCK: ("black", "s"),
    OFF: ("tab:gray", "v"),
    SPIN: ("tab:red", "^"),
    PEER_DEFAULT: ("tab:orange", "D"),
    SERIES_DEFAULT: ("tab:blue", "o"),
}
SELF_NOTIFY = 3
# The same picture from the same figures
METADATA = {"Software": None}


def has(results: Results, variant: str, profile: str) -> bool:
    return RunKey(variant, profile, SELF_NOTIFY) in results.runs


def draw_ratios(results: Results, path: Path) -> None:
    """IOPS against CPU time, one dot per scenario and variant."""
    figure, axes = pyplot.subplots(1, len(PROFILES), figsize=(15, 5.2),
                                   sharey=True)
    names = list(results.sets)
    for axis, profile in zip(axes, PROFILES):
        for variant, (colour, marker) in STYLES.items():
            if variant == STOCK or not has(results, variant, profile):
                continue
            ratios = compare(results, variant, STOCK, profile, SELF_NOTIFY,
                             names)
            axis.scatter([ratios.cpu[name] for name in names],
                         [ratios.iops[name] for name in names], s=16,
                         c=colour, marker=marker, alpha=0.6,
                         label=title(variant))
        axis.axhline(1, color="black", linewidth=0.5)
        axis.axvline(1, color="black", linewidth=0.5)
        axis.set_xscale("log")
        axis.set_xticks([0.25, 0.5, 1, 2], ["0.25", "0.5", "1", "2"])
        axis.set_xlabel("CPU time per request, relative to stock")
        axis.set_title(f"profile {profile}")
    axes[0].set_ylabel("IOPS, relative to stock")
    axes[0].legend(loc="lower right", fontsize=8)
    figure.suptitle("Lab: one dot per scenario (up and left is better)")
    figure.tight_layout()
    figure.savefig(path, dpi=90, metadata=METADATA)
    pyplot.close(figure)


def draw_queues(results: Results, path: Path) -> None:
    """CPU time per request against the number of queues used in turn."""
    figure, axis = pyplot.subplots(figsize=(7.5, 5))
    names = sorted((name for name in results.sets
                    if name.startswith("wide") and name.endswith("-qd1")),
                   key=lambda name: results.queues[name])
    for variant, (colour, marker) in STYLES.items():
        if not has(results, variant, "default"):
            continue
        run = results.runs[RunKey(variant, "default", SELF_NOTIFY)]
        axis.plot([results.queues[name] for name in names],
                  [run[name].cpu_ns / 1000 for name in names], color=colour,
                  marker=marker, markersize=4, label=title(variant))
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.set_xlabel("virtqueues used in turn by one request, 80 us disks")
    axis.set_ylabel("CPU time per request [us]")
    axis.set_xticks([1, 4, 16, 64, 256, 1024],
                    ["1", "4", "16", "64", "256", "1024"])
    axis.set_yticks([8, 16, 32, 64, 128, 256],
                    ["8", "16", "32", "64", "128", "256"])
    axis.grid(linewidth=0.3)
    axis.legend(fontsize=8)
    axis.set_title("Lab, profile default: cost of many queues")
    figure.tight_layout()
    figure.savefig(path, dpi=90, metadata=METADATA)
    pyplot.close(figure)


def main() -> None:
    results = load(Path(sys.argv[1]))
    directory = Path(sys.argv[2])
    draw_ratios(results, directory / "lab-ratios.png")
    draw_queues(results, directory / "lab-queues.png")


main()
