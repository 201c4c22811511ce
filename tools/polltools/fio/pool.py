# SPDX-License-Identifier: GPL-2.0-or-later
"""Which guests are kept: all of a comparison stay booted if they fit into the
memory; one runs at a time, the others are stopped."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import (Any, Callable, Dict, NamedTuple, Optional, Protocol, Tuple,
                    Type)

from ..common import ToolError
from ..guestsetup import Setup
from .matrix import Cell, Matrix, Variant

# Of the host's memory that is available; the rest is for everything else.
MEMORY_SHARE = 0.7


class Program(NamedTuple):
    """A QEMU binary."""

    path: str
    version: str
    sha256: str


class Bench(NamedTuple):
    """What all guests of a run have in common."""

    setup: Setup
    matrix: Matrix
    vcpus: int
    disks: Tuple[Path, ...]
    programs: Dict[str, Program]
    pin: bool

    def program(self, variant: Variant) -> Program:
        return self.programs[variant.qemu]


def roles_of(qmp: Callable[[str], Any]) -> Dict[int, str]:
    """What the threads of a QEMU are for, IOThreads first."""
    found: Dict[int, str] = {}
    for thread in qmp("query-iothreads"):
        found[thread["thread-id"]] = "iothreads"
    for cpu in qmp("query-cpus-fast"):
        found[cpu["thread-id"]] = "vcpus"
    return found


class Loaded(Protocol):
    """A guest that can be measured; ToolError when it cannot any more."""

    @property
    def pid(self) -> int: ...

    def roles(self) -> Dict[int, str]: ...

    def facts(self) -> Dict[str, Any]: ...

    def job(self, cell: Cell, runtime_s: int) -> str: ...

    def fio(self, cell: Cell, runtime_s: int) -> Dict[str, Any]: ...

    def stop(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


class Pool:
    """The guests of one hardware; a context manager."""

    def __init__(self, boot: Callable[[Variant], Loaded],
                 capacity: int) -> None:
        self._boot = boot
        self._capacity = capacity
        self._guests: Dict[Variant, Loaded] = {}

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        for variant in list(self._guests):
            self.drop(variant)

    def drop(self, variant: Variant) -> None:
        if variant in self._guests:
            self._guests.pop(variant).close()

    def get(self, variant: Variant) -> Loaded:
        """The guest of a variant, running; all others are stopped."""
        for other, guest in list(self._guests.items()):
            if other == variant:
                continue
            try:
                guest.stop()
            except ToolError:
                self.drop(other)  # It has died meanwhile
        if variant in self._guests:
            guest = self._guests.pop(variant)
            guest.resume()
        else:
            while len(self._guests) >= self._capacity:
                self.drop(next(iter(self._guests)))
            guest = self._boot(variant)
        # Last in the order: the one that is dropped last.
        self._guests[variant] = guest
        return guest


def capacity(memory_mib: int, available_mib: int) -> int:
    """How many guests fit into the memory of the host."""
    return max(1, int(available_mib * MEMORY_SHARE) // memory_mib)


def available_mib() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 0
