# SPDX-License-Identifier: GPL-2.0-or-later
"""The series as files and as commits: checkout, export, check-series."""

import re
import unittest

from toyroot import ToyRoot


class RoundTrip(ToyRoot):

    def test_export_after_import_gives_the_same_bytes(self) -> None:
        self.series()
        before = self.snapshot()
        tree = self.git("rev-parse", "HEAD^{tree}")
        self.tool("clean")
        self.assertFalse(self.src.exists())
        self.checkout()
        self.assertEqual(self.git("rev-parse", "HEAD^{tree}"), tree)
        self.assertIn("up to date", self.tool("export"))
        self.assertEqual(self.snapshot(), before)

    def test_commit_ids_are_the_same_every_time(self) -> None:
        self.series()
        self.tool("clean")
        self.checkout()
        first = self.git("rev-parse", "base", "series")
        self.tool("clean")
        self.checkout()
        self.assertEqual(self.git("rev-parse", "base", "series"), first)

    def test_bytes_do_not_depend_on_the_users_configuration(self) -> None:
        names = self.series()
        self.assertEqual(len(names), 2)
        for name in names:
            text = (self.patches / name).read_text()
            self.assertTrue(text.startswith("From " + "0" * 40 + " "), text)
            self.assertIn("\nSubject: [PATCH] ", text)
            self.assertIn("\nForwarded: not-needed\n", text)
            self.assertIn("\ndiff --git a/util/", text)
            self.assertTrue(re.search(r"^index [0-9a-f]{40}\.\.[0-9a-f]{40}",
                                      text, re.MULTILINE))
            for spoiled in ("SPOILED", "X-Spoiled", "spoiled", "Signed-off-by",
                            "Message-", "boundary", "files changed"):
                self.assertNotIn(spoiled, text.replace("MIME", ""))

    def test_own_files_beside_the_patches_stay(self) -> None:
        self.series()
        (self.patches / "COVER.md").write_text("by hand\n")
        self.edit("line 20\n", "line twenty\n")
        self.commit("util: a third one")
        self.tool("export")
        self.assertEqual((self.patches / "COVER.md").read_text(), "by hand\n")
        self.assertEqual(len(list(self.patches.glob("*.patch"))), 3)

    def test_a_dropped_commit_removes_its_file(self) -> None:
        names = self.series()
        self.git("reset", "--quiet", "--hard", "HEAD~1")
        self.assertIn("removed", self.tool("export"))
        self.assertFalse((self.patches / names[1]).exists())
        self.assertEqual((self.patches / "series").read_text().split(),
                         names[:1])

    def test_an_update_leaves_other_files_alone(self) -> None:
        """An incremental build depends on it."""
        self.series()
        saved = self.snapshot()
        self.git("reset", "--quiet", "--hard", "base")
        self.tool("export")
        for name, data in saved.items():
            (self.patches / name).write_bytes(data)
        other = self.src / "util/other.c"
        before = other.stat().st_mtime_ns
        self.tool("checkout")
        self.assertEqual(other.stat().st_mtime_ns, before)
        self.assertTrue((self.src / "util/new.c").exists())
        self.assertEqual(self.git("status", "--porcelain"), "")


class NothingGetsLost(ToyRoot):

    def test_dirty_tree(self) -> None:
        self.series()
        before = self.snapshot()
        self.edit("line 5\n", "line five\n")
        text = self.tool("export", status=1)
        self.assertIn("not committed", text)
        self.assertIn("util/poll.c", text)
        self.assertEqual(self.snapshot(), before)
        (self.patches / "series").write_text("")
        for path in self.patches.glob("*.patch"):
            path.unlink()
        self.assertIn("not committed", self.tool("checkout", status=1))
        self.assertIn("line five", (self.src / "util/poll.c").read_text())

    def test_new_file_counts_as_dirty(self) -> None:
        self.series()
        (self.src / "util/draft.c").write_text("draft\n")
        self.assertIn("util/draft.c", self.tool("export", status=1))

    def test_unexported_commit(self) -> None:
        self.series()
        self.edit("line 5\n", "line five\n")
        self.commit("util: not exported yet")
        tip = self.git("rev-parse", "HEAD")
        text = self.tool("checkout", status=1)
        self.assertIn("not exported", text)
        self.assertIn("make export", text)
        self.assertEqual(self.git("rev-parse", "HEAD"), tip)

    def test_unexported_amendment(self) -> None:
        self.series()
        self.git("commit", "--quiet", "--amend", "-m", "util: other words")
        self.assertIn("not exported", self.tool("checkout", status=1))

    def test_checkout_follows_patches_that_changed(self) -> None:
        """What is in the tree came from the files, so nothing is lost."""
        names = self.series()
        self.tool("clean")
        self.checkout()
        (self.patches / names[1]).unlink()
        (self.patches / "series").write_text(names[0] + "\n")
        self.tool("checkout")
        self.assertEqual(self.git("rev-list", "--count", "base..series"), "1")
        self.assertFalse((self.src / "util/new.c").exists())

    def test_clean_keeps_work(self) -> None:
        self.series()
        self.edit("line 5\n", "line five\n")
        self.commit("util: not exported yet")
        self.assertIn("kept", self.tool("clean"))
        self.assertTrue(self.src.exists())

    def test_unfinished_rebase(self) -> None:
        self.series()
        self.git("checkout", "--quiet", "--detach")
        self.assertIn("not on branch series", self.tool("export", status=1))

    def test_no_tree_yet(self) -> None:
        self.assertIn("make checkout", self.tool("export", status=1))


