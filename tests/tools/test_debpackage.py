# SPDX-License-Identifier: GPL-2.0-or-later
"""The series in Debian's source package: a toy package and the real dpkg."""

import atexit
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Dict, List

from fakeapt import ORIG, PACKAGE, UPSTREAM, FakeApt

REVISION = "0+deb1u1"
DEBIAN = f"{PACKAGE}_{UPSTREAM}-{REVISION}"
OURS = f"{DEBIAN}+pollweight1"
CONTROL = f"""\
Source: {PACKAGE}
Maintainer: Somebody <somebody@example.org>
Standards-Version: 4.7.0
Build-Depends: debhelper-compat (= 13)

Package: qemu-system-x86
Architecture: any
Description: toy

Package: qemu-system-s390x
Architecture: any
Description: toy

Package: qemu-system-common
Architecture: any
Description: toy
"""
CHANGELOG = f"""\
{PACKAGE} (1:{UPSTREAM}-{REVISION}) toystable; urgency=medium

  * A change by Jürgen.

 -- Somebody <somebody@example.org>  Thu, 01 Feb 2001 10:00:00 +0100
"""
# Far from what the series changes.
DEBIAN_PATCH = """\
Description: what Debian changes
--- a/util/other.c
+++ b/util/other.c
@@ -1 +1 @@
-other
+Debian
"""
# Where the series changes something: it fits with fuzz only.
CONFLICT = """\
Description: what Debian changes
--- a/util/poll.c
+++ b/util/poll.c
@@ -6,7 +6,7 @@
 line 6
 line 7
 line 8
-line 9
+line 9 of Debian
 line 10
 line 11
 line 12
"""


# What is made once and copied from then on: the archive, and packages of it.
ORIGINAL: List[bytes] = []
PACKAGES: Dict[str, Path] = {}


@unittest.skipUnless(shutil.which("dpkg-source") and shutil.which("quilt"),
                     "dpkg-source and quilt are needed (tools/deps deb)")
