# SPDX-License-Identifier: GPL-2.0-or-later
"""What the host sees while a guest is measured: CPU time by thread, of the
host as a whole, VM exits; and what the figures depend on."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Type

from .. import machine

CPU_DIR = Path("/sys/devices/system/cpu")
TRACING = Path("/sys/kernel/tracing")
TRACE_INSTANCE = "poll-weight-fio"


# --- CPU time ----------------------------------------------------------------

def all_threads_cpu_ns(pid: int) -> Dict[int, int]:
    """The CPU time that each thread of a process has used so far."""
    times = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            times[int(task.name)] = machine.thread_cpu_ns(
                pid, int(task.name))
        except (OSError, IndexError):
            continue  # It has just ended
    return times


def cpu_ticks(text: str) -> Dict[str, int]:
    """All and busy ticks of the host, from the text of /proc/stat."""
    # user nice system idle iowait irq softirq steal; guest is part of user
    fields = [int(word) for word in text.split("\n", 1)[0].split()[1:9]]
    return {"all": sum(fields), "busy": sum(fields) - fields[3] - fields[4]}


def mpstat_mean(text: str) -> Dict[str, float]:
    """The host's load by kind in per cent, the mean of the seconds that
    'mpstat -o JSON 1' has printed."""
    seconds = [entry["cpu-load"][0] for entry in
               json.loads(text)["sysstat"]["hosts"][0]["statistics"]]
    return {kind: round(sum(load[kind] for load in seconds) / len(seconds), 2)
            for kind in seconds[0] if kind != "cpu"}


# --- exits -------------------------------------------------------------------

class KvmExits:
    """Counts kvm_exit by thread in a tracefs instance of its own, where the
    kernel allows it; 'why' says so where it does not.

    A histogram in the kernel costs some ten nanoseconds an exit, much less
    than records that user space reads."""

    def __init__(self, accel: str, tracing: Path = TRACING) -> None:
        self.why = ""
        self._instance = tracing / "instances" / TRACE_INSTANCE
        self._event = self._instance / "events/kvm/kvm_exit"
        if accel != "kvm":
            self.why = f"no KVM: {accel}"
            return
        try:
            self._instance.mkdir(exist_ok=True)
            self._trigger("hist:keys=common_pid")
        except OSError as error:
            self.why = f"{error.strerror}: {error.filename}"

    def _trigger(self, text: str) -> None:
        (self._event / "trigger").write_text(f"{text}\n")

    def counts(self) -> Optional[Dict[int, int]]:
        """Exits so far by thread, None where they cannot be counted."""
        if self.why:
            return None
        return parse_hist((self._event / "hist").read_text())

    def close(self) -> None:
        if not self.why:
            self._trigger("!hist:keys=common_pid")
            self._instance.rmdir()


def parse_hist(text: str) -> Dict[int, int]:
    """Read a histogram of tracefs: { common_pid: 1234 } hitcount: 5"""
    return {int(match[1]): int(match[2]) for match in re.finditer(
        r"\{ common_pid:\s*(\d+) \} hitcount:\s*(\d+)", text)}


# --- one measurement ---------------------------------------------------------

class Observation:
    """A context manager around a measurement; 'result' afterwards."""

    def __init__(self, pid: int, roles: Mapping[int, str],
                 exits: KvmExits) -> None:
        self.pid = pid
        self.roles = roles  # of the threads that have a name
        self.exits = exits
        self.result: Dict[str, Any] = {}

    def __enter__(self) -> "Observation":
        # A sample each second until the measurement ends.
        self._mpstat = (subprocess.Popen(
            ["mpstat", "-o", "JSON", "1"], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            if shutil.which("mpstat") else None)
        self._exits = self.exits.counts()
        self._ticks = self._read_ticks()
        self._threads = all_threads_cpu_ns(self.pid)
        self._start = time.monotonic()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            if self._mpstat and self._mpstat.poll() is None:
                self._mpstat.kill()
                self._mpstat.wait()

    @staticmethod
    def _read_ticks() -> Dict[str, int]:
        return cpu_ticks(Path("/proc/stat").read_text())

    def _finish(self) -> None:
        elapsed_s = time.monotonic() - self._start
        after = all_threads_cpu_ns(self.pid)
        ticks = self._read_ticks()
        exits = self.exits.counts()
        spent = {tid: ns - self._threads.get(tid, 0)
                 for tid, ns in after.items()}
        self.result = {
            "elapsed_s": round(elapsed_s, 6),
            "cpu_ns": self._by_role(spent),
            "host_busy_percent": round(
                100 * (ticks["busy"] - self._ticks["busy"]) /
                max(1, ticks["all"] - self._ticks["all"]), 2),
            "mpstat_percent": self._ask_mpstat(),
            "kvm_exits": self._by_role(
                {tid: count - (self._exits or {}).get(tid, 0)
                 for tid, count in exits.items() if tid in after})
            if exits is not None else None,
            "kvm_exits_why_not": self.exits.why,
        }

    def _by_role(self, values: Mapping[int, int]) -> Dict[str, int]:
        """By name; threads without one (main loop, workers) are 'other'."""
        found: Dict[str, int] = {name: 0 for name in
                                 dict.fromkeys(self.roles.values())}
        for tid, value in values.items():
            role = self.roles.get(tid, "other")
            found[role] = found.get(role, 0) + value
        return found

    def _ask_mpstat(self) -> Optional[Dict[str, float]]:
        """Interrupted, it completes what it prints."""
        if self._mpstat is None:
            return None
        self._mpstat.send_signal(signal.SIGINT)
        try:
            text, _ = self._mpstat.communicate(timeout=10)
            return mpstat_mean(text.decode())
        except (subprocess.TimeoutExpired, ValueError, KeyError, IndexError):
            return None  # Nothing depends on it


# --- pinning -----------------------------------------------------------------

def cpus_by_core(cpus: Sequence[int], cpu_dir: Path = CPU_DIR) -> List[int]:
    """CPUs in the order in which they are given away: one of each core
    first, then the siblings."""
    def rank(cpu: int) -> int:
        path = cpu_dir / f"cpu{cpu}/topology/thread_siblings_list"
        try:
            return parse_cpus(path.read_text()).index(cpu)
        except (OSError, ValueError):
            return 0
    return sorted(cpus, key=lambda cpu: (rank(cpu), cpu))


def parse_cpus(text: str) -> List[int]:
    """Read a list of CPUs as the kernel writes it: 0,4-5"""
    cpus: List[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def pin(tids: Sequence[int]) -> str:
    """Give each thread a CPU of its own if one more is left for the rest;
    says what was done."""
    cpus = cpus_by_core(sorted(os.sched_getaffinity(0)))
    if len(set(tids)) < len(tids):
        return "not pinned: one thread runs all vCPUs"
    if len(tids) + 1 > len(cpus):
        return (f"not pinned: {len(tids)} threads and the rest need "
                f"{len(tids) + 1} CPUs, there are {len(cpus)}")
    for tid, cpu in zip(tids, cpus):
        os.sched_setaffinity(tid, {cpu})
    return f"IOThreads and vCPUs on a CPU each, {len(tids)} of {len(cpus)}"


# --- facts -------------------------------------------------------------------

def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def facts(idle: str, cpu_dir: Path = CPU_DIR) -> Dict[str, Any]:
    """What the figures depend on; nothing that names the machine."""
    found = machine.facts(idle)
    governors = {_read(path) for path in
                 cpu_dir.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    found["frequency governor"] = (", ".join(sorted(governors)) or
                                   "none (no cpufreq)")
    boost = _read(cpu_dir / "cpufreq/boost")
    no_turbo = _read(cpu_dir / "intel_pstate/no_turbo")
    found["turbo"] = {"1": "on", "0": "off"}.get(
        boost or {"0": "1", "1": "0"}.get(no_turbo, ""), "unknown")
    found["C-states"] = c_states(cpu_dir)
    found["SMT"] = _read(cpu_dir / "smt/control") or "unknown"
    found["clock"] = _read(Path("/sys/devices/system/clocksource/clocksource0/"
                                "current_clocksource")) or "unknown"
    found["load average before"] = f"{os.getloadavg()[0]:.1f}"
    return found


def c_states(cpu_dir: Path = CPU_DIR) -> str:
    """The idle states of the first CPU and which of them are switched off."""
    driver = _read(cpu_dir / "cpuidle/current_driver")
    states = []
    for path in sorted((cpu_dir / "cpu0/cpuidle").glob("state*")):
        name, latency = _read(path / "name"), _read(path / "latency")
        off = ", off" if _read(path / "disable") == "1" else ""
        states.append(f"{name} ({latency} us{off})")
    if not states:
        return f"none (driver: {driver or 'none'})"
    return f"{driver}: {', '.join(states)}"
