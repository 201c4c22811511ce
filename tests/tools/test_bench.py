# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/bench with programs that print recorded figures: no time passes."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import List, Sequence, Tuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tools")]

from polltools import machine  # noqa: E402
from realtimebars import judge  # noqa: E402
from realtimefigures import (Key, Results, Sample, compare, load, median,
                             noisy, sample_of, save, spread)  # noqa: E402
from realtimereport import report  # noqa: E402

# What aio-poll-realtime has printed once
RECORDED = """\
{"monitor": "epoll", "loop_cpu": 0, "world_cpu": 1, "poll_grow": 0, \
"poll_shrink": 0, "duration_ns": 500000000, "warmup_ns": 200000000, \
"seed": 1, "costs": {},
 "scenarios": [
  {"name": "nvme-qd1-80", "set": "bars", "selfnotify": 3, \
"poll_max_ns": 32768, "queues": 1, "measured_ns": 505377737, "ios": 360, \
"iops": 712.338, "cpu_percent": 5.102, "cpu_ns_per_io": 71624.197, \
"iterations": 1438, "wakeups": 536, "preempted": 3, "kicks": 179, \
"latency_ns": {"mean": 1144658, "p50": 131725, "p99": 27869409, \
"p99.9": 39409725}, "late_ns": {"mean": 437582, "p50": 31, \
"p99": 15825043, "p99.9": 27967142}}
 ]}
"""

# Writes down how it was called and prints the next one of the outputs that
# are there for its scenario; a shell script, because it is called so often
FAKE = """\
#!/bin/sh
cd {here} || exit
if [ "$1" = --list ]; then
    echo "other                    more"
    sed 's/$/                    bars/' names
    exit
fi
if [ "$1" != --scenario ]; then exit 99; fi
echo "{tree}" "$@" >> calls
place={tree}.$2
count=0
if [ -e "$place.count" ]; then read -r count < "$place.count"; fi
echo "$((count + 1))" > "$place.count"
read -r len < "$place.len"
if [ "$len" = 0 ]; then cat "$place.fail" >&2; exit 1; fi
cat "$place.$((count % len))"
"""
NAMES = [f"disk{i}" for i in range(14)]
FEW = NAMES[:3]


def sample(iops: float, cpu_ns: float) -> Sample:
    return Sample(iops, cpu_ns, 10.0, 1, 1, 1, 0.5, 0.5, 0, 100)


def results(**variants: Sequence[Sample]) -> Results:
    """The same samples for every scenario."""
    made = Results({"CPU": "abacus"}, {"rounds": 5})
    for name in NAMES:
        for variant, samples in variants.items():
            made.samples[Key("epoll", name, variant.replace("_", "-"))] = \
                list(samples)
    return made


class Statistics(unittest.TestCase):

    def test_recorded_output(self) -> None:
        found = sample_of(json.loads(RECORDED))
        self.assertEqual(found, Sample(712.338, 71624.197, 5.102, 1144658,
                                       131725, 27869409, 1.4889, 0.4972, 3,
                                       15825043))

    def test_median(self) -> None:
        samples = [sample(iops, 1) for iops in (5, 1, 100, 3, 4)]
        self.assertEqual(median(samples, "iops"), 4)

    def test_spread_is_that_of_the_middle_three_of_five(self) -> None:
        self.assertEqual(spread([100, 90, 1000, 105, 1]), 0.15)

    def test_one_disturbed_run_is_none(self) -> None:
        self.assertEqual(spread([100, 100, 100, 100, 5]), 0)
        self.assertGreater(spread([100, 100, 100, 5, 5]), 0.9)

    def test_noise_is_named(self) -> None:
        steady = [sample(100, 50)] * 5
        made = results(stock=steady, series_w3=steady)
        self.assertEqual(noisy(made), [])
        made.samples[Key("epoll", "disk3", "series-w3")] = [
            sample(100, cpu) for cpu in (50, 50, 50, 56, 57)]
        self.assertEqual([str(noise) for noise in noisy(made)], [
            "epoll, disk3, series-w3: CPU time spread over 12.0 %"])

    def test_noise_at_the_limit(self) -> None:
        made = results(stock=[sample(iops, 50)
                              for iops in (100, 100, 100, 110, 200)])
        self.assertEqual(noisy(made), [])

    def test_ratios_of_medians(self) -> None:
        made = results(stock=[sample(100, 50), sample(100, 50),
                              sample(1, 900)],
                       series_w3=[sample(200, 25)] * 3)
        ratios = compare(made, "epoll", "series-w3", "stock", NAMES)
        self.assertAlmostEqual(ratios.mean_iops(), 2)
        self.assertAlmostEqual(ratios.mean_cpu(), 0.5)

    def test_round_trip(self) -> None:
        made = results(stock=[sample(100.5, 50)] * 2)
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "realtime.json"
            save(made, path)
            self.assertEqual(load(path), made)