class Package(FakeApt):

    def setUp(self) -> None:
        super().setUp()
        if not ORIGINAL:
            ORIGINAL.append(self.archive(ORIG).read_bytes())
        self.orig = self.tmp / ORIG
        self.orig.write_bytes(ORIGINAL[0])
        self.series()
        self.write_base(self.named_source(self.orig))
        self.versions(f"1:{UPSTREAM}-{REVISION}")
        self.debian_package(DEBIAN_PATCH)
        self.deb = self.root / "build/toy/deb"

    def debian_package(self, patch: str,
                       changelog: str = CHANGELOG) -> None:
        """Debian's own source package, in the archive of the fake apt."""
        shutil.rmtree(self.pool)
        key = patch + changelog
        if key not in PACKAGES:
            PACKAGES[key] = self.build_package(patch, changelog)
        shutil.copytree(PACKAGES[key], self.pool)

    def build_package(self, patch: str, changelog: str) -> Path:
        work = self.tmp / "debian-package"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(self.source, work / "tree")
        shutil.copy(self.orig, work)
        debian = work / "tree/debian"
        files = {"control": CONTROL, "rules": "",
                 "source/format": "3.0 (quilt)\n",
                 "changelog": changelog,
                 "patches/debian.patch": patch,
                 # The last line has no end, which is allowed.
                 "patches/series": "debian.patch"}
        for name, text in files.items():
            (debian / name).parent.mkdir(parents=True, exist_ok=True)
            (debian / name).write_text(text, encoding="utf-8")
        subprocess.run(["dpkg-source", "--build", "tree"], cwd=work,
                       check=True, stdout=subprocess.DEVNULL,
                       env=self.env())
        files_of = Path(tempfile.mkdtemp(prefix="toypackage-"))
        atexit.register(shutil.rmtree, files_of)
        for path in work.glob(f"{PACKAGE}_*"):
            shutil.copy(path, files_of)
        return files_of

    def made(self) -> List[str]:
        return sorted(path.name for path in self.deb.iterdir())

    def unpacked(self) -> Path:
        """What dpkg-source makes of the new package."""
        tree = self.tmp / "unpacked"
        shutil.rmtree(tree, ignore_errors=True)
        subprocess.run(["dpkg-source", "--extract",
                        self.deb / f"{OURS}.dsc", tree], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       env=self.env())
        return tree

    def left(self) -> List[str]:
        """What a run leaves in build/toy beside the package."""
        return sorted(path.name for path in
                      (self.root / "build/toy").iterdir()
                      if path.name not in ("src", "deb"))

    def test_source_package(self) -> None:
        text = self.run_tool("deb")
        self.assertEqual(self.made(), [f"{OURS}.debian.tar.xz", f"{OURS}.dsc",
                                       ORIG])
        self.assertIn(f"dpkg-source --build: {OURS}.dsc", text)
        self.assertEqual(self.left(), [])
        tree = self.unpacked()
        for name in ("util/poll.c", "util/new.c"):
            self.assertEqual((tree / name).read_bytes(),
                             (self.src / name).read_bytes())
        self.assertEqual((tree / "util/other.c").read_text(), "Debian\n")
        names = [path.name for path in sorted(self.patches.glob("*.patch"))]
        self.assertEqual(
            (tree / "debian/patches/series").read_text().split(),
            ["debian.patch", *(f"poll-weight/{name}" for name in names)])
        for name in names:
            self.assertEqual(
                (tree / "debian/patches/poll-weight" / name).read_bytes(),
                (self.patches / name).read_bytes())

    def test_changelog(self) -> None:
        self.debian_package(DEBIAN_PATCH, CHANGELOG.replace("Thu", "Sun")
                            .replace("2001", "2099"))
        self.run_tool("deb", DEBFULLNAME="A. Müller", DEBEMAIL="a@b.org")
        text = (self.unpacked() / "debian/changelog").read_text("utf-8")
        self.assertRegex(text, rf"^{PACKAGE} \(1:9\.9\.9\+ds-0\+deb1u1"
                         r"\+pollweight1\) toystable; urgency=medium\n\n"
                         r"  \* .*poll-weight, 2 patches")
        # Not before the entry that it follows.
        self.assertIn("\n -- A. Müller <a@b.org>  Sun, 01 Feb 2099 09:00:00 "
                      "+0000\n\n", text)
        self.assertIn("\n  * A change by Jürgen.\n", text)

    def test_name_of_the_repository(self) -> None:
        (self.home / ".gitconfig").write_text(
            "[user]\nname = Third Person\nemail = third@example.org\n")
        self.run_tool("deb")
        self.assertIn(" -- Third Person <third@example.org>  ",
                      (self.unpacked() / "debian/changelog").read_text())

    def test_no_name(self) -> None:
        """Then it is the author of the last patch, as in its header."""
        (self.home / ".gitconfig").unlink()
        patch = sorted(self.patches.glob("*.patch"))[-1]
        patch.write_bytes(patch.read_bytes().replace(
            b"From: Somebody Else ", b"From: =?UTF-8?q?J=C3=BCrgen?= "))
        self.run_tool("deb", GIT_CONFIG_SYSTEM="/dev/null")
        self.assertIn(" -- Jürgen <else@example.org>  ",
                      (self.unpacked() / "debian/changelog").read_text())

    def test_order_of_versions(self) -> None:
        """Newer than Debian's, older than its next update."""
        self.run_tool("deb")
        ours = next(self.deb.glob("*.dsc")).name[:-len(".dsc")]
        for older, newer in ((DEBIAN, ours), (ours, f"{DEBIAN[:-1]}2"),
                             (f"{DEBIAN}+b1", ours)):
            subprocess.run(["dpkg", "--compare-versions",
                            older.split("_")[1], "lt", newer.split("_")[1]],
                           check=True)

    def test_suffix(self) -> None:
        self.run_tool("deb", "--suffix", "+local.2")
        self.assertIn(f"{DEBIAN}+local.2.dsc", self.made())
        for bad in ("-1", "~local1", "local1", "+", "+local", "+1 2"):
            text = self.run_tool("deb", f"--suffix={bad}", status=1)
            self.assertIn("is no suffix for a version", text)

    def test_same_bytes_again(self) -> None:
        self.run_tool("deb")
        first = {path.name: path.read_bytes() for path in self.deb.iterdir()}
        shutil.rmtree(self.deb)
        self.run_tool("deb")
        self.assertEqual(first, {path.name: path.read_bytes()
                                 for path in self.deb.iterdir()})

    def test_old_package_is_replaced(self) -> None:
        self.deb.mkdir()
        (self.deb / "old.dsc").touch()
        (self.root / "build/toy/.deb.new/tree").mkdir(parents=True)
        self.run_tool("deb")
        self.assertNotIn("old.dsc", self.made())
        self.assertEqual(self.left(), [])

    def test_configuration_of_quilt_does_not_matter(self) -> None:
        (self.home / ".quiltrc").write_text(
            "QUILT_PUSH_ARGS=-f\nQUILT_PATCHES=nowhere\n")
        self.run_tool("deb", QUILT_PATCHES="elsewhere", QUILT_PC=".other")

    def test_fuzz_is_not_accepted(self) -> None:
        self.run_tool("deb")
        before = self.made()
        self.debian_package(CONFLICT)
        shutil.rmtree(self.cache)
        text = self.run_tool("deb", status=1)
        self.assertIn("quilt push -a --fuzz=0 failed:\nApplying patch "
                      "poll-weight/0001-", text)
        self.assertIn("FAILED at 7", text)
        # What was made before is still there, and nothing half-made.
        self.assertEqual(self.made(), before)
        self.assertEqual(self.left(), [])

    def test_offsets_are_told(self) -> None:
        self.debian_package(DEBIAN_PATCH.replace("other.c", "poll.c").replace(
            "@@ -1 +1 @@\n-other\n+Debian\n",
            "@@ -1,4 +1,5 @@\n+line 0\n line 1\n line 2\n line 3\n line 4\n"))
        self.assertIn("note: 2 hunks of the series were found at other lines",
                      self.run_tool("deb"))

    def test_dep3(self) -> None:
        patch = sorted(self.patches.glob("*.patch"))[1]
        patch.write_bytes(patch.read_bytes().replace(b"Forwarded: ", b"X: "))
        text = self.run_tool("deb", status=1)
        self.assertIn(f"{patch.name} has no field Forwarded", text)

    def test_package_that_has_the_series(self) -> None:
        self.run_tool("deb")
        shutil.rmtree(self.pool)
        shutil.copytree(self.deb, self.pool)
        self.versions(f"1:{UPSTREAM}-{REVISION}+pollweight1")
        self.assertIn("has the series already",
                      self.run_tool("deb", status=1))

    # --- where Debian's package comes from ----------------------------------

    def test_nothing_is_fetched_twice(self) -> None:
        self.run_tool("deb")
        self.assertEqual(self.calls().count(" source "), 1)
        self.assertIn(f"1:{UPSTREAM}-{REVISION}, in the cache",
                      self.run_tool("deb"))
        self.assertEqual(self.calls().count(" source "), 1)
        # The next checkout finds its source there, too.
        self.run_tool("clean")
        self.assertIn(f"found {ORIG}", self.run_tool("checkout"))

    def test_broken_cache(self) -> None:
        self.run_tool("deb")
        file = self.cache / f"{DEBIAN}.debian.tar.xz"
        file.write_bytes(file.read_bytes()[:-1])
        self.run_tool("deb")
        self.assertEqual(self.calls().count(" source "), 2)

    def test_offline(self) -> None:
        self.run_tool("deb")
        self.offline()
        self.assertIn(f"{DEBIAN}.dsc was fetched before",
                      self.run_tool("deb"))
        shutil.rmtree(self.cache)
        text = self.run_tool("deb", status=1)
        self.assertIn("Failed to fetch", text)
        self.assertIn("no source package of toyqemu 9.9.9+ds can be had here",
                      text)

    def test_debian_has_moved_on(self) -> None:
        self.versions("1:9.9.10+ds-1")
        self.assertIn("Debian toystable has 9.9.10+ds of toyqemu now",
                      self.run_tool("deb", status=1))

    def test_base_without_a_package(self) -> None:
        for name in ("toy", "toy.tree"):
            shutil.copy(self.root / "bases" / name,
                        self.root / "bases" / name.replace("toy", "debian"))
        self.write_base()
        for tool in ("deb", "check-deb"):
            text = self.run_tool(tool, status=1)
            self.assertIn("Debian has no source package for base toy", text)
            self.assertIn("Try: make deb BASE=debian", text)

    def test_base_without_a_series(self) -> None:
        shutil.rmtree(self.patches)
        self.assertIn("has no series yet", self.run_tool("deb", status=1))

    # --- the check ----------------------------------------------------------

    def test_check(self) -> None:
        text = self.run_tool("check-deb")
        # Unpacked, DEP-3, two patches, version, built.
        self.assertEqual(text.splitlines()[-1], "6 passed, 0 failed")
        self.assertFalse(self.deb.exists())
        self.assertEqual(self.left(), [])

    def test_check_fails(self) -> None:
        self.debian_package(CONFLICT)
        text = self.run_tool("check-deb", status=1)
        self.assertEqual(text.splitlines()[-1], "2 passed, 1 failed")

    def test_step_of_the_runner(self) -> None:
        text = self.run_tool("test", "--only", "deb")
        self.assertIn("=== deb: the series in Debian's source package, toy",
                      text)
        self.assertEqual(text.splitlines()[-1], "6 passed, 0 failed")

    # --- binary packages ----------------------------------------------------

    def mmdebstrap(self, more: str = "") -> None:
        """Stands for the chroot; only its last hook is really done."""
        self.program("mmdebstrap", f"""\
echo "$SYSTEMS" >{self.fake}/systems
for word; do echo "$word"; done >{self.fake}/words
out=$(sed -n 's/^--customize-hook=sync-out .build.out //p' {self.fake}/words)
touch "$out/qemu-system-x86_1_all.deb" "$out/toyqemu_1.changes"
{more}
""")

    def binary(self, *words: str, status: int = 0) -> str:
        return self.run_tool("deb", "--binary", *words, status=status)

    def test_binary(self) -> None:
        self.mmdebstrap()
        self.assertIn("  qemu-system-x86_1_all.deb\n", self.binary())
        self.assertIn("qemu-system-x86_1_all.deb", self.made())
        self.assertIn("toyqemu_1.changes", self.made())
        self.assertEqual((self.fake / "systems").read_text(), "\n")
        words = (self.fake / "words").read_text()
        for name in (f"{OURS}.dsc", f"{OURS}.debian.tar.xz", ORIG):
            self.assertIn(f"--customize-hook=upload {self.deb}/{name} "
                          f"/build/{name}\n", words)
        self.assertRegex(words, r"\ntoystable\n/dev/null\n\S+/apt/toystable/"
                         r"sources.list\n$")
        self.assertEqual(self.left(), [])

    def test_binary_of_some(self) -> None:
        self.mmdebstrap()
        self.binary("--systems", "s390x")
        self.assertEqual((self.fake / "systems").read_text(), "x86 s390x\n")
        for bad in ("vax", "common"):
            text = self.binary("--systems", bad, status=1)
            self.assertIn(f"there is no package qemu-system-{bad}; there "
                          "are: x86 s390x", text)

    def test_binary_fails(self) -> None:
        """The source package stays."""
        self.mmdebstrap("exit 1")
        self.assertIn("the build failed", self.binary(status=1))
        self.assertEqual(self.made(), [f"{OURS}.debian.tar.xz", f"{OURS}.dsc",
                                       ORIG])
        self.assertEqual(self.left(), [])

    def test_binary_without_a_package(self) -> None:
        self.mmdebstrap('rm "$out"/*.deb')
        self.assertIn("has made no package", self.binary(status=1))


if __name__ == "__main__":
    unittest.main()
