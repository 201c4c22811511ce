# SPDX-License-Identifier: GPL-2.0-or-later
"""What the end-to-end tests share."""

from __future__ import annotations

import faulthandler
import unittest
from pathlib import Path
from typing import Any, ClassVar, Dict, Optional, Sequence, Tuple

from polltools import guestvm
from polltools.guestvm import Guest, Setup
from polltools.tally import Tally

# No test takes a tenth of this.  It ends a run in which even the limits of
# the single waits fail; the guest then finds its port closed and powers off.
WATCHDOG_S = 900

# What QEMU says about a value that a property refuses, by property.
INT64_MAX = 2**63 - 1
RANGES = {"poll-max-ns": (0, INT64_MAX), "poll-grow": (0, INT64_MAX),
          "poll-shrink": (0, INT64_MAX), "poll-weight": (1, 63)}
DEFAULT_FACTOR = 2


def refusal(name: str) -> str:
    low, high = RANGES[name]
    return f"{name} value must be in range [{low}, {high}]"


def in_force(name: str, value: int) -> int:
    """Return what reading a property shows after a value was set."""
    if name in ("poll-grow", "poll-shrink") and value == 0:
        return DEFAULT_FACTOR
    return value


def qom(name: str, value: Optional[int] = None,
        iothread: str = "iot0") -> Dict[str, Any]:
    """Return the arguments of qom-get or qom-set for an IOThread."""
    arguments: Dict[str, Any] = {"path": f"/objects/{iothread}",
                                 "property": name}
    return arguments if value is None else {**arguments, "value": value}


class GuestCase(unittest.TestCase):
    """A test that boots the guest."""

    guests: ClassVar[Setup]
    qemu: ClassVar[str]

    def setUp(self) -> None:
        faulthandler.dump_traceback_later(WATCHDOG_S, exit=True)
        self.addCleanup(faulthandler.cancel_dump_traceback_later)

    def label(self) -> str:
        return self.id().rpartition(".")[2]

    def new_disk(self, name: str = "disk0") -> Path:
        """Make an empty disk that goes away with the test."""
        path = self.guests.work / f"{self.label()}-{name}.raw"
        path.unlink(missing_ok=True)
        self.addCleanup(path.unlink, missing_ok=True)
        guestvm.make_disk(path)
        return path

    def choose(self, disk: Path, modes: Sequence[str]) -> Tuple[str, bool]:
        """Return the first aio mode that works and whether it is direct."""
        reasons = []
        for aio in modes:
            mode = guestvm.disk_mode(self.qemu, disk, aio)
            if mode.usable:
                return aio, mode.direct
            reasons.append(mode.reason)
        return self.skipTest("; ".join(reasons))

    def boot(self, *args: str) -> Guest:
        guest = Guest(self.guests, self.qemu, self.label(), *args)
        self.addCleanup(guest.__exit__, None, None, None)
        guest.wait_ready()
        return guest

    def boot_with_disk(self, disk: Path, *args: str,
                       modes: Sequence[str] = guestvm.AIO_MODES,
                       legacy: bool = False) -> Guest:
        """Boot with a disk that iot0, with poll-weight 3, serves."""
        aio, direct = self.choose(disk, modes)
        return self.boot("-object", "iothread,id=iot0,poll-weight=3",
                         *guestvm.disk_args(self.guests, disk, aio,
                                            direct=direct, legacy=legacy),
                         *args)

    def power_off(self, guest: Guest) -> None:
        """Let the guest power off; no request may have failed before."""
        events = [event["event"] for event in guest.vm.get_qmp_events()]
        self.assertNotIn("BLOCK_IO_ERROR", events)
        guest.power_off()


def report(result: unittest.TestResult) -> int:
    """Print the last line and return the exit code of the run."""
    troubles = [*result.failures, *result.errors]
    failed = len({getattr(test, "test_case", test).id()
                  for test, _ in troubles})
    skipped = len(result.skipped)
    return Tally(result.testsRun - failed - skipped, failed, skipped).finish()
