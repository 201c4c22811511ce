# SPDX-License-Identifier: GPL-2.0-or-later
"""Idle CPUs are kept awake while something is measured, and no longer."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from polltools import machine  # noqa: E402


class Awake(unittest.TestCase):

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.file = Path(temp.name) / "latency"
        patch = mock.patch.object(machine, "CPU_LATENCY", self.file)
        patch.start()
        self.addCleanup(patch.stop)

    def test_request(self) -> None:
        """The kernel wants an int and keeps it until the file is closed."""
        self.file.touch()
        with mock.patch("builtins.open", wraps=open) as opened:
            with machine.awake(True) as idle:
                self.assertEqual(self.file.read_bytes(), bytes(4))
                self.assertEqual(idle, machine.AWAKE)
        self.assertEqual(opened.call_count, 1)

    def test_closed_afterwards(self) -> None:
        self.file.touch()
        held = mock.mock_open()
        with mock.patch("builtins.open", held):
            with self.assertRaises(KeyboardInterrupt):
                with machine.awake(True):
                    held().__exit__.assert_not_called()
                    raise KeyboardInterrupt
            held().__exit__.assert_called_once()

    def test_not_wanted(self) -> None:
        self.file.touch()
        with machine.awake(False) as idle:
            self.assertEqual(idle, machine.MAY_SLEEP)
        self.assertEqual(self.file.read_bytes(), b"")

    def test_not_possible(self) -> None:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            with machine.awake(True) as idle:
                self.assertEqual(idle, machine.MAY_SLEEP)
        self.assertIn("idle CPUs may sleep: ", printed.getvalue())


class Facts(unittest.TestCase):

    def test_idle_cpus_are_told(self) -> None:
        facts = machine.facts("doze")
        self.assertEqual(facts["idle CPUs"], "doze")
        self.assertIn(facts["virtual machine"], ("yes", "no"))
