# SPDX-License-Identifier: GPL-2.0-or-later
"""The disks that are measured: files made for it, or devices of the host that
nothing else uses."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import BinaryIO, List, Sequence

from ..common import ToolError, say, shown

MIB = 1 << 20
CONFIRM = "--i-know-this-destroys-data"
SYS_BLOCK = Path("/sys/dev/block")


class DiskError(ToolError):
    """A disk that cannot or must not be used."""


# --- files -------------------------------------------------------------------

def made(directory: Path, count: int, size_mib: int) -> List[Path]:
    """Files full of data, for a hole is read without any I/O."""
    paths = [directory / f"disk{number}-{size_mib}m.raw"
             for number in range(count)]
    todo = [path for path in paths if not path.exists()]
    if not todo:
        return paths
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path in directory.glob("disk*.part"):
            path.unlink()  # An earlier run was interrupted
        need, free = len(todo) * size_mib, _free_mib(directory)
        if need > free:
            raise DiskError(
                f"{count} disks of {size_mib} MiB need {need} MiB in "
                f"{shown(directory)}, {free} are free; name another place "
                "with WORK=, or make 'disk' smaller in the matrix")
        for path in todo:
            say(f"making {shown(path)}, {size_mib} MiB")
            _make(path, size_mib)
    except OSError as error:
        raise DiskError(f"{shown(directory)}: {error.strerror}; name another "
                        "place with WORK=") from error
    return paths


def _free_mib(directory: Path) -> int:
    return shutil.disk_usage(directory).free // MIB


def _make(path: Path, size_mib: int) -> None:
    part = path.with_name(f"{path.name}.part")
    try:
        with open(part, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size_mib * MIB)
            fill(file, size_mib)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    part.rename(path)


def fill(file: BinaryIO, size_mib: int) -> None:
    """Write data that no storage can compress."""
    for _ in range(size_mib):
        file.write(os.urandom(MIB))
    file.flush()
    os.fsync(file.fileno())


# --- devices -----------------------------------------------------------------

def given(names: Sequence[str], count: int, size_mib: int,
          confirmed: bool) -> List[Path]:
    """Check devices, then overwrite the part of them that is used."""
    paths = [Path(name) for name in names]
    if len(paths) < count:
        raise DiskError(f"the matrix needs {count} disks, DISKS names "
                        f"{len(paths)}")
    chosen = paths[:count]
    real = [os.path.realpath(path) for path in chosen]
    for path in chosen:
        if real.count(os.path.realpath(path)) > 1:
            raise DiskError(f"DISKS names {path} twice")
        refuse_used(path, size_mib)
    if not confirmed:
        raise DiskError(f"the first {size_mib} MiB of "
                        f"{', '.join(map(str, chosen))} would be overwritten; "
                        f"{CONFIRM} says that this is meant")
    for path in chosen:
        say(f"writing {size_mib} MiB to {path}")
        # Exclusive: nothing can mount it between the check and this.
        fd = os.open(path, os.O_WRONLY | os.O_EXCL)
        with os.fdopen(fd, "wb") as file:
            fill(file, size_mib)
    return chosen


def refuse_used(path: Path, size_mib: int,
                sys_block: Path = SYS_BLOCK) -> None:
    """Raise if a device is mounted, partitioned, part of something else, or
    too small."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise DiskError(f"{path}: {error.strerror}") from error
    if not stat.S_ISBLK(found.st_mode):
        raise DiskError(f"{path} is no block device; without DISKS files are "
                        "made")
    number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    where = mounted_at(number, Path("/proc/self/mountinfo").read_text())
    if where:
        raise DiskError(f"{path} is mounted at {where}")
    check_sysfs(path, sys_block / number)
    try:
        # The kernel refuses this when anything holds the device: a mount, of
        # a partition too, swap, RAID, device mapper.
        fd = os.open(path, os.O_RDONLY | os.O_EXCL)
    except OSError as error:
        why = ("is in use (mounted, swap, or part of RAID or LVM)"
               if error.errno == errno.EBUSY else error.strerror)
        raise DiskError(f"{path} {why}") from error
    try:
        size = os.lseek(fd, 0, os.SEEK_END) // MIB
    finally:
        os.close(fd)
    if size < size_mib:
        raise DiskError(f"{path} has {size} MiB, the matrix uses {size_mib}; "
                        "make 'disk' smaller there")


def mounted_at(number: str, mountinfo: str) -> str:
    """Where a device, as major:minor, is mounted; '' if nowhere here."""
    for line in mountinfo.splitlines():
        fields = line.split()
        if fields[2] == number:
            return fields[4]
    return ""


def check_sysfs(path: Path, directory: Path) -> None:
    """Partitions and holders, which need not be in use at this moment."""
    if (directory / "partition").exists():
        raise DiskError(f"{path} is a partition; a whole device is needed")
    parts = [entry.parent.name for entry in directory.glob("*/partition")]
    if parts:
        raise DiskError(f"{path} has partitions ({', '.join(sorted(parts))});"
                        " remove them first if nothing on them is needed")
    holders = directory / "holders"
    names = sorted(holder.name for holder in holders.iterdir()) \
        if holders.is_dir() else []
    if names:
        raise DiskError(f"{path} is used by {', '.join(names)}")
    if (directory / "ro").exists() and \
            (directory / "ro").read_text().strip() == "1":
        raise DiskError(f"{path} is read-only")