class CommitsThatCannotBePatches(ToyRoot):

    def refuse(self, word: str) -> None:
        before = self.snapshot()
        self.assertIn(word, self.tool("export", status=1))
        self.assertEqual(self.snapshot(), before)

    def test_fixup(self) -> None:
        self.series()
        self.edit("line 5\n", "line five\n")
        self.commit("fixup! util: write ten as a word")
        self.refuse("--autosquash")

    def test_merge(self) -> None:
        self.series()
        self.git("checkout", "--quiet", "-b", "side", "base")
        self.edit("other", "another", "util/other.c")
        self.commit("util: on the side")
        self.git("checkout", "--quiet", "series")
        self.git("merge", "--quiet", "--no-edit", "side")
        self.refuse("is a merge")

    def test_empty_commit(self) -> None:
        self.series()
        self.git("commit", "--quiet", "--allow-empty", "-m", "util: nothing")
        self.refuse("changes nothing")

    def test_message_that_git_am_would_cut(self) -> None:
        self.series()
        self.edit("line 5\n", "line five\n")
        self.commit("util: a line of dashes", "before\n---\nafter")
        self.refuse("'---'")

    def test_subject_that_git_am_would_cut(self) -> None:
        self.series()
        self.edit("line 5\n", "line five\n")
        self.commit("[util] brackets")
        self.refuse("brackets")

    def test_branch_that_does_not_start_at_base(self) -> None:
        self.series()
        self.git("checkout", "--quiet", "--orphan", "lost")
        self.commit("util: from nowhere")
        self.git("branch", "--quiet", "-M", "series")
        self.refuse("does not start at tag base")


