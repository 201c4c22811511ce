# SPDX-License-Identifier: GPL-2.0-or-later
"""Trees for the benchmarks: what is built from what, with a stand-in for
configure, ninja and the lab, and two bases that have the same benchmark."""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import List

from toyroot import BASE, ROOT, VERSION, ToyRoot

sys.path.insert(0, str(ROOT / "tools"))

from polltools.arch import host  # noqa: E402

CONFIGURE = """\
#!/bin/sh
echo "$@" >configure-arguments
mkdir -p tests/bench tests/unit
"""

# A benchmark is its own source with a look at the loop of the tree.
NINJA = """\
#!/bin/sh
[ "$1" = -C ] && cd "$2" && shift 2
for target; do
    case $target in
    tests/bench/*)
        sed "s/@LOOP@/$(grep -c ten ../src/util/poll.c)/" \\
            "../src/$target.in" >"$target" || exit 1
        chmod +x "$target" ;;
    *) cp ../src/util/poll.c "$target" ;;
    esac
done
"""

LAB = """\
#!/bin/sh
# Its author: toy
[ "$1" != --help ] || exit 0
tail='"queues": 1, "ios": 1000, "spin_hit_ns": 1, "spin_miss_ns": 2,
    "wakeups": 3, "kicks": 4, "iterations": 5,
    "latency_ns": {"mean": 1, "p50": 1, "p99": 1, "p99.9": 1}'
cat <<EOF
{"scenarios": [
{"name": "nvme-qd1-80", "set": "bars", "iops": 1000,
    "cpu_ns_per_io": $((1000 - 500 * @LOOP@)), $tail},
{"name": "other", "set": "more", "iops": 1000,
    "cpu_ns_per_io": $((1000 - 500 * @LOOP@)), $tail}]}
EOF
"""
PROGRAM = "tests/bench/aio-poll-lab"
PROGRAMS = """\
import sys
from polltools import common, labtrees
def tool():
    base = common.load_base(common.default_base())
    labtrees.programs(base, sys.argv[1],
                      sys.argv[2:] or labtrees.variants_of(base))
    return 0
common.main(tool)
"""


TEMPLATE: List[Path] = []


class Toy(ToyRoot):
    """Base toy: a benchmark, then a change of the loop. Base toypeer: the
    benchmark only."""

    def make_source(self) -> None:
        super().make_source()
        (self.source / "configure").write_text(CONFIGURE)
        (self.source / "configure").chmod(0o755)
        (self.source / "MAINTAINERS").write_text("nobody\n")
        (self.source / "tests/bench").mkdir(parents=True)
        (self.source / "tests/bench/meson.build").write_text("# none\n")

    def write_base(self, more: str = "", tree: object = None) -> None:
        listing = self.tree_of_source()
        for name, key in (("toy", "peer = toypeer"),
                          ("toypeer", "bench-only = yes")):
            text = BASE.format(version=VERSION)
            (self.root / "bases" / name).write_text(f"{text}{key}\n{more}")
            (self.root / f"bases/{name}.tree").write_text(listing)

    def setUp(self) -> None:
        super().setUp()
        shutil.copytree(ROOT / "bench", self.root / "bench",
                        ignore=shutil.ignore_patterns("__pycache__"))
        tools = self.tmp / "bin"
        tools.mkdir()
        (tools / "ninja").write_text(NINJA)
        (tools / "ninja").chmod(0o755)
        self.path = f"{tools}:{os.environ['PATH']}"
        (self.root / "tools/programs").write_text(
            "#!/usr/bin/env -S python3 -B\n" + PROGRAMS)
        (self.root / "tools/programs").chmod(0o755)
        self.make_both()

    def make_both(self) -> None:
        """The repository that every test begins with: made once, copied
        from then on."""
        if TEMPLATE:
            shutil.rmtree(self.root)
            shutil.copytree(TEMPLATE[0] / "repo", self.root)
            self.use("toy")
            return
        self.add_benchmark("toypeer")
        self.add_benchmark("toy")
        self.edit("line 10\n", "line ten\n")
        self.commit("util: write ten as a word")
        self.tool("export")
        TEMPLATE.append(Path(tempfile.mkdtemp(prefix="toylab-")))
        atexit.register(shutil.rmtree, TEMPLATE[0])
        shutil.copytree(self.root, TEMPLATE[0] / "repo")

    def use(self, base: str) -> None:
        """Edits and commits are made in this base's tree."""
        self.src = self.root / "build" / base / "src"
        self.patches = self.root / "patches" / base
        self.base = base

    def add_benchmark(self, base: str, name: str = "aio-poll-lab") -> None:
        self.use(base)
        if not self.src.exists():
            self.run_tool("checkout", QEMU_SRC=str(self.source))
        (self.src / f"tests/bench/{name}.in").write_text(LAB)
        meson = self.src / "tests/bench/meson.build"
        meson.write_text(meson.read_text() + f"executable('{name}')\n")
        (self.src / "MAINTAINERS").write_text(f"somebody of {base}\n")
        self.commit(f"tests/bench: add {name}")
        self.run_tool("export")

    def run_tool(self, *words: str, status: int = 0, **env: str) -> str:
        return self.tool(*words, status=status, PATH=self.path,
                         **{"BASE": self.base, **env})

    def drop_peer(self) -> None:
        base = self.root / "bases/toy"
        base.write_text(base.read_text().replace("peer = toypeer\n", ""))

    def built(self, place: str) -> str:
        return (self.root / "build" / place / PROGRAM).read_text()


