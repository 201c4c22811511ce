# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's source package as a source of QEMU, with a stand-in for apt."""

import os
import shutil
import subprocess
import unittest
from pathlib import Path

from fakeapt import ORIG, FakeApt

GOOD = "1:9.9.9+ds-0+deb1u1"
NOWHERE = "http://127.0.0.1:9"


class AptSuite(FakeApt):
    """tools/polltools/apt-suite"""

    def suite(self, *words: str, status: int = 0) -> str:
        done = subprocess.run(
            [str(self.root / "tools/polltools/apt-suite"), *words],
            env=self.env(PATH=self.path), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout.strip()

    def sources(self, *words: str) -> str:
        conf = Path(self.suite(*words))
        self.assertIn(str(self.root / "build/apt/"), str(conf))
        return conf.with_name("sources.list").read_text()

    def test_address_of_debian(self) -> None:
        """Not of another archive with a component main, nor of security."""
        text = self.sources("new", "new-updates")
        self.assertRegex(text, r"(?m)^deb \[signed-by=/usr/share/keyrings/"
                         r"debian-\S+\] http://mirror.invalid/debian/ new "
                         r"main$")
        self.assertIn("/debian/ new-updates main\n", text)
        self.assertEqual(len(text.splitlines()), 2)

    def test_security_has_an_address_of_its_own(self) -> None:
        text = self.sources("new", "new-security")
        self.assertIn("/security/ new-security main\n", text)
        (self.fake / "targets").write_text(
            "main|Debian|old http://mirror.invalid/debian/\n")
        text = self.sources("new", "new-security")
        self.assertNotIn("security", text)

    def test_only_security_is_configured(self) -> None:
        (self.fake / "targets").write_text(
            "main|Debian|old-security http://mirror.invalid/security/\n")
        self.assertIn("not configured", self.suite("new", status=1))

    def test_before_the_first_update(self) -> None:
        """apt prints the name of a field that it does not know."""
        self.program("apt-get", "case $* in *--no-release-info*)\n"
                     "echo 'main|$(ORIGIN)|old http://mirror.invalid/debian/'"
                     ";; esac\n")
        self.assertIn("http://mirror.invalid/debian/ new main\n",
                      self.sources("new"))

    def test_source_packages(self) -> None:
        text = self.sources("--source", "new")
        self.assertTrue(text.startswith("deb-src ["), text)
        self.assertNotEqual(self.suite("--source", "new"), self.suite("new"))

    def test_configuration_is_private(self) -> None:
        """Read by the real apt."""
        if not shutil.which("apt-config"):
            self.skipTest("apt-config is not installed here")
        conf = self.suite("new")
        text = subprocess.run(["apt-config", "-c", conf, "dump"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        private = os.path.dirname(conf)
        self.assertIn(f'Dir::Etc::sourcelist "{private}/sources.list";', text)
        self.assertIn('Dir::Etc::sourceparts "/dev/null";', text)
        self.assertIn(f'Dir::State::lists "{private}/lists";', text)
        self.assertNotIn('APT::Update::Post-Invoke-Success:: ', text)

    def test_no_apt(self) -> None:
        self.program("apt-get", "exit 1\n")
        self.assertIn("not configured", self.suite("new", status=1))

    def test_nothing_named(self) -> None:
        self.assertIn("usage:", self.suite(status=2))
        self.assertIn("usage:", self.suite("--nope", "new", status=2))


class AptSource(FakeApt):
    """A base with a section [debian-source]."""

    def setUp(self) -> None:
        super().setUp()
        self.orig = self.archive(ORIG)
        shutil.copy(self.orig, self.pool)
        self.write_base(self.named_source(self.orig))
        self.versions(GOOD)

    def test_fetched_with_apt(self) -> None:
        text = self.run_tool("checkout")
        self.assertIn(f"verified {ORIG}", text)
        self.assertIn("as listed in bases/toy.tree", text)
        self.assertEqual([path.name for path in self.cache.iterdir()], [ORIG])
        self.assertRegex(self.calls(), r"(?m)^-c \S+/apt/toystable-source/"
                         r"apt.conf .* source --download-only .*"
                         rf"toyqemu={GOOD.replace('+', '.')}$")

    def test_a_failing_update_is_not_passed_over(self) -> None:
        """apt takes old lists otherwise, and calls that a success."""
        self.run_tool("checkout")
        self.assertRegex(self.calls(), "Error-Mode=any update")

    def test_nothing_is_fetched_twice(self) -> None:
        self.run_tool("checkout")
        self.run_tool("clean")
        before = self.calls()
        self.assertIn(f"found {ORIG}", self.run_tool("checkout"))
        self.assertEqual(self.calls(), before)

    def test_newest_revision(self) -> None:
        self.versions("1:9.9.9+ds-2", "1:9.9.9+ds-10", "1:9.9.10+ds-1")
        self.run_tool("checkout")
        self.assertIn("toyqemu=1:9.9.9+ds-10\n", self.calls())

    def test_other_version(self) -> None:
        self.versions("1:9.9.10+ds-1", "1:9.9.2+ds-1")
        text = self.run_tool("checkout", status=1)
        self.assertIn("Debian toystable has 9.9.10+ds of toyqemu now, and "
                      "9.9.9+ds is wanted", text)
        self.assertNotIn("--download-only", self.calls())

    def test_after_another_version_comes_the_next_source(self) -> None:
        self.write_base(self.named_source(
            self.orig, f"[release]\nurl = {NOWHERE}/toy.tar.xz\n"
            f"[git]\nurl = {NOWHERE}/toy.git\ntag = v9\nsubprojects =\n"
            f"[debian-pool]\npath = pool/{ORIG}\nsha256 = 0\n"))
        self.versions("1:9.9.10+ds-1")
        text = self.run_tool("checkout", status=1)
        places = [text.index(word) for word in
                  ("source: the cache", "source: the source package toyqemu",
                   "is wanted", "source: the release", "source: tag",
                   "source: the Debian archive", "no source of QEMU")]
        self.assertEqual(places, sorted(places))
        # Two sections name the same file.
        self.assertEqual(text.count(f"put {ORIG} or toy.tar.xz into"), 1)

    def test_wrong_checksum(self) -> None:
        (self.pool / ORIG).write_bytes(self.orig.read_bytes() + b"x")
        text = self.run_tool("checkout", status=1)
        self.assertIn("wrong checksum", text)
        self.assertEqual(list(self.cache.iterdir()), [])

    def test_offline(self) -> None:
        self.offline()
        text = self.run_tool("checkout", status=1)
        self.assertIn("not available: E: Failed to fetch it", text)

    def test_no_apt(self) -> None:
        self.program("apt-get", "exit 1\n")
        text = self.run_tool("checkout", status=1)
        self.assertIn("not available: apt is not configured here", text)

    def test_package_without_the_archive(self) -> None:
        (self.pool / ORIG).rename(self.pool / "other.orig.tar.xz")
        text = self.run_tool("checkout", status=1)
        self.assertIn(f"version {GOOD} has no {ORIG}", text)

    def test_orig_that_is_none(self) -> None:
        self.write_base(self.named_source(self.orig).replace(".orig.", "."))
        self.assertIn("is not the name of an original archive",
                      self.run_tool("checkout", status=1))


if __name__ == "__main__":
    unittest.main()
