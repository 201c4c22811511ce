# SPDX-License-Identifier: GPL-2.0-or-later
"""What is measured: cells, variants and rounds, read from a TOML file."""

from __future__ import annotations

import fnmatch
import itertools
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Tuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    try:
        import tomli as tomllib
    except ImportError:
        sys.exit(f"{sys.argv[0]}: error: Python before 3.11 needs tomli; "
                 "install python3-tomli, or let a newer python3 come first "
                 "in PATH")

from ..common import ROOT, ToolError, shown

MATRICES = ROOT / "bench" / "fio"
RW = ("randread", "randwrite", "read", "write")
AIO = ("native", "io_uring", "threads")
# The programs that the caller names; a variant may also give a path.
PROGRAMS = ("A", "B")
# A job must have this much of a disk to itself when it reads in sequence.
JOB_MIB_MIN = 4
# Percentiles that fio reports (20 at most); enough to draw a distribution.
PERCENTILES = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5,
               99.9, 99.95, 99.99)


class MatrixError(ToolError):
    """The matrix says something that cannot be run."""


@dataclass(frozen=True)
class Hardware:
    """What a guest is booted with; cells with the same share guests."""

    iothreads: int
    disks: int
    aio: str

    def __str__(self) -> str:
        return f"d{self.disks}-iot{self.iothreads}-{self.aio}"

    def iothreads_of(self, disk: int) -> List[int]:
        """The IOThreads that serve a disk.  When there are more IOThreads
        than disks, the queues of a disk are spread over several."""
        if self.iothreads <= self.disks:
            return [disk % self.iothreads]
        return list(range(disk, self.iothreads, self.disks))


@dataclass(frozen=True)
class Cell:
    """One load on one hardware."""

    rw: str
    bs: str
    numjobs: int
    iodepth: int
    hardware: Hardware

    @property
    def name(self) -> str:
        return (f"{self.rw}-{self.bs}-j{self.numjobs}-qd{self.iodepth}-"
                f"{self.hardware}")

    def job(self, devices: Iterable[str], disk_mib: int,
            runtime_s: int) -> str:
        """The job file.  Each job uses all disks in turn; jobs that read or
        write in sequence start at different places."""
        names = list(devices)
        lines = ["[global]", "ioengine=libaio", "direct=1", "time_based=1",
                 f"runtime={runtime_s}", "group_reporting=1",
                 "lat_percentiles=1", "clat_percentiles=0",
                 "percentile_list=" + ":".join(map(str, PERCENTILES)),
                 f"rw={self.rw}", f"bs={self.bs}", f"iodepth={self.iodepth}",
                 f"numjobs={self.numjobs}", f"filename={':'.join(names)}"]
        if self.rw.startswith("rand"):
            lines += ["norandommap=1", f"size={disk_mib * len(names)}m"]
        else:
            part = disk_mib // self.numjobs
            lines += [f"offset_increment={part}m",
                      f"size={part * len(names)}m"]
        return "\n".join([*lines, "", f"[{self.name}]", ""])


@dataclass(frozen=True)
class Variant:
    """A QEMU and the properties of its IOThreads."""

    name: str
    qemu: str
    properties: Tuple[Tuple[str, Any], ...]

    def iothread(self, name: str) -> Dict[str, Any]:
        """The object, as -object takes it."""
        return {"qom-type": "iothread", "id": name, **dict(self.properties)}


@dataclass(frozen=True)
class Run:
    """One measurement."""

    cell: Cell
    variant: Variant
    round: int

    @property
    def path(self) -> str:
        """Where its file is, below the directory of the results."""
        return f"runs/{self.cell.name}/{self.variant.name}.{self.round}.json"

    def __str__(self) -> str:
        return f"{self.cell.name}, {self.variant.name}, round {self.round}"


