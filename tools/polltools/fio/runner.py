# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs what is not done yet.  Each measured run is a file of its own, written
at once or not at all; what is there is kept, so an interrupted matrix goes on
where it was."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

from ..common import ToolError, say, shown
from ..source import sha256
from . import client, host, pool
from .matrix import Hardware, Matrix, Run, Variant
from .pool import Bench, Loaded, Pool, Program

# Boots a guest of a variant, with some hardware.
Boot = Callable[[Bench, Variant, Hardware], Loaded]

FORMAT = 1
# What a run takes beyond its seconds of fio, and what a guest takes to boot:
# a guess until the first runs have shown it.
RUN_EXTRA_S = 2.0
BOOT_S = 8.0
ATTEMPTS = 2


# --- files -------------------------------------------------------------------

def text_of(data: Dict[str, Any]) -> str:
    """JSON with a line per member: fio alone reports some 400 values."""
    lines = [f" {json.dumps(name)}: {json.dumps(value, sort_keys=True)}"
             for name, value in sorted(data.items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write(path: Path, data: Dict[str, Any]) -> None:
    """Write JSON so that the file is there completely or not at all."""
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "w", encoding="utf-8") as file:
            file.write(text_of(data))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        _forget(part)
        more = ("; make room, then the same command goes on"
                if error.errno == errno.ENOSPC else "")
        raise ToolError(f"{shown(path)} cannot be written: "
                        f"{error.strerror}{more}") from error


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Two matrices at once must not share results or disks."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ToolError(f"{shown(directory)} cannot be used: "
                        f"{error.strerror}") from error
    try:
        _lock(held, directory)
        yield
    finally:
        os.close(held)


def _lock(held: int, directory: Path) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ToolError(f"{shown(directory)} is in use by another run of "
                        "tools/fio; wait until that has ended, or take other "
                        "directories with OUT= and WORK=") from error


