# SPDX-License-Identifier: GPL-2.0-or-later
"""A stand-in for apt whose archive is a directory.

It knows nothing of signatures; that apt checks them is apt's own business."""

import hashlib
import os
from pathlib import Path

from toyroot import VERSION, ToyRoot

SUITE = "toystable"
PACKAGE = "toyqemu"
UPSTREAM = f"{VERSION}+ds"
ORIG = f"{PACKAGE}_{UPSTREAM}.orig.tar.xz"
TARGETS = ("main|Google|somewhere http://other.invalid/apt/\n"
           "contrib|Debian|old http://mirror.invalid/contrib/\n"
           "main|Debian|old http://mirror.invalid/debian/\n"
           "main|Debian|old-security http://mirror.invalid/security/\n")

# What is asked of it is written to a file; 'offline' stands for a network
# that does not work.
APT_GET = """\
fake={fake}
echo "$@" >>$fake/calls
case "$*" in
indextargets*)
    cat $fake/targets; exit ;;
*" update")
    [ ! -e $fake/offline ] || {{ echo 'E: Failed to fetch it' >&2; exit 100; }}
    exit ;;
*" source "*--tar-only*) cp $fake/pool/*.orig.* . ;;
*" source "*) cp -f $fake/pool/* . ;;
*) exit 1 ;;
esac
"""
APT_CACHE = "cat {fake}/versions\n"


class FakeApt(ToyRoot):
    """Base class: tools run with self.path find this apt first."""

    def setUp(self) -> None:
        super().setUp()
        self.fake = self.tmp / "fake"
        self.pool = self.fake / "pool"
        self.pool.mkdir(parents=True)
        (self.fake / "targets").write_text(TARGETS)
        self.bin = self.tmp / "bin"
        self.bin.mkdir()
        self.program("apt-get", APT_GET.format(fake=self.fake))
        self.program("apt-cache", APT_CACHE.format(fake=self.fake))
        self.path = f"{self.bin}:{os.environ['PATH']}"
        self.cache = self.root / "build/cache"

    def program(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)

    def versions(self, *versions: str) -> None:
        """What 'apt-cache showsrc' shows."""
        (self.fake / "versions").write_text("".join(
            f"Package: {PACKAGE}\nBinary: x\nVersion: {version}\n\n"
            for version in versions))

    def offline(self) -> None:
        (self.fake / "offline").touch()

    def calls(self) -> str:
        path = self.fake / "calls"
        return path.read_text() if path.exists() else ""

    def named_source(self, orig: Path, more: str = "") -> str:
        """Section [debian-source] for bases/toy."""
        digest = hashlib.sha256(orig.read_bytes()).hexdigest()
        return (f"[debian-source]\npackage = {PACKAGE}\nsuite = {SUITE}\n"
                f"orig = {ORIG}\nsha256 = {digest}\n{more}")

    def run_tool(self, *words: object, status: int = 0, **env: str) -> str:
        name, *rest = words
        return self.tool(str(name), *rest, status=status, PATH=self.path,
                         **env)
