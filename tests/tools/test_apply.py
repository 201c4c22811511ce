# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/apply on a user's own tree: all of the series, or nothing."""

import subprocess
import unittest
from pathlib import Path
from typing import Dict

from toyroot import POLL_C, VERSION, ToyRoot


class Apply(ToyRoot):

    def setUp(self) -> None:
        super().setUp()
        self.names = self.series()
        self.poll = self.source / "util/poll.c"

    def files(self) -> Dict[Path, bytes]:
        return {path: path.read_bytes()
                for path in self.source.rglob("*") if path.is_file()}

    def refused(self, *words: str) -> None:
        before = self.files()
        text = self.tool("apply", self.source, status=1)
        for word in words:
            self.assertIn(word, text)
        self.assertEqual(self.files(), before)

    def test_applies(self) -> None:
        text = self.tool("apply", self.source)
        self.assertEqual(
            text, f"2 patches applied to QEMU {VERSION} without fuzz\n")
        self.assertIn("line ten\n", self.poll.read_text())
        self.assertTrue((self.source / "util/new.c").exists())

    def test_check_changes_nothing(self) -> None:
        before = self.files()
        self.assertIn("would apply", self.tool("apply", "--check", self.source))
        self.assertEqual(self.files(), before)

    def test_offsets_are_reported(self) -> None:
        self.poll.write_text("new at the top\n" + POLL_C)
        text = self.tool("apply", self.source)
        self.assertEqual(text.count("(offset 1 line)"), 2)
        self.assertIn("util/poll.c: Hunk #1", text)
        self.assertIn("2 hunks at other lines", text)

    def test_fuzz_is_refused(self) -> None:
        """GNU patch would apply this with fuzz."""
        self.poll.write_text(POLL_C.replace("line 7\n", "line seven\n"))
        fuzzy = subprocess.run(
            ["patch", "-p1", "--dry-run", "-i", self.patches / self.names[0]],
            cwd=self.source, stdout=subprocess.PIPE, text=True, check=True)
        self.assertIn("fuzz", fuzzy.stdout)
        self.refused(self.names[0], "util/poll.c:7", "nothing was changed")

    def test_second_patch_fails(self) -> None:
        """The first one is not left applied."""
        self.poll.write_text(POLL_C.replace("line 30\n", "line thirty\n"))
        self.refused(self.names[1], "util/poll.c")

    def test_new_file_is_in_the_way(self) -> None:
        (self.source / "util/new.c").write_text("theirs\n")
        self.refused(self.names[1], "util/new.c")

    def test_applied_already(self) -> None:
        self.tool("apply", self.source)
        self.refused("has the series already")

    def test_inside_of_another_git_tree(self) -> None:
        """git apply on its own would skip every file without a word."""
        subprocess.run(["git", "init", "-q", self.tmp], check=True)
        self.tool("apply", self.source)
        self.assertIn("line ten\n", self.poll.read_text())

    def test_not_qemu(self) -> None:
        text = self.tool("apply", self.tmp / "nowhere", status=1)
        self.assertIn("not the top of a QEMU source tree", text)


if __name__ == "__main__":
    unittest.main()
