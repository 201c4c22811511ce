# SPDX-License-Identifier: GPL-2.0-or-later
"""The runner behind 'make test', the entry points, and tools/deps."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from toyroot import ROOT, ToyRoot

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from polltools.arch import ARCHES, host  # noqa: E402

# The steps that boot guests: those of this machine's kind have no suffix.
GUESTS = {name: "guest" if name == host() else f"guest-{name}"
          for name in ARCHES}


class Runner(ToyRoot):
    """tools/test, with stand-ins for the steps that it runs."""

    STEPS = ("check-tools", "check-series", "checkout", "build", "check-unit",
             "check-iotests", "check-build", "check-sanitizers", "lab")

    def setUp(self) -> None:
        super().setUp()
        (self.root / "tests/e2e").mkdir(parents=True)
        for name in self.STEPS:
            self.step(f"tools/{name}", "echo 2 passed, 0 failed")
        self.step("tests/e2e/run", "echo 5 passed, 0 failed, 1 skipped")
        (self.root / "tests/fio").mkdir()
        self.step("tests/fio/run", "echo 4 passed, 0 failed")

    def step(self, name: str, script: str) -> None:
        path = self.root / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def last_line(self, text: str) -> str:
        return text.splitlines()[-1]

    def test_all_good(self) -> None:
        text = self.tool("test")
        # Steps that prepare others count nothing; guests of two kinds do.
        self.assertEqual(self.last_line(text),
                         "28 passed, 0 failed, 2 skipped")
        table = (self.root / "build/toy/test-times.md").read_text()
        self.assertIn(table, text)
        self.assertIn(f"| {GUESTS['x86_64']} | 0.0 | 5 | 0 | 1 | 0 |", table)
        self.assertIn(f"| {GUESTS['s390x']} | 0.0 | 5 | 0 | 1 | 0 |", table)
        self.assertIn("| build | 0.0 | - | - | - | - |", table)

    def test_guests_get_the_emulator_that_was_built_for_them(self) -> None:
        for name in ("tools/build", "tests/e2e/run"):
            self.step(name, f"echo {name} $@; echo 1 passed, 0 failed")
        text = self.tool("test")
        for arch in GUESTS:
            self.assertIn(f"tests/e2e/run --arch {arch} --qemu {self.root}/"
                          f"build/toy/obj/qemu-system-{arch}\n", text)
        other = "s390x" if host() == "x86_64" else "x86_64"
        self.assertIn(f"tools/build --arch {other} toy\n", text)
        self.assertLess(text.index("tools/build toy"),
                        text.index(f"tools/build --arch {other} toy"))

    def test_guests_of_one_kind(self) -> None:
        text = self.tool("test", "--arch", "s390x")
        self.assertIn(f"=== {GUESTS['s390x']}:", text)
        self.assertNotIn(f"=== {GUESTS['x86_64']}:", text)
        self.assertEqual(self.last_line(text),
                         "19 passed, 0 failed, 1 skipped")
        self.assertIn("'vax'", self.tool("test", "--arch", "vax", status=2))

    def test_failure_does_not_stop_the_others(self) -> None:
        self.step("tools/check-unit", "echo 1 passed, 3 failed; exit 1")
        text = self.tool("test", status=1)
        self.assertIn("=== guest", text)
        self.assertEqual(self.last_line(text),
                         "27 passed, 3 failed, 2 skipped")

    def test_step_without_a_count_has_failed(self) -> None:
        self.step("tools/check-unit", "exit 0")
        self.assertEqual(self.last_line(self.tool("test", status=1)),
                         "26 passed, 1 failed, 2 skipped")

    def test_exit_status_without_a_failure_counts(self) -> None:
        self.step("tools/build", "exit 1")
        self.step("tools/check-unit", "echo 2 passed, 0 failed; exit 1")
        self.assertEqual(self.last_line(self.tool("test", status=1)),
                         "28 passed, 3 failed, 2 skipped")

    def test_missing_step_has_failed(self) -> None:
        (self.root / "tests/e2e/run").unlink()
        text = self.tool("test", status=1)
        self.assertEqual(self.last_line(text), "18 passed, 2 failed")

    def test_check(self) -> None:
        text = self.tool("test", "--check")
        self.assertEqual(self.last_line(text), "4 passed, 0 failed")
        self.assertNotIn("=== guest", text)

    def test_unknown_step(self) -> None:
        self.assertIn("no step 'nope'",
                      self.tool("test", "--only", "nope", status=2))


class EntryPoints(unittest.TestCase):

    def test_help_names_every_target(self) -> None:
        text = subprocess.run(["make", "-s", "-C", ROOT, "help"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        makefile = (ROOT / "Makefile").read_text()
        phony = next(line for line in makefile.splitlines()
                     if line.startswith(".PHONY:"))
        for target in phony.split()[1:]:
            self.assertRegex(text, rf"(?m)^make {target}  ")

    def test_every_tool_explains_itself(self) -> None:
        for path in sorted((ROOT / "tools").iterdir()):
            if path.is_dir() or not os.access(path, os.X_OK):
                continue
            if path.name in ("demo", "guest-init"):
                # These need QEMU's Python packages, or run in the guest.
                continue
            done = subprocess.run([path, "--help"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("usage: ", done.stdout)


class Deps(unittest.TestCase):
    """A machine that is not Debian, by its PATH."""

    def setUp(self) -> None:
        self.bin = Path(tempfile.mkdtemp(prefix="deps-"))
        self.addCleanup(shutil.rmtree, self.bin)
        for name in ("sh", "dirname", "cat", "tr", "sed", "grep"):
            (self.bin / name).symlink_to(shutil.which(name))

    def deps(self, *words: str,
             **env: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(self.bin / "sh"), str(ROOT / "tools/deps"), *words],
            env={"PATH": str(self.bin), **env}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            check=False)

    def test_lists_what_is_missing(self) -> None:
        done = self.deps("build", "guest")
        self.assertEqual(done.returncode, 1)
        for name in ("git", "ninja", "GLib with headers", "mmdebstrap"):
            self.assertIn(f"  {name}\n", done.stderr)
        self.assertIn("install them", done.stderr)

    def test_check_only_lists(self) -> None:
        done = self.deps("--check")
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("install them", done.stderr)
        self.assertNotIn("mmdebstrap", done.stderr)

    def test_plots(self) -> None:
        """Asked of Python, which has it here perhaps: then it is broken."""
        (self.bin / "matplotlib.py").write_text("raise ImportError\n")
        done = self.deps("plots", PYTHONPATH=str(self.bin))
        self.assertIn("  matplotlib 3.5 or newer\n", done.stderr)
        done = self.deps("build", "guest", PYTHONPATH=str(self.bin))
        self.assertNotIn("matplotlib", done.stderr)

    def test_deb(self) -> None:
        done = self.deps("deb")
        for name in ("quilt", "dpkg-source"):
            self.assertIn(f"  {name}\n", done.stderr)
        self.assertNotIn("quilt", self.deps("build", "guest").stderr)

    def test_fio(self) -> None:
        """tomli only where Python has no tomllib of its own."""
        self.assertIn("  fio, of the version", self.deps("fio").stderr)
        for name in ("tomllib", "tomli"):
            (self.bin / f"{name}.py").write_text("raise ImportError\n")
        done = self.deps("fio", PYTHONPATH=str(self.bin))
        self.assertIn("  tomli (for Python before 3.11)\n", done.stderr)
        (self.bin / "tomli.py").write_text("")
        done = self.deps("fio", PYTHONPATH=str(self.bin))
        self.assertNotIn("tomli", done.stderr)

    def test_unknown_word(self) -> None:
        done = self.deps("everything")
        self.assertEqual(done.returncode, 2)
        self.assertIn("usage: tools/deps", done.stderr)


if __name__ == "__main__":
    unittest.main()