@dataclass(frozen=True)
class Matrix:
    """All that is to be measured.  The first variant is what the others are
    compared with."""

    title: str
    rounds: int
    runtime_s: int
    warmup_s: int
    vcpus: int
    memory_mib: int
    disk_mib: int
    variants: Tuple[Variant, ...]
    cells: Tuple[Cell, ...]

    def hardware(self) -> List[Hardware]:
        return list(dict.fromkeys(cell.hardware for cell in self.cells))

    def runs_on(self, hardware: Hardware) -> Iterator[Run]:
        """In the order in which they are made: cell by cell, so that what
        is compared lies close together, and who is first changes."""
        for cell in self.cells:
            if cell.hardware != hardware:
                continue
            for number in range(1, self.rounds + 1):
                start = (number - 1) % len(self.variants)
                for variant in (self.variants[start:] +
                                self.variants[:start]):
                    yield Run(cell, variant, number)

    def runs(self) -> List[Run]:
        return [run for hardware in self.hardware()
                for run in self.runs_on(hardware)]

    def disk_count(self) -> int:
        return max(hardware.disks for hardware in self.hardware())

    def as_data(self, vcpus: int) -> Dict[str, Any]:
        """What the report has to know about it."""
        return {"title": self.title, "rounds": self.rounds,
                "runtime_s": self.runtime_s, "warmup_s": self.warmup_s,
                "vcpus": vcpus, "memory_mib": self.memory_mib,
                "disk_mib": self.disk_mib,
                "variants": [variant.name for variant in self.variants],
                "cells": [cell.name for hardware in self.hardware()
                          for cell in self.cells
                          if cell.hardware == hardware]}

    def only(self, patterns: List[str]) -> "Matrix":
        """The cells whose name fits a pattern."""
        chosen = tuple(cell for cell in self.cells
                       if any(fnmatch.fnmatch(cell.name, pattern)
                              for pattern in patterns))
        if not chosen:
            raise MatrixError(f"no cell fits {' or '.join(patterns)}; "
                              "--dry-run names all cells")
        return replace(self, cells=chosen)


# --- reading -----------------------------------------------------------------

def find(name: str) -> Path:
    """A matrix by its name, or the path of one."""
    path = MATRICES / f"{name}.toml"
    if path.is_file():
        return path
    if Path(name).is_file():
        return Path(name)
    known = ", ".join(sorted(file.stem for file in MATRICES.glob("*.toml")))
    raise MatrixError(f"MATRIX={name}: no such file, and none of: {known}")


def load(path: Path) -> Matrix:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise MatrixError(f"{shown(path)} cannot be read: {error}") from error
    try:
        return _matrix(data, path.stem)
    except MatrixError as error:
        raise MatrixError(f"{shown(path)}: {error}") from None


def _matrix(data: Dict[str, Any], name: str) -> Matrix:
    _known(data, "the file", "title", "rounds", "runtime", "warmup", "vcpus",
           "memory", "disk", "variants", "cells")
    matrix = Matrix(
        title=_text(data, "title", name),
        rounds=_number(data, "rounds", 1, 1000),
        runtime_s=_number(data, "runtime", 1, 86400),
        warmup_s=_number(data, "warmup", 0, 86400),
        vcpus=_number(data, "vcpus", 1, 512),
        memory_mib=_number(data, "memory", 256, 1 << 22),
        disk_mib=_number(data, "disk", 16, 1 << 24),
        variants=tuple(map(_variant, _tables(data, "variants"))),
        cells=tuple(dict.fromkeys(
            cell for table in _tables(data, "cells")
            for cell in _cells(table))))
    names = [variant.name for variant in matrix.variants]
    for one in names:
        if names.count(one) > 1:
            raise MatrixError(f"two variants are called '{one}'")
    for cell in matrix.cells:
        if matrix.disk_mib // cell.numjobs < JOB_MIB_MIN:
            raise MatrixError(
                f"disk = {matrix.disk_mib} MiB is too small for "
                f"{cell.numjobs} jobs; at least "
                f"{JOB_MIB_MIN * cell.numjobs} are needed")
    return matrix


