# SPDX-License-Identifier: GPL-2.0-or-later
"""Architectures: the tables agree, a QEMU's name tells whose guests it runs,
and 'make ARCH=...' asks the tools for the right thing or for nothing."""

import re
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

from toyroot import ROOT, ToyRoot

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from polltools import arch, build, guestimage  # noqa: E402
from polltools.arch import ARCHES  # noqa: E402
from polltools.common import ToolError  # noqa: E402


def on(machine: str) -> "mock._patch[mock.Mock]":
    """On a machine that calls itself so."""
    return mock.patch("platform.machine", return_value=machine)


class Tables(unittest.TestCase):

    def test_every_guest_has_an_image(self) -> None:
        self.assertEqual({entry.debian for entry in ARCHES.values()},
                         set(guestimage.MODULES))

    def test_the_makefile_knows_the_same(self) -> None:
        found = re.search(r"(?m)^ARCHES := (.+)$",
                          (ROOT / "Makefile").read_text())
        assert found is not None
        self.assertEqual(found[1].split(), list(ARCHES))

    def test_buses_are_those_of_the_machines(self) -> None:
        self.assertEqual({name: entry.bus for name, entry in ARCHES.items()},
                         {"x86_64": "pci", "s390x": "ccw"})


class Names(unittest.TestCase):

    def test_this_machine(self) -> None:
        for machine, name in (("x86_64", "x86_64"), ("amd64", "x86_64"),
                              ("s390x", "s390x"), ("aarch64", "aarch64")):
            with on(machine):
                self.assertEqual(arch.host(), name)
                self.assertEqual(build.emulator(), f"qemu-system-{name}")

    def test_targets(self) -> None:
        for machine, names in (("x86_64", ["x86_64", "s390x"]),
                               ("s390x", ["s390x", "x86_64"]),
                               ("aarch64", ["aarch64", "x86_64", "s390x"])):
            with on(machine):
                self.assertEqual(build.targets(), names)
                self.assertIn("--target-list=" + ",".join(
                    f"{name}-softmmu" for name in names),
                    build.system_options())

    def test_an_emulator_tells_whose_guests_it_runs(self) -> None:
        with on("s390x"):
            self.assertEqual(arch.arch_of("/b/obj/qemu-system-x86_64"),
                             "x86_64")
            self.assertEqual(arch.arch_of("qemu-system-s390x"), "s390x")
            self.assertEqual(arch.arch_of("/usr/libexec/qemu-kvm"), "s390x")

    def test_no_guest_for_it(self) -> None:
        with on("aarch64"):
            for program, name in (("qemu-system-ppc64", "ppc64"),
                                  ("qemu-kvm", "aarch64")):
                with self.assertRaisesRegex(
                        ToolError, f"{program}.*{name};.*x86_64 and s390x"):
                    arch.arch_of(program)


class Make(ToyRoot):
    """The Makefile, with tools that only note how they were called."""

    TOOLS = ("deps", "build", "demo", "test")

    def setUp(self) -> None:
        super().setUp()
        (self.root / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
        for name in self.TOOLS:
            path = self.root / "tools" / name
            path.write_text('#!/bin/sh\necho "${0##*/}" "$@" >>called\n')
            path.chmod(0o755)
        choose = self.root / "tools/choose-base"
        choose.write_text('#!/bin/sh\necho "${0##*/}" "$@" >>called\n'
                          'echo chosen\n')
        choose.chmod(0o755)
        # uname -m is what the Makefile takes a machine's word for.
        (self.root / "bin").mkdir()
        self.machine("x86_64")

    def machine(self, name: str) -> None:
        path = self.root / "bin/uname"
        path.write_text(f"#!/bin/sh\necho {name}\n")
        path.chmod(0o755)

    def make(self, *words: str, status: int = 0, **more: str) -> str:
        """Run make; returns what was called, or the error."""
        env = self.env(**more)
        env["PATH"] = f"{self.root}/bin:{env['PATH']}"
        for name in ("ARCH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
            env.pop(name, None)
        env.update(more)
        called = self.root / "called"
        called.unlink(missing_ok=True)
        done = subprocess.run(["make", "-s", *words], cwd=self.root, env=env,
                              stdin=subprocess.DEVNULL, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, status, done.stdout)
        if status != 0:
            self.assertFalse(called.exists(), "something was done")
            return done.stdout
        return " ".join(called.read_text().split())

    def test_demo(self) -> None:
        obj = "build/chosen/obj"
        self.assertEqual(
            self.make("demo"),
            "deps build guest choose-base toy build chosen "
            f"demo --qemu {obj}/qemu-system-x86_64")
        self.assertEqual(
            self.make("demo", "ARCH=s390x", "STOCK=1"),
            "deps build guest choose-base toy build --arch s390x chosen "
            "build --stock --arch s390x chosen "
            f"demo --qemu {obj}/qemu-system-s390x "
            f"--stock {obj}-stock/qemu-system-s390x")

    def test_qemu_and_test(self) -> None:
        self.assertEqual(self.make("qemu"), "deps build build toy")
        self.assertEqual(self.make("qemu", "ARCH=s390x"),
                         "deps build build --arch s390x toy")
        self.assertTrue(self.make("test").endswith(
            " choose-base toy test chosen"))
        self.assertTrue(self.make("test", "ARCH=x86_64").endswith(
            " choose-base toy test --arch x86_64 chosen"))

    def test_unknown(self) -> None:
        for target in ("demo", "qemu", "test"):
            text = self.make(target, "ARCH=vax", status=2)
            self.assertIn("ARCH=vax is not known; it is one of: x86_64 s390x",
                          text)
            self.make(target, status=2, ARCH="vax")  # from the environment

    def test_one_at_a_time(self) -> None:
        self.assertIn("ARCH=x86_64 s390x is not",
                      self.make("demo", "ARCH=x86_64 s390x", status=2))

    def test_machine_without_a_guest(self) -> None:
        self.machine("aarch64")
        self.assertIn("ARCH=aarch64 is not", self.make("demo", status=2))
        self.assertEqual(self.make("qemu"), "deps build build toy")
        self.assertIn("qemu-system-s390x", self.make("demo", "ARCH=s390x"))


if __name__ == "__main__":
    unittest.main()
