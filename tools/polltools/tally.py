# SPDX-License-Identifier: GPL-2.0-or-later
"""Run tests, count them, and never call a test passed that did not run."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, NamedTuple, Optional, Sequence

from .common import say

# Enough of the output of a failed test to see why it failed.
TAIL_LINES = 40


@dataclass
class Tally:
    """How many tests passed, failed and said that they cannot run here, and
    how many goals are not reached, but listed, with a figure that holds."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    known: int = 0

    def add(self, other: "Tally") -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.known += other.known

    def count(self, passed: bool) -> None:
        """Count one test."""
        if passed:
            self.passed += 1
        else:
            self.failed += 1

    def line(self) -> str:
        """The line that every check ends with."""
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        known = f", {self.known} known misses" if self.known else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}{known}"

    def finish(self) -> int:
        """Print the line; the exit status of the check.  A check in which
        nothing ran has not passed."""
        say(self.line())
        return 0 if self.failed == 0 and self.passed > 0 else 1


def parse_line(text: str) -> Optional[Tally]:
    """Read a line that Tally.line() wrote."""
    match = re.fullmatch(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?"
                         r"(?:, (\d+) known misses)?", text.strip())
    if match is None:
        return None
    return Tally(*(int(number or 0) for number in match.groups()))


def read_tap(text: str) -> Tally:
    """Count the results of a TAP stream; planned tests that never reported
    (a crash, a hang) have failed."""
    tally = Tally()
    planned = None
    for line in text.splitlines():
        plan = re.match(r"1\.\.(\d+)(.*)", line)
        if plan:
            planned = int(plan[1])
            if planned == 0:
                tally.skipped += 1
        elif re.match(r"not ok\b", line):
            tally.failed += 1
        elif re.match(r"ok\b.*# *SKIP", line, re.IGNORECASE):
            tally.skipped += 1
        elif re.match(r"ok\b", line):
            tally.passed += 1
    done = tally.passed + tally.failed + tally.skipped
    if planned is None:
        tally.failed += 1
    elif done < planned:
        tally.failed += planned - done
    return tally


class Excuse(NamedTuple):
    """A failure that says nothing about the series."""

    text: str    # what the output has then
    reason: str


def run_tap(name: str, command: Sequence[object], *, cwd: Path,
            env: Mapping[str, str], timeout_s: int,
            excuse: Optional[Excuse] = None) -> Tally:
    """Run one test program; say how it ended, and all about it if badly.  A
    test that fails with an excuse counts as skipped."""
    try:
        done = subprocess.run([str(word) for word in command], cwd=cwd,
                              env=dict(env), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=timeout_s, check=False)
        text = done.stdout.decode(errors="replace")
        status = f"exit status {done.returncode}"
        good = done.returncode == 0
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode(errors="replace")
        status = f"stopped after {timeout_s} s"
        good = False
    tally = read_tap(text)
    if not good and tally.failed == 0:
        tally.failed = 1
    say(f"  {name}: {tally.line()}")
    for line in text.splitlines():
        if re.match(r"ok\b.*# *SKIP|1\.\.0", line, re.IGNORECASE):
            say(f"    {line}")
    if tally.failed:
        say(f"    {status}; its output ends with:")
        for line in text.splitlines()[-TAIL_LINES:]:
            say(f"    | {line}")
        if excuse and excuse.text in text:
            say(f"  {name}: skipped: {excuse.reason}")
            return Tally(skipped=1)
    return tally
