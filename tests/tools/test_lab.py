# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/lab with programs that only pretend to be the lab."""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Dict, List

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from labbars import Grade, at_least, at_most, grade, grades, judge  # noqa
from labfigures import (Results, Row, RunKey, compare, differences, load,
                        save)  # noqa: E402

# It prints a file beside it.
FAKE = """\
#!/bin/sh
[ ! -e "$0.fails" ] || { cat "$0.fails" >&2; exit 1; }
cat "$0.json"
"""
FIGURES = {"nvme-qd1-80": [10000.0, 20000.0], "other": [500.0, 9000.0]}


def row(iops: float, cpu_ns: float) -> Row:
    return Row(iops, cpu_ns, 1, 1, 1, 1, 0.0, 0.0, 1.0, 1.0, 1.0)


def results(variant: str, **rows: Row) -> Results:
    made = Results(sets={name: "bars" for name in rows},
                   queues={name: 1 for name in rows})
    made.runs[RunKey(variant, "vm", 0)] = dict(rows)
    return made


class Differences(unittest.TestCase):

    def found(self, iops: float, cpu: float) -> List[str]:
        return differences(results("stock", disk=row(1000, 1000)),
                           results("stock", disk=row(iops, cpu)), 0.005)

    def test_within_the_tolerance(self) -> None:
        self.assertEqual(self.found(1004.9, 995.1), [])

    def test_iops(self) -> None:
        self.assertEqual(self.found(994.0, 1000), [
            "stock, vm, self-notification off: disk: IOPS 1000.0 -> 994.0 "
            "(-0.60 %)"])

    def test_cpu(self) -> None:
        self.assertEqual(len(self.found(1000, 1005.1)), 1)

    def test_scenarios_that_come_and_go(self) -> None:
        lines = differences(results("stock", old=row(1, 1)),
                            results("stock", new=row(1, 1)), 0.005)
        self.assertEqual([line.split(": ")[1] for line in lines],
                         ["old is missing", "new is new"])

    def test_unknown_run(self) -> None:
        self.assertEqual(len(differences(results("stock", disk=row(1, 1)),
                                         results("off", disk=row(1, 1)),
                                         0.005)), 1)

    def test_fewer_runs(self) -> None:
        expected = results("stock", disk=row(1, 1))
        expected.runs[RunKey("off", "vm", 0)] = {"disk": row(1, 1)}
        self.assertEqual(differences(expected,
                                     results("stock", disk=row(1, 1)),
                                     0.005), [])


class KnownMisses(unittest.TestCase):
    """Bars that are not reached, but listed with the figure that is."""

    def grade(self, found: float, **known: float) -> str:
        return grade(at_least("vm", "IOPS", found, 0.98),
                     {f"vm: {name}": value
                      for name, value in known.items()}).grade

    def test_listed(self) -> None:
        self.assertEqual(self.grade(0.97, IOPS=0.97), "known miss")
        self.assertEqual(self.grade(0.975, IOPS=0.97), "known miss")

    def test_not_listed(self) -> None:
        self.assertEqual(self.grade(0.97, CPU=0.97), "FAIL")
        self.assertEqual(self.grade(0.98, CPU=0.97), "pass")

    def test_got_worse(self) -> None:
        self.assertEqual(self.grade(0.969, IOPS=0.97), "FAIL")
        upper = grade(at_most("vm", "CPU", 1.25, 1.22), {"vm: CPU": 1.24})
        self.assertEqual(upper.grade, "FAIL")
        self.assertIn("worse than the 1.240", upper.text)

    def test_reached_after_all(self) -> None:
        self.assertEqual(self.grade(0.98, IOPS=0.97), "FAIL")

    def test_no_such_bar(self) -> None:
        """Only when every bar was judged can one say that there is none."""
        verdicts = [at_least("vm", "IOPS", 1, 0.98)]
        made: List[Grade] = grades(verdicts, {"vm: OIPS": 0.9}, complete=True)
        self.assertEqual([each.grade for each in made], ["pass", "FAIL"])
        self.assertEqual(len(grades(verdicts, {"vm: OIPS": 0.9}, False)), 1)