class BrokenSeries(ToyRoot):
    """Errors name the file; the tree stays as it was or is not made."""

    def setUp(self) -> None:
        super().setUp()
        self.names = self.series()
        self.tool("clean")

    def refused(self, *words: str) -> None:
        text = self.tool("checkout", status=1, QEMU_SRC=str(self.source))
        for word in words:
            self.assertIn(word, text)
        self.assertFalse(self.src.exists())
        left = self.root / "build/toy"
        self.assertEqual(list(left.iterdir()) if left.exists() else [], [])
        text = self.tool("check-series", status=1, QEMU_SRC=str(self.source))
        self.assertIn("0 passed, 1 failed", text)

    def rewrite(self, name: str, old: str, new: str) -> None:
        path = self.patches / name
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new))

    def test_missing_file(self) -> None:
        (self.patches / self.names[0]).unlink()
        self.refused(self.names[0], "does not exist")

    def test_unlisted_file(self) -> None:
        (self.patches / "0003-stray.patch").write_text("stray\n")
        self.refused("0003-stray.patch", "not listed")

    def test_wrong_order(self) -> None:
        (self.patches / "series").write_text(
            "".join(f"{name}\n" for name in reversed(self.names)))
        self.refused("not in the order")

    def test_listed_twice(self) -> None:
        with (self.patches / "series").open("a") as file:
            file.write(self.names[0] + "\n")
        self.refused(self.names[0], "twice")

    def test_not_a_plain_name(self) -> None:
        with (self.patches / "series").open("a") as file:
            file.write("../0003-outside.patch\n")
        self.refused("not the plain name")

    def test_empty_patch(self) -> None:
        (self.patches / self.names[0]).write_text("")
        self.refused(self.names[0], "not a patch")

    def test_cut_patch(self) -> None:
        path = self.patches / self.names[0]
        path.write_text(path.read_text().rsplit("\n", 4)[0] + "\n")
        self.refused(self.names[0])

    def test_context_that_does_not_fit(self) -> None:
        self.rewrite(self.names[0], "\n line 9\n", "\n line nine\n")
        self.refused(self.names[0], "does not apply", "util/poll.c")

    def test_fuzz_is_not_accepted(self) -> None:
        """GNU patch would apply this with fuzz 1."""
        self.rewrite(self.names[0], "\n line 7\n", "\n line seven\n")
        self.refused(self.names[0], "does not apply", "util/poll.c")

    def test_another_base(self) -> None:
        """The context fits, the file is another one all the same."""
        path = self.source / "util/poll.c"
        path.write_text(path.read_text().replace("line 40\n", "line forty\n"))
        self.refused(self.names[0], "util/poll.c", "before")

    def test_changed_result(self) -> None:
        self.rewrite(self.names[0], "+line ten\n", "+line TEN\n")
        self.refused(self.names[0], "util/poll.c", "after")

    def test_short_blob_ids(self) -> None:
        path = self.patches / self.names[0]
        path.write_text(re.sub(r"(index [0-9a-f]{9})[0-9a-f]{31}"
                               r"(\.\.[0-9a-f]{9})[0-9a-f]{31}", r"\1\2",
                               path.read_text()))
        self.refused(self.names[0], "shortened")

    def test_a_tree_that_exists_stays_as_it_was(self) -> None:
        self.checkout()
        tip = self.git("rev-parse", "HEAD")
        self.rewrite(self.names[1], "\n line 29\n", "\n line nine\n")
        self.assertIn("does not apply", self.tool("checkout", status=1))
        self.assertEqual(self.git("rev-parse", "HEAD"), tip)
        self.assertEqual(self.git("status", "--porcelain"), "")

    def test_interrupted_export_is_repaired(self) -> None:
        """Killed between the two renames: the old files are still there."""
        (self.patches / "COVER.md").write_text("by hand\n")
        self.checkout()
        before = self.snapshot()
        for tool in ("export", "checkout"):
            self.patches.rename(self.patches.with_name(".toy.old"))
            self.assertIn("up to date (2 patches)", self.tool(tool))
            self.assertEqual(self.snapshot(), before)
            self.assertEqual(
                [path.name for path in self.patches.parent.iterdir()], ["toy"])


class CheckSeries(ToyRoot):

    def test_good_series(self) -> None:
        self.series()
        text = self.tool("check-series")
        self.assertIn("ok      git am", text)
        self.assertIn("ok      patch", text)
        self.assertTrue(text.endswith("10 passed, 0 failed\n"), text)

    def test_no_series_is_not_a_success(self) -> None:
        text = self.tool("check-series", status=1,
                         QEMU_SRC=str(self.source))
        self.assertIn("no series yet", text)
        self.assertIn("0 passed, 1 failed", text)

    def test_checkpatch(self) -> None:
        self.series()
        self.edit("line 20\n", "line BADSTYLE\n")
        self.commit("util: in bad style")
        self.tool("export")
        text = self.tool("check-series", status=1)
        self.assertIn("FAILED  checkpatch 0003-util-in-bad-style", text)
        self.assertTrue(text.endswith("11 passed, 1 failed\n"), text)

    def test_message_without_the_paragraphs(self) -> None:
        self.series()
        self.edit("line 20\n", "line twenty\n")
        self.commit("util: says nothing", "No more than this.")
        self.tool("export")
        text = self.tool("check-series", status=1)
        self.assertIn("FAILED  message 0003-util-says-nothing", text)
        self.assertIn("'Tested:'", text)

    def test_bytes_that_export_would_not_write(self) -> None:
        names = self.series()
        path = self.patches / names[0]
        path.write_text(path.read_text().replace(
            "Forwarded: not-needed\n", "Forwarded: no\n"))
        text = self.tool("check-series", status=1)
        self.assertIn("FAILED  round trip", text)
        self.assertIn(names[0], text)

    def test_two_authors(self) -> None:
        self.series()
        self.edit("line 20\n", "line twenty\n")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--author=A <a@example.org>", "-m",
                 "util: by another one", "-m",
                 "Why: x\n\nUpstream status: x\n\nTested: x")
        self.tool("export")
        self.assertIn("more than one author",
                      self.tool("check-series", status=1))


if __name__ == "__main__":
    unittest.main()
