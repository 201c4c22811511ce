# SPDX-License-Identifier: GPL-2.0-or-later
"""Report of the fio benchmark: fioreport.py DIRECTORY

Writes report.html, report.md, jobs/ and plots/ beside the files of the runs.
Run with the python that has numpy and matplotlib; tools/fio does."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from fiodocument import (Bullets, Grey, Heading, Link, Paragraph, Part,
                         Picture, Span, Spans, Strong, Table, markdown, page)
from fiofigures import (BY_KEY, METRICS, NOISE_MIN, ROUNDS_MIN, Difference,
                        Metric, Results, Run, compare, load, median,
                        noise_limit, overall, twins)

# What is compared first; all metrics are shown cell by cell.
OVERVIEW = ("iops", "cpu_us", "p99_us")


class Limits:
    """The noise limit of each metric, computed once."""

    def __init__(self, results: Results) -> None:
        self._limits = {metric.key: noise_limit(results, metric.key)
                        for metric in METRICS}

    def __getitem__(self, key: str) -> float:
        return self._limits[key]


# ---------------------------------------------------------------------------
# Words


def number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def percent(value: float) -> str:
    text = f"{value * 100:+.1f}"
    return "0.0 %" if text in ("+0.0", "-0.0") else f"{text} %"


def shown(found: Optional[Difference], metric: Metric, limit: float,
          with_interval: bool = False) -> Spans:
    """A difference: grey unless it is more than noise."""
    if found is None:
        return (Grey("no pair"),)
    text = percent(found.middle)
    spans: List[Span] = [
        Strong(text, (found.middle > 0) == metric.more_is_better)
        if found.beyond(limit) else Grey(text)]
    if with_interval and found.low is not None and found.high is not None:
        spans.append(Grey(f"[{found.low * 100:+.1f}, "
                          f"{found.high * 100:+.1f}]"))
    return tuple(spans)


def cell_title(cell: Dict[str, Any]) -> str:
    def count(name: str, noun: str) -> str:
        return f"{cell[name]} {noun}{'' if cell[name] == 1 else 's'}"
    return (f"{cell['rw']} {cell['bs']}, {count('numjobs', 'job')}, depth "
            f"{cell['iodepth']}, {count('disks', 'disk')}, "
            f"{count('iothreads', 'IOThread')}, aio={cell['aio']}")


def titles(results: Results) -> Dict[str, str]:
    found = {}
    for (cell, _), runs in results.runs.items():
        found[cell] = cell_title(runs[0].data["cell"])
    return found


def properties(run: Run) -> str:
    settings = run.data["setting"]["properties"]
    return ", ".join(f"{name}={value}" for name, value in
                     settings.items()) or "defaults"


# ---------------------------------------------------------------------------
# Parts


def introduction(results: Results) -> List[Part]:
    matrix, setting = results.matrix, results.one().data["setting"]
    parts: List[Part] = [
        Heading(1, f"fio matrix “{matrix['title']}”"),
        Paragraph((f"{len(results.cells)} cells, {len(results.variants)} "
                   f"variants, {results.count()} measured runs of "
                   f"{setting['runtime_s']} s, each after a warm-up of "
                   f"{setting['warmup_s']} s. Differences are to "
                   f"{results.baseline}.",))]
    if setting["accel"] == "tcg":
        parts.append(Paragraph(
            ("Made under TCG: the emulated CPU of the guest is the "
             "bottleneck, and other work on the host shows. These figures "
             "say that the method works, not how fast anything is.",),
            warning=True))
    if not all(run.data["guest"]["direct"]
               for runs in results.runs.values() for run in runs):
        parts.append(Paragraph(
            ("The disks have no O_DIRECT: the page cache of the host was "
             "measured.",), warning=True))
    left = len(results.matrix["cells"]) - len(results.cells)
    if left:
        parts.append(Paragraph(
            (f"{left} cells of the matrix have not been run.",)))
    missing = results.wanted() - results.count()
    if missing:
        parts.append(Paragraph(
            (f"{missing} of {results.wanted()} runs are missing. What is said "
             "about their cells rests on the others.",), warning=True))
    if results.failures:
        parts.append(Bullets([
            (Link(failure.path, failure.path),
             failure.error.strip().splitlines()[0])
            for failure in results.failures]))
    return parts


def variants(results: Results) -> List[Part]:
    rows: List[List[Spans]] = []
    for variant in results.variants:
        run = results.of_variant(variant)
        qemu = run.data["setting"]["qemu"]
        rows.append([(variant,), (qemu["version"],),
                     (qemu["sha256"][:12],), (properties(run),)])
    return [Heading(2, "Variants"),
            Table(["variant", "QEMU", "SHA-256", "IOThread properties"], rows)]


def summary(results: Results, limits: Limits) -> List[Part]:
    """One line per variant: all cells together."""
    names = titles(results)
    rows: List[List[Spans]] = []
    for variant in results.variants:
        if variant == results.baseline:
            continue
        row: List[Spans] = [(variant,)]
        for key in OVERVIEW:
            found = overall(results, variant, key)
            if found is None:
                row += [("-",), ("-",)]
                continue
            row.append(shown(found.mean, BY_KEY[key], limits[key], True))
            row.append((Link(percent(found.worst), f"#{found.worst_cell}"),))
        rows.append(row)
    head = ["variant"]
    for key in OVERVIEW:
        head += [BY_KEY[key].title, "worst cell"]
    if not rows or not names:
        return []
    return [Heading(2, "All cells together"),
            Paragraph(("Geometric mean of the cells’ differences with its "
                       "95 % interval, and the cell where it is worst.",)),
            Table(head, rows)]


def overview(results: Results, limits: Limits) -> List[Part]:
    """The tables that people compare: cells down, variants across."""
    names = titles(results)
    parts: List[Part] = []
    for key in OVERVIEW:
        metric = BY_KEY[key]
        unit = f" [{metric.unit}]" if metric.unit else ""
        rows: List[List[Spans]] = []
        for cell in results.cells:
            row: List[Spans] = [(Link(names[cell], f"#{cell}"),)]
            for variant in results.variants:
                row.append(entry(results, cell, variant, metric, limits))
            rows.append(row)
        parts += [Heading(2, f"{metric.title}{unit}"),
                  Table(["cell", *results.variants], rows)]
    return parts


def entry(results: Results, cell: str, variant: str, metric: Metric,
          limits: Limits, with_interval: bool = False) -> Spans:
    """The median, and how it differs from the baseline's."""
    runs = results.runs.get((cell, variant))
    if not runs:
        return (Grey("not run"),)
    value = number(median(runs, metric.key), metric.digits)
    if variant == results.baseline:
        return (value,)
    return (value, *shown(compare(results, cell, variant, metric.key), metric,
                          limits[metric.key], with_interval))


