# SPDX-License-Identifier: GPL-2.0-or-later
"""The property poll-weight: on a running guest and on the command line."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Dict

from guestcase import GuestCase, qom, refusal
from polltools.guestvm import Guest

START_LIMIT_S = 60
QUIT = '{"execute": "qmp_capabilities"}\n{"execute": "quit"}\n'


class RunningGuest(GuestCase):
    """The property of an IOThread that serves a guest's disk."""

    def hmp_iothreads(self, guest: Guest) -> Dict[str, str]:
        """Return what 'info iothreads' says about each IOThread."""
        text: Any = guest.vm.cmd("human-monitor-command",
                                 command_line="info iothreads")
        threads: Dict[str, str] = {}
        name = ""
        for line in text.splitlines():
            if not line.startswith(" "):
                name = line.rstrip(":")
            threads[name] = threads.get(name, "") + line + "\n"
        return threads

    def check_weight(self, guest: Guest, expected: int) -> None:
        self.assertEqual(guest.vm.cmd("qom-get", qom("poll-weight")), expected)
        self.assertEqual(guest.iothread("iot0")["poll-weight"], expected)
        self.assertIn(f"  poll-weight={expected}\n",
                      self.hmp_iothreads(guest)["iot0"])

    def sleeps(self, guest: Guest) -> int:
        """How often iot0 has gone to sleep; only what wakes it changes it."""
        thread = guest.iothread("iot0")["thread-id"]
        status = Path(f"/proc/{guest.vm.get_pid()}/task/{thread}/status")
        found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)",
                          status.read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1])

    def read_disk(self, guest: Guest) -> None:
        """Read with fio; the requests must reach the IOThread."""
        before = self.sleeps(guest)
        report = guest.fio("--name=read",
                           f"--filename={guest.disk_path('disk0')}",
                           "--readonly", "--rw=randread", "--bs=8k",
                           "--size=4m", "--ioengine=libaio", "--direct=1",
                           "--iodepth=8")
        self.assertEqual(report["jobs"][0]["read"]["total_ios"], 512)
        self.assertGreater(self.sleeps(guest), before)

    def test_set_and_refuse(self) -> None:
        guest = self.boot_with_disk(self.new_disk(), "-object",
                                    "iothread,id=untouched")
        self.assertEqual(guest.iothread("untouched")["poll-weight"], 3)
        self.check_weight(guest, 3)
        self.read_disk(guest)
        for weight in (2, 63, 1):
            guest.vm.cmd("qom-set", qom("poll-weight", weight))
            self.check_weight(guest, weight)
            for refused in (0, -1, 64):
                answer = guest.vm.qmp("qom-set", qom("poll-weight", refused))
                self.assertEqual(answer["error"]["desc"],
                                 refusal("poll-weight"))
                self.check_weight(guest, weight)
            self.read_disk(guest)
        self.assertEqual(guest.iothread("untouched")["poll-weight"], 3)
        self.power_off(guest)


class CommandLine(GuestCase):
    """-object iothread,poll-weight=... when QEMU starts."""

    def try_start(self, weight: str) -> subprocess.CompletedProcess:
        """Start QEMU, tell it to quit at once, return how it ended."""
        return subprocess.run(
            [self.qemu, "-machine", "none", "-nodefaults", "-display", "none",
             "-qmp", "stdio", "-object",
             f"iothread,id=iot0,poll-weight={weight}"],
            input=QUIT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=START_LIMIT_S)

    def check_refused(self, weight: str, *texts: str) -> None:
        ended = self.try_start(weight)
        self.assertNotEqual(ended.returncode, 0,
                            f"QEMU started with poll-weight={weight}")
        for text in texts:
            self.assertIn(text, ended.stdout)

    def test_accepted(self) -> None:
        for weight in ("1", "3", "63"):
            ended = self.try_start(weight)
            self.assertEqual(ended.returncode, 0,
                             f"poll-weight={weight}: {ended.stdout}")

    def test_zero(self) -> None:
        self.check_refused("0", refusal("poll-weight"))

    def test_negative(self) -> None:
        self.check_refused("-1", refusal("poll-weight"))

    def test_too_large(self) -> None:
        self.check_refused("64", refusal("poll-weight"))

    def test_not_a_number(self) -> None:
        self.check_refused("x", "'poll-weight' expects")
