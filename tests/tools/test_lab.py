# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/lab with programs that only pretend to be the lab."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, List

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from labbars import judge  # noqa: E402
from labfigures import (Results, Row, RunKey, compare, differences, load,
                        save)  # noqa: E402

FAKE = """\
#!/usr/bin/env python3
import json, sys
from pathlib import Path
figures = json.loads(Path({figures!r}).read_text())
if "fail" in figures:
    sys.exit(figures["fail"])
rows = []
for name, (iops, cpu) in figures.items():
    rows.append(dict(
        name=name, set="bars" if name == "nvme-qd1-80" else "more", queues=1,
        ios=1000, iops=iops, cpu_ns_per_io=cpu, spin_hit_ns=1, spin_miss_ns=2,
        wakeups=3, kicks=4, iterations=5,
        latency_ns={{"mean": 1, "p50": 1, "p99": 1, "p99.9": 1}}))
print(json.dumps({{"scenarios": rows}}))
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
        for tree in ("stock", "series", "peer"):
            program = self.dir / tree
            program.write_text(FAKE.format(
                figures=str(self.dir / f"{tree}.json")))
            program.chmod(0o755)
            self.set(tree, FIGURES)

    def set(self, tree: str, figures: Dict[str, Any]) -> None:
        (self.dir / f"{tree}.json").write_text(json.dumps(figures))

    def lab(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(ROOT / "tools/lab"), "--no-plots", "--results",
             str(self.dir / "lab.json"), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
            universal_newlines=True)

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
        self.assertNotIn("stock,", done.stdout.split("ran for")[1])
        self.assertEqual((self.dir / "lab.json").read_text(), before)

    def test_bars(self) -> None:
        self.lab(*self.all())
        done = self.lab("--bars")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAIL  metal, self-notification off: CPU of "
                      "nvme-qd1-80 1.000, bar <= 0.600", done.stdout)
        self.set("series", {"nvme-qd1-80": [10000.0, 12000.0],
                            "other": [500.0, 7000.0]})
        done = self.lab("--bars", *self.all())
        self.assertEqual(done.returncode, 0, done.stdout)

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
        self.set("stock", {"fail": "lost a request"})
        done = self.lab(*self.all())
        self.assertEqual(done.returncode, 1)
        self.assertIn("lost a request", done.stderr)
        self.assertFalse((self.dir / "lab.json").exists())

    def test_nothing_written_without_the_peer(self) -> None:
        done = self.lab(*self.programs("stock", "series"))
        self.assertEqual(done.returncode, 0)
        self.assertFalse((self.dir / "lab.json").exists())

    def test_missing_and_broken_results(self) -> None:
        self.assertIn("is missing", self.lab("--bars").stderr)
        (self.dir / "lab.json").write_text("{}")
        self.assertIn("cannot be read", self.lab("--bars").stderr)

    def test_wrong_arguments(self) -> None:
        self.assertIn("is no program",
                      self.lab("--stock", "/nonexistent").stderr)
        self.assertIn("at least one program", self.lab("--check").stderr)
        self.assertIn("not in range", self.lab("--jobs", "0").stderr)


if __name__ == "__main__":
    unittest.main()