def details(results: Results, limits: Limits) -> List[Part]:
    """Each cell: all metrics, the files of the runs, the distribution."""
    names = titles(results)
    parts: List[Part] = [Heading(2, "Cell by cell")]
    for cell in results.cells:
        rows: List[List[Spans]] = []
        for metric in METRICS:
            unit = f", {metric.unit}" if metric.unit else ""
            rows.append([(f"{metric.title}{unit}",),
                         *(entry(results, cell, variant, metric, limits, True)
                           for variant in results.variants)])
        rows.append([("VM exits per I/O",),
                     *(exits(results.runs.get((cell, variant), []))
                       for variant in results.variants)])
        rows.append([("host busy, %",),
                     *(busy(results.runs.get((cell, variant), []))
                       for variant in results.variants)])
        rows.append([("raw files",),
                     *(tuple(Link(str(run.round), run.path) for run in
                             results.runs.get((cell, variant), []))
                       for variant in results.variants)])
        parts += [
            Heading(3, names[cell], cell),
            Table(["median of the rounds", *results.variants], rows),
            Paragraph((Link("job file", f"jobs/{cell}.fio"),)),
            Picture(f"plots/latency-{cell}.svg",
                    f"Latency, {names[cell]}")]
    return parts


def exits(runs: List[Run]) -> Spans:
    """Of the vCPUs, where the kernel let us count."""
    values = []
    for run in runs:
        counts = run.data["host"]["kvm_exits"]
        job, = run.data["fio"]["client_stats"]
        ios = job["read"]["total_ios"] + job["write"]["total_ios"]
        if counts is not None:
            values.append(counts["vcpus"] / ios)
    if not values:
        return (Grey("not counted"),)
    return (number(sorted(values)[len(values) // 2], 2),)


def busy(runs: List[Run]) -> Spans:
    if not runs:
        return ("-",)
    values = sorted(run.data["host"]["host_busy_percent"] for run in runs)
    return (number(values[len(values) // 2], 1),)


def pictures() -> List[Part]:
    return [Heading(2, "Plots"),
            Picture("plots/differences.svg",
                    "IOPS against CPU time per request, relative"),
            Picture("plots/iops-cpu.svg", "IOPS against CPU time")]


def reading(results: Results, limits: Limits) -> List[Part]:
    """How differences were judged."""
    items: List[Spans] = [
        ("A figure is the median of its rounds. A difference is the median of "
         "the ratios within the rounds, in which the variants took turns.",),
        ("Its interval, in brackets, is a 95 % bootstrap interval (10,000 "
         f"resamples of the rounds, fixed seed). With fewer than {ROUNDS_MIN} "
         "rounds there is none.",),
        ("Grey: may be noise, because the interval contains 0, there is no "
         "interval, or the difference is below the noise limit. Green is "
         "better, red is worse.",),
    ]
    same = twins(results)
    if same:
        seen = ", ".join(f"{metric.title} {limits[metric.key] * 100:.1f} %"
                         for metric in METRICS)
        items.append((f"Noise limits: {seen}. That is the largest difference "
                      f"that {' and '.join(same)}, the same as "
                      f"{results.baseline}, shows in any cell, and at least "
                      f"{NOISE_MIN * 100:.0f} %.",))
    else:
        items.append((f"Noise limit: {NOISE_MIN * 100:.0f} %, what a careful "
                      "fio run repeats within. No variant is a twin of "
                      f"{results.baseline}, so this machine’s own noise is "
                      "not known.",))
    items.append(("CPU is the time of QEMU’s threads from /proc, polling that "
                  "found nothing included; host busy is the whole host.",))
    return [Heading(2, "How to read this"), Bullets(items)]


def machine(results: Results) -> List[Part]:
    run = results.one()
    setting, guest = run.data["setting"], run.data["guest"]
    pinned = sorted({run.data["guest"]["pinned"]
                     for runs in results.runs.values() for run in runs})
    facts: Dict[str, Any] = {
        **results.machine,
        "guest": f"Linux {guest['kernel']}, {setting['arch']}, "
                 f"{setting['vcpus']} vCPUs, {setting['memory_mib']} MiB",
        "disk": f"{setting['disk_mib']} MiB of each is used, "
                f"{'O_DIRECT' if guest['direct'] else 'page cache'}",
        "pinning": "; ".join(pinned)}
    return [Heading(2, "Machine"),
            Table(["what", "fact"],
                  [[(name,), (str(value),)] for name, value in facts.items()]),
            Paragraph(("As data:", Link("machine.json", "machine.json"),
                       Link("matrix.json", "matrix.json")))]


def parts_of(results: Results) -> List[Part]:
    limits = Limits(results)
    return [*introduction(results), *variants(results),
            *summary(results, limits), *overview(results, limits),
            *pictures(), *reading(results, limits), *machine(results),
            *details(results, limits)]


# ---------------------------------------------------------------------------
# Files


def write_jobs(results: Results, directory: Path) -> None:
    """The job of each cell; all its runs had the same."""
    directory.mkdir(exist_ok=True)
    for cell in results.cells:
        jobs = {run.data["job"] for (name, _), runs in results.runs.items()
                if name == cell for run in runs}
        if len(jobs) != 1:
            raise ValueError(f"the runs of {cell} had different jobs")
        (directory / f"{cell}.fio").write_text(jobs.pop(), encoding="utf-8")


def write(results: Results, directory: Path) -> None:
    """All but the plots."""
    parts = parts_of(results)
    write_jobs(results, directory / "jobs")
    (directory / "report.md").write_text(
        "<!-- SPDX-License-Identifier: GPL-2.0-or-later -->\n" +
        markdown(parts), encoding="utf-8")
    title = re.sub("[“”]", "", f"fio matrix {results.matrix['title']}")
    (directory / "report.html").write_text(page(title, parts),
                                           encoding="utf-8")


def main() -> int:
    directory = Path(sys.argv[1])
    # Takes a second to import, and words need no plots.
    import fioplots
    try:
        results = load(directory)
        write(results, directory)
        fioplots.draw(results, directory / "plots")
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
