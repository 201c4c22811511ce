# SPDX-License-Identifier: GPL-2.0-or-later
"""The machine that something is measured on."""

from __future__ import annotations

import contextlib
import os
import platform
import struct
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

from .common import say

CPU_LATENCY = Path("/dev/cpu_dma_latency")
AWAKE = "kept awake (cpu_dma_latency 0)"
MAY_SLEEP = "may sleep"


@contextlib.contextmanager
def awake(wanted: bool) -> Iterator[str]:
    """Keep idle CPUs from sleeping as long as this lasts; says what they do.

    How deep an idle CPU sleeps, and with it the time of a wake-up, depends on
    what it did before, in a virtual machine also on what its host did.  The
    kernel drops the request when the file is closed, however the tool ends
    (Documentation/power/pm_qos_interface.rst)."""
    if not wanted:
        yield MAY_SLEEP
        return
    try:
        file = open(CPU_LATENCY, "r+b", buffering=0)
    except OSError as error:
        say(f"idle CPUs may sleep: {error}")
        yield MAY_SLEEP
        return
    with file:
        file.write(struct.pack("=i", 0))  # microseconds
        yield AWAKE


def facts(idle: str) -> Dict[str, Any]:
    """What the figures depend on; nothing that names the machine."""
    found = {"CPU": platform.machine(), "CPUs": os.cpu_count(),
             "idle CPUs": idle,
             "kernel": f"{platform.system()} {platform.release()}",
             "virtual machine": "no"}
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return found
    for line in text.splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == "model name":
            found["CPU"] = value
        if name == "flags" and "hypervisor" in value.split():
            found["virtual machine"] = "yes"
    return found


def thread_cpu_ns(pid: Optional[int], tid: int) -> int:
    """Return the CPU time of a thread; ticks if the kernel has no more."""
    task = Path(f"/proc/{pid}/task/{tid}")
    try:
        run_ns = int((task / "schedstat").read_text().split()[0])
    except OSError:
        run_ns = 0
    if run_ns:
        return run_ns
    fields = (task / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
