# SPDX-License-Identifier: GPL-2.0-or-later
"""The unit tests of the event loop: which there are, and how they are run."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, List, Optional

from .build import ninja
from .common import Base, ToolError
from .tally import Tally, run_tap

TIMEOUT_S = 300
# Tests that are not about the event loop itself but that lean on it.
NEIGHBOURS = ("test-thread-pool", "test-bdrv-drain", "test-block-iothread")


def unit_tests(src: Path) -> List[str]:
    """The event-loop tests that this tree builds, its own and the series'."""
    text = (src / "tests/unit/meson.build").read_text()
    names = re.findall(
        r"'(test-aio[\w-]*|test-fdmon-[\w-]+|test-nested-aio-poll)' *:", text)
    if not names:
        raise ToolError(f"{src}/tests/unit/meson.build names no test of the "
                        "event loop; tools/polltools/eventloop.py looks for "
                        "test-aio* and test-fdmon-*")
    return sorted(set(names))


def benchmarks(src: Path) -> List[str]:
    """The programs of the series in tests/bench/: built, not run."""
    path = src / "tests/bench/meson.build"
    text = path.read_text() if path.exists() else ""
    return sorted(set(re.findall(r"'(aio-poll-[\w-]+)'", text)))


def build_tests(base: Base, src: Path, obj: Path, names: List[str]) -> None:
    ninja(base, obj, [f"tests/unit/{name}" for name in names]
          + [f"tests/bench/{name}" for name in benchmarks(src)])


def run_tests(src: Path, obj: Path, names: List[str],
              env: Optional[Dict[str, str]] = None) -> Tally:
    """Run tests that are built."""
    total = Tally()
    for name in names:
        total.add(run_tap(
            name, [obj / "tests/unit" / name, "--tap", "-k"], cwd=obj,
            env={**os.environ, "G_TEST_SRCDIR": str(src / "tests/unit"),
                 "G_TEST_BUILDDIR": str(obj / "tests/unit"), **(env or {})},
            timeout_s=TIMEOUT_S))
    return total
