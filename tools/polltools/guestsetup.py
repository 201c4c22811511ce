# SPDX-License-Identifier: GPL-2.0-or-later
"""How test guests are started: what a tool asks its user, before any of
QEMU's Python packages is needed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple, Tuple


class Machine(NamedTuple):
    """What differs between the architectures of the guest."""
    debian_arch: str
    args: Tuple[str, ...]
    kvm_args: Tuple[str, ...]
    bus: str
    kernel_args: str


# no_timer_check: on a busy host an emulated CPU can get so far ahead of its
# timer that the kernel takes the timer for broken and panics.
MACHINES = {
    "x86_64": Machine("amd64", ("-machine", "pc"), ("-cpu", "host"), "pci",
                      "console=ttyS0 mitigations=off no_timer_check"),
    "s390x": Machine("s390x", ("-machine", "s390-ccw-virtio"),
                     ("-cpu", "host"), "ccw", "console=ttysclp0"),
}


class Setup(NamedTuple):
    """How guests are started; the same for all guests of a run."""
    arch: str
    image: Path
    work: Path
    firmware: Tuple[str, ...]
    accel: str = "tcg"

    @property
    def machine(self) -> Machine:
        return MACHINES[self.arch]


def add_arguments(parser: argparse.ArgumentParser, work: Path) -> None:
    """Add the options that say how guests are started."""
    parser.add_argument("--arch", choices=sorted(MACHINES), default="x86_64",
                        help="architecture of the guest (default: x86_64)")
    parser.add_argument("--accel", choices=("auto", "kvm", "tcg"),
                        default="auto", help="auto: KVM when it really runs "
                        "the guest here, else TCG (default: auto)")
    parser.add_argument("--firmware", metavar="DIR", action="append",
                        default=[], help="as QEMU's option -L, for a QEMU "
                        "that was not told where its firmware is")
    parser.add_argument("--work", metavar="DIR", type=Path,
                        default=work, help="where disks and logs go "
                        f"(default: build/{work.name})")