def _known(table: Mapping[str, Any], where: str, *names: str) -> None:
    for name in table:
        if name not in names:
            raise MatrixError(f"{where} has '{name}'; known are: "
                              f"{', '.join(names)}")


def _text(table: Mapping[str, Any], name: str, default: str) -> str:
    value = table.get(name, default)
    if not isinstance(value, str):
        raise MatrixError(f"{name} = {value!r} is no text")
    return value


def _number(table: Mapping[str, Any], name: str, low: int, high: int) -> int:
    if name not in table:
        raise MatrixError(f"'{name}' is missing; it is in range "
                          f"[{low}, {high}]")
    return _in_range(name, table[name], low, high)


def _in_range(name: str, value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise MatrixError(f"{name} = {value!r} is not in range "
                          f"[{low}, {high}]")
    return value


def _tables(data: Mapping[str, Any], name: str) -> List[Dict[str, Any]]:
    tables = data.get(name)
    if (not isinstance(tables, list) or not tables or
            not all(isinstance(table, dict) for table in tables)):
        raise MatrixError(f"there is no [[{name}]]; at least one is needed")
    return tables


def _variant(table: Dict[str, Any]) -> Variant:
    _known(table, "a variant", "name", "qemu", "properties")
    name = _text(table, "name", "")
    if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", name):
        raise MatrixError(f"the name of a variant is '{name}'; letters, "
                          "digits, '-', '_' and '.' may be used")
    qemu = _text(table, "qemu", "")
    if qemu not in PROGRAMS and "/" not in qemu:
        raise MatrixError(f"variant {name}: qemu = '{qemu}' is neither A nor "
                          "B nor a path")
    properties = table.get("properties", {})
    if not isinstance(properties, dict) or not all(
            isinstance(value, (int, str)) for value in properties.values()):
        raise MatrixError(f"variant {name}: properties must be a table of "
                          "numbers and texts, e.g. {poll-weight = 3}")
    return Variant(name, qemu, tuple(properties.items()))


def _cells(table: Dict[str, Any]) -> Iterator[Cell]:
    """All combinations of the lists of a table."""
    _known(table, "[[cells]]", "rw", "bs", "numjobs", "iodepth", "iothreads",
           "disks", "aio")

    def words(name: str, allowed: Tuple[str, ...] = ()) -> List[str]:
        for value in _list(table, name):
            if allowed and value not in allowed:
                raise MatrixError(f"{name} = {value!r} is none of: "
                                  f"{', '.join(allowed)}")
            if not allowed and not re.fullmatch(r"[1-9]\d*[km]?", str(value)):
                raise MatrixError(f"{name} = {value!r} is no size such as "
                                  "'8k'")
        return [str(value) for value in _list(table, name)]

    def numbers(name: str, high: int) -> List[int]:
        return [_in_range(name, value, 1, high)
                for value in _list(table, name)]

    for iothreads, disks, aio in itertools.product(
            numbers("iothreads", 256), numbers("disks", 24),
            words("aio", AIO)):
        for rw, bs, jobs, depth in itertools.product(
                words("rw", RW), words("bs"), numbers("numjobs", 1024),
                numbers("iodepth", 4096)):
            yield Cell(rw, bs, jobs, depth, Hardware(iothreads, disks, aio))


def _list(table: Mapping[str, Any], name: str) -> List[Any]:
    value = table.get(name)
    if not isinstance(value, list) or not value:
        raise MatrixError(f"[[cells]]: '{name}' must be a list, e.g. "
                          f"{EXAMPLES[name]}")
    return value


EXAMPLES = {"rw": '["randread"]', "bs": '["8k"]', "numjobs": "[1, 4]",
            "iodepth": "[8]", "iothreads": "[1]", "disks": "[1]",
            "aio": '["native"]'}
