# SPDX-License-Identifier: GPL-2.0-or-later
"""Counting: what did not run has not passed."""

import contextlib
import io
import os
import sys
import unittest
from pathlib import Path
from typing import Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from polltools import tally  # noqa: E402
from polltools.tally import Excuse, Tally  # noqa: E402


class ReadTap(unittest.TestCase):

    def check(self, text: str, *expected: int) -> None:
        found = tally.read_tap(text)
        self.assertEqual((found.passed, found.failed, found.skipped), expected)

    def test_results(self) -> None:
        self.check("1..3\nok 1 /a\nnot ok 2 /b\nok 3 /c # SKIP no io_uring\n",
                   1, 1, 1)

    def test_plan_at_the_end(self) -> None:
        self.check("ok 1 /a\n1..1\n", 1, 0, 0)

    def test_crash_in_the_middle(self) -> None:
        self.check("1..3\nok 1 /a\n", 1, 2, 0)

    def test_no_output_at_all(self) -> None:
        self.check("", 0, 1, 0)

    def test_all_skipped(self) -> None:
        self.check("1..0 # SKIP not supported\n", 0, 0, 1)

    def test_bailing_out(self) -> None:
        self.check("1..2\nok 1 /a\nBail out! assertion failed\n", 1, 1, 0)

    def test_subtests_do_not_count(self) -> None:
        self.check("1..1\n    ok 1 inner\nok 1 outer\n", 1, 0, 0)

    def test_iotests_do_not_number(self) -> None:
        self.check("1..2\nok qcow2 051\nok qcow2 127 # SKIP no\n", 1, 0, 1)


class RunTap(unittest.TestCase):

    def run_script(self, script: str, timeout_s: int = 60,
                   excuse: Optional[Excuse] = None) -> Tally:
        self.printed = io.StringIO()
        with contextlib.redirect_stdout(self.printed):
            return tally.run_tap("name", ["/bin/sh", "-c", script],
                                 cwd=Path("/"), env=os.environ,
                                 timeout_s=timeout_s, excuse=excuse)

    def test_good(self) -> None:
        self.assertEqual(self.run_script("echo 1..1; echo ok 1"), Tally(1))

    def test_exit_status_counts(self) -> None:
        """A sanitizer complains with its exit status only."""
        found = self.run_script("echo 1..1; echo ok 1; echo why; exit 66")
        self.assertEqual(found, Tally(1, 1))
        self.assertIn("exit status 66", self.printed.getvalue())
        self.assertIn("| why", self.printed.getvalue())

    def test_signal(self) -> None:
        self.assertEqual(self.run_script("echo 1..2; echo ok 1; kill -9 $$"),
                         Tally(1, 1))

    def test_hang(self) -> None:
        found = self.run_script("echo 1..1; exec sleep 60", timeout_s=1)
        self.assertEqual(found, Tally(0, 1))
        self.assertIn("stopped after 1 s", self.printed.getvalue())

    def test_excuse(self) -> None:
        script = "echo 1..1; echo not ok 1; echo late"
        excuse = Excuse("late", "the moon")
        self.assertEqual(self.run_script(script, excuse=excuse), Tally(0, 0, 1))
        self.assertIn("| late", self.printed.getvalue())
        self.assertIn("skipped: the moon", self.printed.getvalue())

    def test_no_excuse(self) -> None:
        excuse = Excuse("early", "the moon")
        self.assertEqual(
            self.run_script("echo 1..1; echo not ok 1", excuse=excuse),
            Tally(0, 1))
        self.assertEqual(
            self.run_script("echo 1..1; echo ok 1; echo early", excuse=excuse),
            Tally(1))

    def test_reason_of_a_skip_is_shown(self) -> None:
        self.run_script("echo 1..1; echo 'ok 1 /x # SKIP no io_uring'")
        self.assertIn("no io_uring", self.printed.getvalue())


class Lines(unittest.TestCase):

    def test_round_trip(self) -> None:
        for each in (Tally(1, 2, 3), Tally(4, 0), Tally(),
                     Tally(1, 2, 3, 4), Tally(1, 0, 0, 1)):
            self.assertEqual(tally.parse_line(each.line() + "\n"), each)

    def test_other_lines(self) -> None:
        for text in ("", "3 passed", "x 1 passed, 0 failed",
                     "  test: 1 passed, 0 failed"):
            self.assertIsNone(tally.parse_line(text))

    def test_nothing_ran_is_no_success(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(Tally().finish(), 1)
            self.assertEqual(Tally(0, 0, 5).finish(), 1)
            self.assertEqual(Tally(1, 1).finish(), 1)
            self.assertEqual(Tally(1).finish(), 0)


if __name__ == "__main__":
    unittest.main()