class Trees(Toy):

    def test_three_trees(self) -> None:
        text = self.run_tool("programs", PROGRAM)
        for line in (f"stock: build/toy/lab/obj/{PROGRAM}",
                     f"series: build/toy/obj-lab/{PROGRAM}",
                     f"peer: build/toypeer/lab/obj/{PROGRAM}"):
            self.assertIn(line, text)
        self.assertIn("500 * 0", self.built("toy/lab/obj"))
        self.assertIn("500 * 1", self.built("toy/obj-lab"))
        self.assertIn("500 * 0", self.built("toypeer/lab/obj"))
        for place in ("toy/lab/obj", "toy/obj-lab", "toypeer/lab/obj"):
            options = (self.root / "build" / place
                       / "configure-arguments").read_text()
            self.assertIn("--disable-system", options)

    def test_the_emulators_build_is_used(self) -> None:
        self.run_tool("build")
        self.run_tool("programs", PROGRAM, "series")
        self.assertIn("500 * 1", self.built("toy/obj"))
        self.assertIn("softmmu", (self.root / "build/toy/obj"
                                  "/configure-arguments").read_text())
        self.assertFalse((self.root / "build/toy/obj-lab").exists())

    def test_only_what_is_asked_for(self) -> None:
        self.run_tool("programs", PROGRAM, "stock")
        self.assertFalse((self.root / "build/toy/obj-lab").exists())
        self.assertFalse((self.root / "build/toypeer/lab").exists())

    def test_a_second_benchmark(self) -> None:
        """Both are in the stock tree; what follows is not."""
        self.git("reset", "--quiet", "--hard", "HEAD~1")
        self.add_benchmark("toy", "aio-poll-realtime")
        self.edit("line 10\n", "line ten\n")
        self.commit("util: write ten as a word")
        self.tool("export")
        self.run_tool("programs", "tests/bench/aio-poll-realtime", "stock")
        self.run_tool("programs", PROGRAM, "stock")
        self.assertIn("500 * 0", self.built("toy/lab/obj"))

    def test_the_tree_is_made_first(self) -> None:
        self.tool("clean", "toy")
        self.run_tool("programs", PROGRAM, "series",
                      QEMU_SRC=str(self.source))
        self.assertIn("500 * 1", self.built("toy/obj-lab"))

    def test_work_that_is_not_exported(self) -> None:
        """It is part of the series, and of nothing else."""
        self.edit("line 20\n", "line twenty, ten more\n")
        self.run_tool("programs", PROGRAM, "stock", "series")
        self.assertIn("500 * 2", self.built("toy/obj-lab"))
        self.assertIn("500 * 0", self.built("toy/lab/obj"))

    def test_own_source_is_not_the_peers(self) -> None:
        self.tool("clean", "toypeer")
        (self.source / "VERSION").unlink()
        text = self.run_tool("programs", PROGRAM, "peer", status=1,
                             QEMU_SRC=str(self.source))
        self.assertIn("make checkout BASE=toypeer QEMU_SRC=", text)

    def test_nothing_to_compare(self) -> None:
        text = self.run_tool("programs", PROGRAM, status=1, BASE="toypeer")
        self.assertIn("BASE=toypeer is a peer only", text)
        self.assertIn("no variant 'other'",
                      self.run_tool("programs", PROGRAM, "other", status=1))
        self.drop_peer()
        text = self.run_tool("programs", PROGRAM, "peer", status=1)
        self.assertIn("names no peer", text)

    def test_series_without_a_benchmark(self) -> None:
        self.git("rebase", "--quiet", "--onto", "base", "HEAD~1")
        self.tool("export")
        self.assertIn("is no benchmark",
                      self.run_tool("programs", PROGRAM, "stock", status=1))