def _forget(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        pass


def read(path: Path) -> Optional[Dict[str, Any]]:
    """A finished run, None if there is none (or not all of it)."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    good = isinstance(data, dict) and data.get("format") == FORMAT
    return data if good else None


def failure_of(path: Path) -> Path:
    """Where it is said why a run has failed."""
    return path.with_suffix(".failed")


def describe(program: str) -> Program:
    """A QEMU binary: its version and what tells it from others."""
    path = Path(program).resolve()
    try:
        text = subprocess.run([str(path), "--version"], check=True,
                              stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True).stdout
        digest = sha256(path)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ToolError(f"{program} is no QEMU that can be run ({error}); "
                        '"make qemu" builds one') from error
    return Program(str(path), text.splitlines()[0].split("version ")[-1],
                   digest)


# --- plan --------------------------------------------------------------------

class Todo(NamedTuple):
    """What is left of a matrix."""

    runs: List[Run]
    done: int

    @property
    def total(self) -> int:
        return self.done + len(self.runs)


def todo(matrix: Matrix, out: Path) -> Todo:
    runs = matrix.runs()
    left = [run for run in runs if read(out / run.path) is None]
    return Todo(left, len(runs) - len(left))


def estimate_s(matrix: Matrix, runs: List[Run]) -> float:
    """How long the runs take, roughly."""
    each = matrix.runtime_s + matrix.warmup_s + RUN_EXTRA_S
    boots = {(run.cell.hardware, run.variant) for run in runs}
    return each * len(runs) + BOOT_S * len(boots)


def duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours / 24:.1f} days"
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def plan_text(matrix: Matrix, left: Todo) -> str:
    """The plan as the dry run prints it."""
    lines = [f"matrix {matrix.title}: {len(matrix.cells)} cells x "
             f"{len(matrix.variants)} variants x {matrix.rounds} rounds = "
             f"{left.total} runs of {matrix.runtime_s} s, each after a warm-up "
             f"of {matrix.warmup_s} s",
             "variants (the first is what the others are compared with):"]
    for variant in matrix.variants:
        properties = ", ".join(f"{name}={value}"
                               for name, value in variant.properties)
        lines.append(f"  {variant.name}: QEMU {variant.qemu}, "
                     f"{properties or 'default properties'}")
    lines.append("cells (rw, block size, jobs, depth, disks, IOThreads, aio):")
    open_cells = [run.cell for run in left.runs]
    for hardware in matrix.hardware():
        for cell in matrix.cells:
            if cell.hardware == hardware:
                each = len(matrix.variants) * matrix.rounds
                done = each - open_cells.count(cell)
                lines.append(f"  {cell.name}" +
                             (f"  ({done} of {each} runs done)"
                              if done else ""))
    lines.append(f"done: {left.done} of {left.total} runs; the others take "
                 f"about {duration(estimate_s(matrix, left.runs))}")
    return "\n".join(lines)


class Progress:
    """A line per run, with the time that is left."""

    def __init__(self, matrix: Matrix, left: Todo) -> None:
        self._matrix = matrix
        self._left = left
        self._count = 0
        self._start = time.monotonic()

    def step(self, run: Run, what: str) -> None:
        self._count += 1
        rest = self._left.runs[self._count:]
        guess_s = estimate_s(self._matrix, rest)
        done_s = estimate_s(self._matrix, self._left.runs[:self._count])
        # The guess, corrected by how wrong it was so far.
        guess_s *= (time.monotonic() - self._start) / done_s
        say(f"[{self._left.done + self._count}/{self._left.total}] {run}: "
            f"{what}" + (f"; {duration(guess_s)} left" if rest else ""))


# --- running -----------------------------------------------------------------

class Runner:
    """Runs a matrix; what fails is said, written down, and does not stop the
    rest."""

    def __init__(self, bench: Bench, out: Path, exits: host.KvmExits,
                 boot: Boot) -> None:
        self.boot = boot
        self.bench = bench
        self.out = out
        self.exits = exits
        self.failed = 0

    def setting(self, run: Run) -> Dict[str, Any]:
        """What must be the same for runs that are compared."""
        matrix, setup = self.bench.matrix, self.bench.setup
        program = self.bench.program(run.variant)
        return {"runtime_s": matrix.runtime_s, "warmup_s": matrix.warmup_s,
                "vcpus": self.bench.vcpus, "memory_mib": matrix.memory_mib,
                "disk_mib": matrix.disk_mib, "arch": setup.arch,
                "accel": setup.accel,
                "qemu": {"version": program.version,
                         "sha256": program.sha256},
                "properties": dict(run.variant.properties)}

    def check_kept(self) -> None:
        """What is there must have been measured in the same way."""
        for run in self.bench.matrix.runs():
            kept = read(self.out / run.path)
            if kept is None:
                continue
            now = self.setting(run)
            for name, value in now.items():
                if kept["setting"].get(name) != value:
                    raise ToolError(
                        f"{shown(self.out / run.path)} was measured with "
                        f"{name} = {kept['setting'].get(name)}, now it is "
                        f"{value}; take another directory with OUT=, or "
                        "remove that one")

    def run(self, beside: Optional[Dict[str, Dict[str, Any]]] = None) -> int:
        """All that is left; the number of runs that failed.  What the report
        has to know besides is written when the runs that are kept fit."""
        with alone(self.out):
            return self._run(beside or {})

    def _run(self, beside: Dict[str, Dict[str, Any]]) -> int:
        self.check_kept()
        for name, data in beside.items():
            write(self.out / name, data)
        matrix = self.bench.matrix
        left = todo(matrix, self.out)
        say(f"{left.done} of {left.total} runs are done; the others take "
            f"about {duration(estimate_s(matrix, left.runs))}")
        progress = Progress(matrix, left)
        for hardware in matrix.hardware():
            runs = [run for run in left.runs if run.cell.hardware == hardware]
            if runs:
                self._run_on(hardware, runs, progress)
        return self.failed

    def _run_on(self, hardware: Hardware, runs: List[Run],
                progress: Progress) -> None:
        def boot(variant: Variant) -> Loaded:
            return self.boot(self.bench, variant, hardware)

        room = pool.capacity(self.bench.matrix.memory_mib,
                             pool.available_mib())
        with Pool(boot, room) as guests:
            for run in runs:
                progress.step(run, self._try(guests, run))

    def _try(self, guests: Pool, run: Run) -> str:
        """Measure; once more with a new guest if that fails."""
        path = self.out / run.path
        for attempt in range(1, ATTEMPTS + 1):
            try:
                data = self._measure(guests.get(run.variant), run)
            except ToolError as error:
                trouble = str(error)
                guests.drop(run.variant)
                say(f"  {run}: attempt {attempt} failed: {trouble}")
                continue
            write(path, data)
            _forget(failure_of(path))
            return summary(data)
        self.failed += 1
        failure = {"format": FORMAT, "error": trouble}
        write(failure_of(path), failure)
        return "FAILED"

    def _measure(self, guest: Loaded, run: Run) -> Dict[str, Any]:
        matrix = self.bench.matrix
        if matrix.warmup_s:
            guest.fio(run.cell, matrix.warmup_s)
        with host.Observation(guest.pid, guest.roles(), self.exits) as seen:
            report = guest.fio(run.cell, matrix.runtime_s)
        return {
            "format": FORMAT,
            "cell": {"name": run.cell.name, "rw": run.cell.rw,
                     "bs": run.cell.bs, "numjobs": run.cell.numjobs,
                     "iodepth": run.cell.iodepth,
                     **run.cell.hardware.__dict__},
            "variant": run.variant.name,
            "round": run.round,
            "setting": self.setting(run),
            "guest": guest.facts(),
            "job": guest.job(run.cell, matrix.runtime_s),
            "host": seen.result,
            "fio": report,
        }


def summary(data: Dict[str, Any]) -> str:
    """A run in a few words."""
    job = client.job_of(data["fio"])
    iops = job["read"]["iops"] + job["write"]["iops"]
    share = data["host"]["cpu_ns"].get("iothreads", 0) / (
        data["host"]["elapsed_s"] * 1e9)
    return f"{iops:.0f} IOPS, IOThreads {share * 100:.0f} % CPU"