class Figures(unittest.TestCase):

    def test_round_trip(self) -> None:
        made = results("stock", disk=row(1234.567, 8), other=row(2, 3))
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "lab.json"
            save(made, path)
            self.assertEqual(load(path), made)

    def test_ratios(self) -> None:
        made = results("stock", a=row(100, 10), b=row(100, 10))
        made.runs[RunKey("off", "vm", 0)] = {"a": row(200, 5),
                                             "b": row(50, 40)}
        ratios = compare(made, "off", "stock", "vm", 0, ["a", "b"])
        self.assertEqual(ratios.worst_iops(), (0.5, "b"))
        self.assertEqual(ratios.worst_cpu(), (4.0, "b"))
        self.assertAlmostEqual(ratios.mean_iops(), 1.0)
        self.assertAlmostEqual(ratios.mean_cpu(), 2 ** 0.5)


class Tool(unittest.TestCase):
    """All of it, in a directory of its own."""

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.dir = Path(temp.name)
        for name in ("tools", "bench", "bases"):
            shutil.copytree(ROOT / name, self.dir / name,
                            ignore=shutil.ignore_patterns("__pycache__"))
        with (self.dir / "bench/labbars.py").open("a") as file:
            file.write("\nKNOWN_MISSES.clear()\n")
        for tree in ("stock", "series", "peer"):
            program = self.dir / tree
            program.write_text(FAKE)
            program.chmod(0o755)
            self.set(tree, FIGURES)

    def set(self, tree: str, figures: Dict[str, List[float]]) -> None:
        """What a program prints: IOPS and CPU time of scenarios."""
        rows = [dict(name=name,
                     set="bars" if name == "nvme-qd1-80" else "more",
                     queues=1, ios=1000, iops=iops, cpu_ns_per_io=cpu,
                     spin_hit_ns=1, spin_miss_ns=2, wakeups=3, kicks=4,
                     iterations=5, latency_ns={"mean": 1, "p50": 1, "p99": 1,
                                               "p99.9": 1})
                for name, (iops, cpu) in figures.items()]
        (self.dir / f"{tree}.json").write_text(json.dumps({"scenarios": rows}))

    def lab(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(self.dir / "tools/lab"), "--no-plots", "--results",
             str(self.dir / "lab.json"), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
            universal_newlines=True)

    def know(self, misses: Dict[str, float]) -> None:
        """List known misses; those of the committed figures are gone."""
        with (self.dir / "bench/labbars.py").open("a") as file:
            file.write('\nKNOWN_MISSES.setdefault("v11.0", {})'
                       f".update({misses})\n")

    def programs(self, *trees: str) -> List[str]:
        return [word for tree in trees
                for word in (f"--{tree}", str(self.dir / tree))]

    def all(self) -> List[str]:
        return self.programs("stock", "series", "peer")

    def test_run_and_check(self) -> None:
        done = self.lab(*self.all())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("polling off", (self.dir / "lab.md").read_text())
        done = self.lab("--check", *self.programs("stock", "series"))
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_check_names_what_differs(self) -> None:
        self.lab(*self.all())
        before = (self.dir / "lab.json").read_text()
        self.set("series", {**FIGURES, "other": [503.0, 9000.0]})
        done = self.lab("--check", *self.all())
        self.assertEqual(done.returncode, 1)
        self.assertIn("series-w3, metal, self-notification on: other: IOPS "
                      "500.0 -> 503.0", done.stdout)
        self.assertNotIn("differs: stock", done.stdout)
        self.assertEqual((self.dir / "lab.json").read_text(), before)

    def test_bars(self) -> None:
        self.lab(*self.all())
        done = self.lab("--bars")
        self.assertEqual(done.returncode, 1)
        self.assertIn("\nFAIL        metal, self-notification off: CPU of "
                      "nvme-qd1-80 1.000, bar <= 0.600\n", done.stdout)
        self.set("series", {"nvme-qd1-80": [10000.0, 12000.0],
                            "other": [500.0, 7000.0]})
        done = self.lab("--bars", *self.all())
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("known miss", done.stdout)
        # One line with the count for both
        done = self.lab("--bars", "--check", *self.all())
        self.assertEqual(done.stdout.count(" passed, "), 1)
        self.assertTrue(done.stdout.endswith("260 passed, 0 failed\n"),
                        done.stdout)

    def test_known_miss(self) -> None:
        self.set("series", {"nvme-qd1-80": [10000.0, 12000.0],
                            "other": [480.0, 7000.0]})
        self.assertEqual(self.lab("--bars", *self.all()).returncode, 1)
        self.know({f"{profile}, self-notification {notify}{which}": figure
                   for profile in ("metal", "default", "vm")
                   for notify in ("off", "on")
                   for which, figure in
                   ((": IOPS worst, other scenarios", 0.96),
                    (", to 11.1: IOPS worst", 0.96))
                   if profile != "vm" or "11.1" not in which})
        self.know({f"vm, self-notification {notify}, to 11.1: IOPS mean": 0.97
                   for notify in ("off", "on")})
        done = self.lab("--bars", "--results", str(self.dir / "lab.json"))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("\nknown miss  vm, self-notification on: IOPS worst, "
                      "other scenarios 0.960 (other), bar >= 0.980, listed "
                      "with 0.960\n", done.stdout)
        self.assertTrue(done.stdout.endswith(
            "114 passed, 0 failed, 12 known misses\n"), done.stdout)

    def test_weight_that_is_not_monotone(self) -> None:
        self.lab(*self.all())
        made = load(self.dir / "lab.json")
        made.runs[RunKey("series-w4", "vm", 3)]["nvme-qd1-80"] = row(9900,
                                                                     20000)
        wrong = [str(verdict) for verdict in judge(made)
                 if "weight" in verdict.what and not verdict.passed()]
        self.assertEqual(len(wrong), 1)
        self.assertIn("vm, self-notification on: weight 4 to 3", wrong[0])

    def test_program_that_fails(self) -> None:
        (self.dir / "stock.fails").write_text("lost a request")
        done = self.lab(*self.all())
        self.assertEqual(done.returncode, 1)
        self.assertIn("lost a request", done.stderr)
        self.assertFalse((self.dir / "lab.json").exists())

    def test_nothing_written_without_the_peer(self) -> None:
        done = self.lab(*self.programs("stock", "series"))
        self.assertEqual(done.returncode, 0)
        self.assertFalse((self.dir / "lab.json").exists())

    def test_scenarios_of_a_file(self) -> None:
        """They are shown; nothing is written or compared."""
        self.set("series", {"nvme-qd1-80": [10000.0, 12000.0],
                            "other": [480.0, 7000.0]})
        path = self.dir / "mine.ini"
        arguments = ["--file", str(path), *self.programs("stock", "series")]
        self.assertIn("there is no such file", self.lab(*arguments).stderr)
        path.touch()
        done = self.lab(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count(
            "| nvme-qd1-80 | 10000 | 20.00 | 1.000 | 0.60 | 1.000 | 0.60 |\n"
            "| other | 500 | 9.00 | 0.960 | 0.78 | 0.960 | 0.78 |\n"), 3)
        self.assertIn("series, poll-weight 2: IOPS | CPU |", done.stdout)
        self.assertFalse((self.dir / "lab.json").exists())
        for option in ("--check", "--bars", "--measure"):
            self.assertEqual(self.lab(*arguments, option).returncode, 2)

    def test_the_file_is_passed_on(self) -> None:
        path = self.dir / "mine.ini"
        path.touch()
        (self.dir / "stock").write_text(
            FAKE + f'echo "$@" >>{self.dir}/calls\n')
        self.lab("--file", str(path), *self.programs("stock", "series"))
        calls = (self.dir / "calls").read_text().splitlines()
        self.assertEqual(len(calls), 3)
        for call in calls:
            self.assertIn(f"--file {path.resolve()}", call)
            self.assertIn("--selfnotify 3", call)

    def test_missing_and_broken_results(self) -> None:
        self.assertIn("is missing", self.lab("--bars").stderr)
        (self.dir / "lab.json").write_text("{}")
        self.assertIn("cannot be read", self.lab("--bars").stderr)

    def test_wrong_arguments(self) -> None:
        self.assertIn("is no program",
                      self.lab("--stock", "/nonexistent").stderr)
        self.assertIn("not in range", self.lab("--jobs", "0").stderr)


if __name__ == "__main__":
    unittest.main()