class Lab(Toy):
    """tools/lab, which builds what it runs."""

    def lab(self, *words: str, status: int = 0) -> str:
        return self.run_tool("lab", *words, status=status)

    def test_build_run_check(self) -> None:
        results = self.root / "bench/results/lab-toy.json"
        self.assertIn("is missing", self.lab("--check", status=1))
        self.assertIn("wrote bench/results/lab-toy.json",
                      self.lab("--no-plots"))
        first = results.read_bytes()
        self.lab()
        self.assertEqual(results.read_bytes(), first)
        self.assertTrue(self.lab("--check").endswith(
            "134 passed, 0 failed\n"))
        # A change of the loop that nobody has meant
        self.edit("line ten\n", "line 10\n")
        text = self.lab("--check", "--no-peer", status=1)
        self.assertIn("series-w3, vm, self-notification on: nvme-qd1-80: CPU "
                      "ns per I/O 500.0 -> 1000.0 (+100.00 %)", text)
        self.assertNotIn("differs: stock", text)
        self.assertEqual(results.read_bytes(), first)

    def test_two_runs_that_differ(self) -> None:
        self.lab("--no-plots")
        arguments = []
        for tree, place in (("stock", "toy/lab"), ("peer", "toypeer/lab")):
            self.run_tool("programs", PROGRAM, tree)
            arguments += [f"--{tree}",
                          str(self.root / f"build/{place}/obj/{PROGRAM}")]
        peer = self.root / f"build/toypeer/lab/obj/{PROGRAM}"
        peer.write_text(peer.read_text().replace(
            '"kicks": 4', '"kicks": \'$$\''))
        text = self.lab("--check", *arguments, status=1)
        self.assertIn("differs: peer-w3, vm, self-notification on: another "
                      "run of the same program prints something else", text)
        self.assertTrue(text.endswith("55 passed, 1 failed\n"), text)

    def test_without_the_peer(self) -> None:
        text = self.lab("--no-plots", "--no-peer")
        self.assertIn("nothing written", text)
        self.assertFalse((self.root / "build/toypeer/lab").exists())

    def test_base_without_a_peer(self) -> None:
        """There, stock and series are all, and the bars that remain are
        complete."""
        self.drop_peer()
        self.assertIn("wrote bench/results/lab-toy.json", self.lab())
        with (self.root / "bench/labbars.py").open("a") as file:
            file.write('\nKNOWN_MISSES["toy"] = {"no such bar": 1.0}\n')
        text = self.lab("--bars", status=1)
        self.assertIn("no such bar: KNOWN_MISSES in bench/labbars.py names it, "
                      "but there is no such bar", text)
        self.assertNotIn("11.1", text)


