# SPDX-License-Identifier: GPL-2.0-or-later
"""How test guests are started: what a tool asks its user, before any of
QEMU's Python packages is needed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple, Tuple

from .arch import ARCHES, Arch


class Setup(NamedTuple):
    """How guests are started; the same for all guests of a run."""
    arch: str
    image: Path
    work: Path
    firmware: Tuple[str, ...]
    accel: str = "tcg"

    @property
    def machine(self) -> Arch:
        return ARCHES[self.arch]


def add_arguments(parser: argparse.ArgumentParser, work: Path) -> None:
    """Add the options that say how guests are started."""
    parser.add_argument("--arch", choices=list(ARCHES),
                        help="architecture of the guest (default: the one in "
                        "the name of the QEMU)")
    parser.add_argument("--accel", choices=("auto", "kvm", "tcg"),
                        default="auto", help="auto: KVM when it really runs "
                        "the guest here, else TCG (default: auto)")
    parser.add_argument("--firmware", metavar="DIR", action="append",
                        default=[], help="as QEMU's option -L, for a QEMU "
                        "that was not told where its firmware is")
    parser.add_argument("--work", metavar="DIR", type=Path,
                        default=work, help="where disks and logs go "
                        f"(default: build/{work.name})")