class Bars(unittest.TestCase):

    def missed(self, series: Sample, peer: Sample) -> List[str]:
        made = results(stock=[sample(1000, 1000)], series_w3=[series],
                       peer_w3=[peer])
        return [verdict.what for verdict in judge(made)
                if not verdict.passed()]

    def test_reached(self) -> None:
        self.assertEqual(self.missed(sample(996, 860), sample(990, 970)), [])

    def test_each_is_missed(self) -> None:
        self.assertEqual(self.missed(sample(940, 880), sample(950, 870)), [
            "IOPS mean", "IOPS worst", "CPU mean", "IOPS mean", "CPU mean"])

    def test_as_good_as_the_peer_is_not_better(self) -> None:
        self.assertEqual(self.missed(sample(996, 860), sample(996, 860)),
                         ["IOPS mean", "CPU mean"])

    def test_too_few_scenarios(self) -> None:
        made = results(stock=[sample(1, 1)], series_w3=[sample(2, 0.5)],
                       peer_w3=[sample(1, 1)])
        for variant in ("stock", "series-w3", "peer-w3"):
            del made.samples[Key("epoll", NAMES[0], variant)]
        self.assertEqual([verdict.what for verdict in judge(made)
                          if not verdict.passed()], ["scenarios"])

    def test_without_figures(self) -> None:
        self.assertEqual(judge(results(stock=[sample(1, 1)])), [])

    def test_report_names_the_machine_and_the_bars(self) -> None:
        text = report(results(stock=[sample(1000, 1000)] * 5,
                              series_w3=[sample(996, 800)] * 5,
                              peer_w3=[sample(990, 970)] * 5))
        self.assertIn("abacus", text)
        self.assertIn("| epoll: CPU mean | 0.800 | ≤ 0.870 | reached |", text)
        self.assertIn("upstream 11.1, poll-weight 3", text)