class CheckSeries(Toy):

    def failed(self, base: str) -> str:
        return self.tool("check-series", base, status=1)

    def test_good(self) -> None:
        for base, count in (("toy", 10), ("toypeer", 8)):
            self.assertTrue(self.tool("check-series", base).endswith(
                f"{count} passed, 0 failed\n"))

    def test_another_benchmark_there(self) -> None:
        self.use("toypeer")
        self.edit("author: toy", "author: peer", f"{PROGRAM}.in")
        self.git("commit", "--quiet", "--all", "--amend", "--no-edit")
        self.tool("export", BASE="toypeer")
        self.assertIn(f"{PROGRAM}.in is not the same in patches/toypeer",
                      self.failed("toy"))
        self.assertIn(f"{PROGRAM}.in is not the same in patches/toy",
                      self.failed("toypeer"))

    def test_one_more_here(self) -> None:
        self.add_benchmark("toypeer", "aio-poll-realtime")
        self.assertIn("aio-poll-realtime.in is not the same in patches/toy\n",
                      self.failed("toypeer"))

    def test_changed_after_the_loop(self) -> None:
        self.edit("author: toy", "author: series", f"{PROGRAM}.in")
        self.commit("tests/bench: change it")
        self.tool("export")
        self.assertIn(f"0003-tests-bench-change-it.patch changes {PROGRAM}.in "
                      "after the benchmarks", self.failed("toy"))

    def test_peer_that_is_changed(self) -> None:
        self.use("toypeer")
        self.edit("line 10\n", "line ten\n")
        self.commit("util: write ten as a word")
        self.tool("export", BASE="toypeer")
        self.assertIn("0002-util-write-ten-as-a-word.patch changes more than "
                      "benchmarks", self.failed("toypeer"))


class CheckBuild(Toy):

    def test_each_patch_of_the_peer(self) -> None:
        self.add_benchmark("toypeer", "aio-poll-realtime")
        text = self.run_tool("check-build", "toypeer")
        self.assertTrue(text.endswith("3 passed, 0 failed\n"), text)

    def test_program_that_does_not_start(self) -> None:
        self.use("toypeer")
        self.edit("exit 0", "exit 3", f"{PROGRAM}.in")
        self.git("commit", "--quiet", "--all", "--amend", "--no-edit")
        self.run_tool("export")
        text = self.run_tool("check-build", "toypeer", status=1)
        self.assertTrue(text.endswith("0 passed, 1 failed\n"), text)


