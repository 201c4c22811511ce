# SPDX-License-Identifier: GPL-2.0-or-later
"""The base that is used when no source of the wanted one can be had."""

import shutil
import subprocess
import unittest

from toyroot import ROOT, ToyRoot


class Fallback(ToyRoot):
    """tools/choose-base, and 'make demo' and 'make test' with it."""

    def setUp(self) -> None:
        super().setUp()
        self.series()
        for name in ("toy", "toy.tree"):
            path = self.root / "bases" / name
            text = path.read_text()
            (self.root / "bases" / name.replace("toy", "old")
             ).write_text(text)
        shutil.copytree(self.patches, self.root / "patches/old")
        (self.root / "build/toy").rename(self.root / "build/old")
        self.write_base()
        path = self.root / "bases/toy"
        path.write_text(path.read_text() + "fallback = old\n")
        shutil.copy(ROOT / "Makefile", self.root)

    def choose(self, *words: str, status: int = 0, **env: str) -> str:
        """Standard output alone."""
        done = subprocess.run(
            [str(self.root / "tools/choose-base"), *words],
            env=self.env(**env), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, check=False, cwd=self.root)
        self.assertEqual(done.returncode, status, done.stderr)
        self.said = done.stderr
        return done.stdout

    def test_has_a_source(self) -> None:
        name = self.choose("--or-fallback", QEMU_SRC=str(self.source))
        self.assertEqual(name, "toy\n")
        self.assertTrue((self.root / "build/toy/src/.git").exists())
        self.assertIn("as listed in", self.said)
        # Now there is a tree, and nothing more to be said.
        self.assertEqual(self.choose("--or-fallback"), "toy\n")
        self.assertEqual(self.said, "")

    def test_has_none(self) -> None:
        self.assertEqual(self.choose("--or-fallback"), "old\n")
        self.assertIn("no source of QEMU 9.9.9", self.said)
        self.assertIn("Using base old, QEMU 9.9.9, instead of toy; BASE=toy "
                      "insists", self.said)

    def test_not_asked_for(self) -> None:
        self.assertEqual(self.choose(status=1), "")
        self.assertIn("no source of QEMU 9.9.9", self.said)

    def test_no_series_yet(self) -> None:
        shutil.rmtree(self.root / "patches/old")
        self.assertEqual(self.choose("--or-fallback", status=1), "")
        self.assertIn("no source of QEMU 9.9.9", self.said)

    def test_wrong_source_of_the_user(self) -> None:
        self.choose("--or-fallback", status=1, QEMU_SRC="/nowhere")
        self.assertIn("/nowhere does not exist", self.said)

    def make(self, target: str, *words: str) -> str:
        """'make' with stand-ins for what it calls after the choice."""
        for name in ("deps", "build", "demo", "test"):
            path = self.root / "tools" / name
            path.write_text(f"#!/bin/sh\necho {name} $BASE: \"$@\"\n")
            path.chmod(0o755)
        makefile = self.root / "Makefile"
        text = makefile.read_text()
        self.assertIn("BASE ?= v11.0\n", text)
        makefile.write_text(text.replace("BASE ?= v11.0", "BASE ?= toy"))
        env = self.env()
        del env["BASE"]
        done = subprocess.run(["make", "-s", target, *words], cwd=self.root,
                              env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        return done.stdout

    def test_make_demo(self) -> None:
        text = self.make("demo")
        self.assertIn("build old: old\n", text)
        self.assertRegex(text, "demo old: --qemu build/old/obj/qemu-system-")

    def test_make_demo_with_a_base_of_the_users(self) -> None:
        text = self.make("demo", "BASE=toy")
        self.assertIn("no source of QEMU 9.9.9", text)
        self.assertNotIn("build ", text.split("What helps")[1])

    def test_make_test(self) -> None:
        self.assertIn("test old: old\n", self.make("test"))

    def test_make_test_counts_even_without_a_source(self) -> None:
        self.assertIn("test toy: toy\n", self.make("test", "BASE=toy"))


if __name__ == "__main__":
    unittest.main()
