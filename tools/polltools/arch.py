# SPDX-License-Identifier: GPL-2.0-or-later
"""The architectures that there are guests for."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any, Dict, NamedTuple, Tuple

from .common import ToolError


class Arch(NamedTuple):
    """What differs between the architectures of the guest."""
    debian: str
    args: Tuple[str, ...]
    kvm_args: Tuple[str, ...]
    bus: str
    kernel_args: str
    # Properties of a virtio device as it was before virtio 1.0: the rings
    # then have the byte order of the guest.
    legacy: Dict[str, Any]


# The Makefile knows the names too, because it refuses others at once.
# no_timer_check: on a busy host an emulated CPU can get so far ahead of its
# timer that the kernel takes the timer for broken and panics.
ARCHES = {
    "x86_64": Arch("amd64", ("-machine", "pc"), ("-cpu", "host"), "pci",
                   "console=ttyS0 mitigations=off no_timer_check",
                   {"disable-modern": True, "disable-legacy": "off"}),
    "s390x": Arch("s390x", ("-machine", "s390-ccw-virtio"),
                  ("-cpu", "host"), "ccw", "console=ttysclp0",
                  {"max_revision": 0}),
}


def host() -> str:
    """The architecture of this machine, by QEMU's name."""
    machine = platform.machine()
    return {"amd64": "x86_64"}.get(machine, machine)


def arch_of(program: str) -> str:
    """Whose guests an emulator runs, by its name.

    One without the name of an architecture, like qemu-kvm, is for this
    machine's."""
    found = re.fullmatch(r"qemu-system-(\w+)", Path(program).name)
    arch = found[1] if found else host()
    if arch not in ARCHES:
        raise ToolError(f"{program}: there is no guest for {arch}; there are "
                        f"guests for {' and '.join(ARCHES)}, option --arch "
                        "names one of them")
    return arch