class Runner(Toy):

    STEPS = ("check-tools", "check-series", "checkout", "build", "check-unit",
             "check-iotests", "check-build", "check-sanitizers", "lab")

    def setUp(self) -> None:
        super().setUp()
        for name in self.STEPS:
            path = self.root / "tools" / name
            path.write_text(f"#!/bin/sh\necho '{name}' \"$BASE: $*\"\n"
                            "echo 2 passed, 0 failed, 1 known misses\n")

    def test_the_peer_is_tested_with_its_base(self) -> None:
        text = self.run_tool("test", "--only", "peer-series", "--only",
                             "peer-steps", "--only", "lab", "toy",
                             QEMU_SRC="mine")
        for line in ("check-series toypeer: toypeer",
                     "check-build toypeer: toypeer",
                     "lab toy: --check --bars"):
            self.assertIn(f"\n{line}\n", text)
        self.assertIn("| lab | 0.0 | 2 | 0 | 0 | 1 |", text)
        self.assertTrue(text.endswith(
            "3 known misses, listed in bench/labbars.py\n"
            "6 passed, 0 failed\n"), text)

    def test_make_check(self) -> None:
        text = self.run_tool("test", "--check")
        self.assertEqual(text.count("=== "), 4)
        self.assertNotIn("=== lab", text)

    def test_another_base_that_is_covered(self) -> None:
        """Without guests, and QEMU_SRC is not its source."""
        base = self.root / "bases/toy"
        shutil.copy(base, self.root / "bases/toyold")
        base.write_text(base.read_text() + "covers = toyold\n")
        for name in self.STEPS:
            (self.root / "tools" / name).write_text(
                f"#!/bin/sh\necho '{name}' \"$BASE${{QEMU_SRC+ mine}}: $*\"\n"
                "echo 2 passed, 0 failed\n")
        text = self.run_tool("test", "--arch", host(), "toy", status=1,
                             QEMU_SRC="mine")
        self.assertEqual([line.split()[1] for line in text.splitlines()
                          if line.startswith("===")],
                         ["tools:", "series:", "peer-series:",
                          "toyold-series:", "checkout:", "build:", "unit:",
                          "iotests:", "steps:", "peer-steps:", "lab:",
                          "toyold-unit:", "toyold-lab:", "sanitizers:",
                          "guest:", "fio:"])
        for line in ("check-series toy mine: toy", "check-unit toy mine: toy",
                     "check-series toypeer: toypeer",
                     "check-series toyold: toyold",
                     "check-unit toyold: toyold",
                     "lab toyold: --check --bars"):
            self.assertIn(f"\n{line}\n", text)
        self.assertNotIn("check-build toyold", text)
        text = self.run_tool("test", "--check", "toy")
        self.assertEqual([line.split()[1] for line in text.splitlines()
                          if line.startswith("===")],
                         ["series:", "peer-series:", "toyold-series:",
                          "steps:", "peer-steps:"])
        text = self.run_tool("test", "--check", "--full", "toy")
        self.assertIn("=== toyold-unit", text)
        self.assertNotIn("=== toyold-lab", text)

    def test_peer_alone(self) -> None:
        text = self.run_tool("test", "toypeer")
        self.assertEqual([line.split()[1] for line in text.splitlines()
                          if line.startswith("===")],
                         ["tools:", "series:", "steps:"])


class Compare(Toy):
    """make compare: how the series of two bases differ."""

    def test_patches_that_differ(self) -> None:
        text = self.run_tool("compare", "--with", "toypeer", "toy")
        self.assertIn("1:  ", text)
        self.assertIn(" ! 1:  ", text)
        self.assertIn("    -+somebody of toypeer\n", text)
        self.assertIn("    ++somebody of toy\n", text)
        self.assertIn("-:  ------- > 2:  ", text)
        self.assertIn("util: write ten as a word", text)

    def test_only_which(self) -> None:
        text = self.run_tool("compare", "--list", "--with", "toypeer", "toy")
        self.assertIn(" ! 1:  ", text)
        self.assertNotIn("somebody", text)

    def test_with_itself(self) -> None:
        self.assertIn("compared with itself", self.run_tool(
            "compare", "--with", "toy", "toy", status=1))


class Committed(unittest.TestCase):
    """The figures that lie in this repository."""

    # Runs of each: six combinations of profile and self-notification
    FIGURES = {"lab": 62, "lab-v10.0": 48}

    def test_the_tables_belong_to_them(self) -> None:
        results = ROOT / "bench/results"
        for name in self.FIGURES:
            done = subprocess.run(
                ["python3", "-B", "-c", "import sys; from pathlib import "
                 "Path; from labfigures import load; from labreport import "
                 "report; sys.stdout.write(report(load(Path(sys.argv[1]))))",
                 str(results / f"{name}.json")], cwd=ROOT / "bench",
                check=True, stdout=subprocess.PIPE, text=True)
            self.assertEqual((results / f"{name}.md").read_text(), done.stdout)

    def test_they_are_complete(self) -> None:
        for name, runs in self.FIGURES.items():
            path = ROOT / f"bench/results/{name}.json"
            self.assertEqual(len(json.loads(path.read_text())["runs"]), runs)


if __name__ == "__main__":
    unittest.main()