class Tool(unittest.TestCase):
    """All of it, in a directory of its own."""

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.dir = Path(temp.name)
        self.names(FEW)
        for tree, iops, cpu in (("stock", 1000, 1000), ("series", 999, 800),
                                ("peer", 990, 970)):
            program = self.dir / tree
            program.write_text(FAKE.format(here=self.dir, tree=tree))
            program.chmod(0o755)
            for name in NAMES:
                self.figures(tree, name, (iops, cpu))

    def names(self, names: Sequence[str]) -> None:
        (self.dir / "names").write_text("".join(f"{name}\n"
                                                for name in names))

    def outputs(self, tree: str, name: str, texts: Sequence[str]) -> None:
        """What a program prints, call by call."""
        place = f"{tree}.{name}"
        for number, text in enumerate(texts):
            (self.dir / f"{place}.{number}").write_text(text)
        (self.dir / f"{place}.len").write_text(f"{len(texts)}\n")

    def figures(self, tree: str, name: str,
                *values: Tuple[float, float]) -> None:
        texts = []
        for iops, cpu_ns in values:
            output = json.loads(RECORDED)
            output["scenarios"][0].update(name=name, iops=iops,
                                          cpu_ns_per_io=cpu_ns)
            texts.append(json.dumps(output))
        self.outputs(tree, name, texts)

    def bench(self, *arguments: str,
              base: str = "v11.0") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(ROOT / "tools/bench"), "--results",
             str(self.dir / "realtime.json"), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
            universal_newlines=True, env={**os.environ, "BASE": base})

    def all(self) -> List[str]:
        return [word for tree in ("stock", "series", "peer")
                for word in (f"--{tree}", str(self.dir / tree))]

    def calls(self) -> List[List[str]]:
        text = (self.dir / "calls").read_text()
        return [line.split() for line in text.splitlines()]

    def written(self) -> bool:
        return (self.dir / "realtime.json").exists() or \
            (self.dir / "realtime.md").exists()

    def test_whole_run(self) -> None:
        self.names(NAMES)
        done = self.bench(*self.all())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("pass        epoll: IOPS mean 0.999", done.stdout)
        made = load(self.dir / "realtime.json")
        self.assertEqual({len(samples) for samples in made.samples.values()},
                         {5})
        self.assertIn(made.machine["idle CPUs"],
                      (machine.AWAKE, machine.MAY_SLEEP))
        self.assertIn("| epoll | 14 | series, poll-weight 3 |",
                      (self.dir / "realtime.md").read_text())
        done = self.bench("--bars")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_base_without_a_peer(self) -> None:
        """And whose IOThreads do not wait in io_uring."""
        self.names([*NAMES, "opt-qd1"])
        for tree, iops, cpu in (("stock", 1000, 1000), ("series", 999, 800)):
            self.figures(tree, "opt-qd1", (iops, cpu))
        programs = self.all()[:4]
        done = self.bench(*programs, base="v10.0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("pass        epoll: CPU mean 0.800", done.stdout)
        self.assertNotIn("11.1", done.stdout)
        made = load(self.dir / "realtime.json")
        self.assertEqual(made.variants(), ["stock", "series-w3"])
        self.assertEqual(made.monitors(), ["epoll", "poll"])
        self.assertEqual(made.scenarios("poll"), ["opt-qd1"])
        self.assertIn("all programs or none: --stock, --series\n",
                      self.bench(*self.all(), base="v10.0").stderr)

    def test_order(self) -> None:
        """All take turns, and each is first as often as the others."""
        self.bench("--rounds", "3", "--scenario", "disk0", *self.all())
        trees = [call[0] for call in self.calls()]
        self.assertEqual([sorted(trees[i:i + 3]) for i in (0, 3, 6)],
                         [["peer", "series", "stock"]] * 3)
        self.assertEqual(sorted(trees[::3]), ["peer", "series", "stock"])

    def test_options(self) -> None:
        self.bench("--rounds", "1", "--scenario", "disk0", "--monitor",
                   "poll", "--weight", "2", "--weight", "6",
                   "--duration", "5ms", "--selfnotify", "0", *self.all())
        calls = {call[0] + call[call.index("--weight") + 1]
                 if "--weight" in call else call[0]: call
                 for call in self.calls()}
        self.assertEqual(set(calls), {"stock", "series2", "series6", "peer3"})
        for call in calls.values():
            self.assertEqual(call[call.index("--monitor") + 1], "poll")
            self.assertEqual(call[call.index("--duration") + 1], "5ms")
            self.assertEqual(call[call.index("--selfnotify") + 1], "0")

    def test_noise_is_refused(self) -> None:
        self.figures("series", "disk1", (1000, 800), (700, 800))
        done = self.bench(*self.all())
        self.assertEqual(done.returncode, 1)
        self.assertIn("too noisy", done.stderr)
        self.assertIn("epoll, disk1, series-w3: IOPS spread over",
                      done.stderr)
        self.assertNotIn("disk2", done.stderr)
        self.assertFalse(self.written())

    def test_noise_of_another_monitor(self) -> None:
        """It is not reported; what is steady is."""
        self.names([*NAMES, "opt-qd1"])
        for tree in ("stock", "series", "peer"):
            # The monitors take turns
            self.figures(tree, "opt-qd1", (1000, 1000), (1000, 1000),
                         (1000, 1000), (500, 1000))
        done = self.bench(*self.all())
        self.assertEqual(done.returncode, 1)
        self.assertIn("nothing is reported of io_uring", done.stdout)
        made = load(self.dir / "realtime.json")
        self.assertEqual(made.monitors(), ["epoll"])

    def test_noise_leaves_the_old_figures(self) -> None:
        self.assertEqual(self.bench(*self.all()).returncode, 0)
        before = (self.dir / "realtime.json").read_text()
        (self.dir / "calls").unlink()
        self.figures("peer", "disk1", (1000, 800), (1000, 400))
        self.assertEqual(self.bench(*self.all()).returncode, 1)
        self.assertEqual((self.dir / "realtime.json").read_text(), before)

    def test_what_is_not_steady_is_run_again(self) -> None:
        """By all variants, and the first samples count, too."""
        self.figures("stock", "disk2", (1000, 1000), (500, 1000),
                     (500, 1000), *([(1000, 1000)] * 20))
        done = self.bench(*self.all())
        self.assertEqual(done.returncode, 0, done.stderr)
        made = load(self.dir / "realtime.json")
        again = {len(made.samples[Key("epoll", "disk2", variant)])
                 for variant in made.variants()}
        self.assertEqual(len(again), 1)
        self.assertGreater(again.pop(), 5)
        self.assertEqual(len(made.samples[Key("epoll", "disk1", "stock")]), 5)
        self.assertIn(500, [one.iops for one in made.samples[
            Key("epoll", "disk2", "stock")]])

    def test_a_part_is_shown_and_not_written(self) -> None:
        for options in (["--scenario", "disk0"], ["--monitor", "poll"],
                        ["--selfnotify", "0"], ["--rounds", "2"],
                        ["--weight", "2"]):
            done = self.bench(*options, *self.all())
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("| disk0 | stock |", done.stdout)
            self.assertFalse(self.written())

    def test_program_that_fails(self) -> None:
        self.outputs("series", "disk2", [])
        (self.dir / "series.disk2.fail").write_text(
            "a request on queue 3 was lost")
        done = self.bench(*self.all())
        self.assertEqual(done.returncode, 1)
        self.assertIn("a request on queue 3 was lost", done.stderr)
        self.assertFalse(self.written())

    def test_program_that_prints_nonsense(self) -> None:
        for text in ("", "x", "[]", "{}", '{"scenarios": []}',
                     RECORDED.replace('"ios": 360', '"ios": 0'),
                     RECORDED.replace("latency_ns", "latency")):
            self.outputs("peer", "disk2", [text])
            done = self.bench("--rounds", "1", "--scenario", "disk2",
                              *self.all())
            self.assertEqual(done.returncode, 1)
            self.assertIn("prints no figures", done.stderr)

    def test_bars_that_are_missed(self) -> None:
        for name in NAMES:
            self.figures("series", name, (900, 800))
        done = self.bench(*self.all())
        self.assertEqual(done.returncode, 0, "figures are reported anyway")
        done = self.bench("--bars")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAIL        epoll: IOPS worst 0.900", done.stdout)

    def test_missing_and_broken_results(self) -> None:
        self.assertIn("is missing", self.bench("--bars").stderr)
        for text in ("{}", "x", "[]", '{"format": 1}'):
            (self.dir / "realtime.json").write_text(text)
            done = self.bench("--bars")
            self.assertEqual(done.returncode, 1)
            self.assertIn("cannot be read", done.stderr)

    def test_wrong_arguments(self) -> None:
        self.assertIn("is no program",
                      self.bench("--stock", "/nonexistent").stderr)
        self.assertIn("all programs or none",
                      self.bench(*self.all()[:2]).stderr)
        self.assertIn("not in range", self.bench("--weight", "0").stderr)
        self.assertIn("not in range", self.bench("--rounds", "0").stderr)
        self.assertIn("invalid choice", self.bench("--monitor", "x").stderr)


if __name__ == "__main__":
    unittest.main()
