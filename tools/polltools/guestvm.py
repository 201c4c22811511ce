# SPDX-License-Identifier: GPL-2.0-or-later
"""A small Debian guest under QEMU whose disk is served by an IOThread.

QEMU is run by its own Python package qemu.machine.  Commands reach the guest
over a virtio-serial port (guest-init is the other end), so nothing
depends on what a screen shows.  Every wait has a limit and fails loudly.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import socket
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Type

from . import guestimage
from .arch import ARCHES, arch_of, host
from .common import BUILD, CACHE, ToolError, default_base
from .guestsetup import Setup as Setup
from .guestsetup import add_arguments as add_arguments
from .machine import thread_cpu_ns

# Behind PYTHONPATH: the tree that is built, and Debian's modules, which the
# python3 that comes first in PATH may not know.
sys.path += [str(BUILD / default_base() / "src" / "python"),
             "/usr/lib/python3/dist-packages"]
try:
    from qemu.machine import QEMUMachine  # noqa: E402
    from qemu.machine.machine import (QEMUMachineError,  # noqa: E402
                                      VMLaunchFailure)
    from qemu.qmp import QMPError  # noqa: E402
    from qemu.qmp.legacy import QEMUMonitorProtocol  # noqa: E402
except ImportError as error:
    sys.exit(f"{sys.argv[0]}: error: {error}. QEMU's Python packages are "
             "needed: name the directory python/ of a QEMU source tree in "
             "PYTHONPATH and install python3-qemu-qmp; "
             '"make demo" and "make test" see to both')

PORT = "org.qemu.poll-weight.guest"
BOOT_LIMIT_S = 180
KVM_LIMIT_S = 20
QMP_LIMIT_S = 60
DISK_BYTES = 1 << 30
AIO_MODES = ("io_uring", "native", "threads")
TAIL_LINES = 20
# How a command ends when QEMU is gone or does not answer.
QMP_ERRORS = (QMPError, QEMUMachineError, OSError, asyncio.TimeoutError)
# The kernel ends QEMU with the tool that started it, however that dies: a
# guest that is stopped would not notice that its port is closed.
WITH_ITS_PARENT = ("setpriv", "--pdeathsig", "KILL")


class GuestError(ToolError):
    """The guest or QEMU did not do what was asked."""


class Answer(NamedTuple):
    """What a command in the guest left behind."""
    status: int
    out: str
    err: str


def launch(vm: QEMUMachine) -> None:
    """Start QEMU; its own words say why it does not."""
    try:
        vm.launch()
    except VMLaunchFailure as failure:
        raise GuestError(f"{vm.binary} does not start: "
                         f"{(failure.output or str(failure)).strip()}"
                         ) from None
    vm._qmp.settimeout(QMP_LIMIT_S)


class Guest:
    """A running guest; a context manager that never leaves QEMU behind."""

    def __init__(self, setup: Setup, qemu: str, name: str,
                 *args: str) -> None:
        self.setup = setup
        self.name = name
        machine = setup.machine
        setup.work.mkdir(parents=True, exist_ok=True)
        self._console = setup.work / f"{name}.console"
        self._console.write_bytes(b"")
        self._port, port_end = socket.socketpair()
        self._monitor, monitor_end = socket.socketpair()
        ends = (port_end, monitor_end)
        for end in ends:
            os.set_inheritable(end.fileno(), True)
        self.kernel = ""
        self.boot_s = 0.0
        self._start = time.monotonic()
        self.vm = QEMUMachine(
            qemu, name=name, log_dir=str(setup.work),
            wrapper=WITH_ITS_PARENT if shutil.which("setpriv") else ())
        for directory in setup.firmware:
            self.vm.add_args("-L", directory)
        self.vm.add_args(
            *machine.args, "-accel", setup.accel,
            *(machine.kvm_args if setup.accel == "kvm" else ()),
            "-m", "512M", "-nodefaults", "-no-reboot",
            "-kernel", str(setup.image / "kernel"),
            "-initrd", str(setup.image / "initramfs"),
            "-append", f"quiet panic=-1 {machine.kernel_args}",
            "-serial", f"file:{self._console}",
            "-chardev", f"socket,id=second,fd={monitor_end.fileno()}",
            "-mon", "chardev=second,mode=control",
            "-chardev", f"socket,id=port,fd={port_end.fileno()}",
            "-device", f"virtio-serial-{machine.bus}",
            "-device", f"virtserialport,chardev=port,name={PORT}",
            *args)
        try:
            launch(self.vm)
        finally:
            for end in ends:
                end.close()

    def __enter__(self) -> "Guest":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.vm.shutdown(hard=True)
        self._port.close()
        self._monitor.close()

    # --- the guest's side ---

    def wait_ready(self, limit_s: float = BOOT_LIMIT_S) -> None:
        """Wait until the guest has booted."""
        line = self._read_line(self._start + limit_s,
                               f"boot in {limit_s:.0f} s")
        if not line.startswith("ready "):
            raise self._trouble(f'said "{line}" instead of "ready"')
        self.kernel = line.split()[1]
        self.boot_s = time.monotonic() - self._start

    def run(self, command: str, limit_s: float = 60) -> Answer:
        """Run a command line in the guest's shell."""
        if "\n" in command:
            raise ValueError(f"one line only: {command!r}")
        deadline = time.monotonic() + limit_s
        self._send(command)
        header = self._read_line(deadline, command)
        status, out_bytes, err_bytes = map(int, header.split())
        out = self._read(out_bytes, deadline, command)
        err = self._read(err_bytes, deadline, command)
        return Answer(status, out.decode(errors="replace"),
                      err.decode(errors="replace"))

    def fio(self, *options: str, limit_s: float = 60) -> Dict[str, Any]:
        """Run fio, which must succeed, and return what it reports."""
        answer = self.try_fio(*options, limit_s=limit_s)
        found = re.search(r"^\{", answer.out, re.MULTILINE)
        if answer.status != 0 or found is None:
            notes = answer.out[:found.start()] if found else answer.out
            raise GuestError(f"{self.name}: fio ended with {answer.status}: "
                             f"{' '.join(options)}\n{answer.err}{notes}")
        report: Dict[str, Any] = json.loads(answer.out[found.start():])
        for job in report["jobs"]:
            if job["error"] != 0:
                raise GuestError(f'{self.name}: fio job {job["jobname"]} '
                                 f'reports error {job["error"]}')
        return report

    def try_fio(self, *options: str, limit_s: float = 60) -> Answer:
        """Run fio and return how it ended."""
        return self.run(" ".join(("fio", "--output-format=json", *options)),
                        limit_s)

    def power_off(self) -> None:
        """Let the guest power off; QEMU must follow with exit code 0."""
        self._send("poweroff -f")
        try:
            event = self.vm.event_wait("SHUTDOWN", timeout=QMP_LIMIT_S)
        except asyncio.TimeoutError:
            event = None
        reason = event["data"]["reason"] if event else "no SHUTDOWN event"
        self.vm.wait(timeout=QMP_LIMIT_S)
        if reason != "guest-shutdown" or self.vm.exitcode() != 0:
            raise self._trouble(f"did not power off cleanly: {reason}, exit "
                                f"code {self.vm.exitcode()}")

    def _send(self, command: str) -> None:
        try:
            self._port.settimeout(QMP_LIMIT_S)
            self._port.sendall(command.encode() + b"\n")
        except OSError as error:
            raise self._trouble(f"takes no command ({error}): {command}"
                                ) from None

    def _receive(self, size: int, deadline: float, task: str) -> bytes:
        self._port.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            data = self._port.recv(size)
        except socket.timeout:
            raise self._trouble(f"is not done in time: {task}") from None
        if not data:
            raise self._trouble(f"went away: {task}")
        return data

    def _read(self, size: int, deadline: float, task: str) -> bytes:
        data = b""
        while len(data) < size:
            data += self._receive(size - len(data), deadline, task)
        return data

    def _read_line(self, deadline: float, task: str) -> str:
        line = b""
        while not line.endswith(b"\n"):
            line += self._receive(1, deadline, task)
        return line.decode(errors="replace").strip()

    def _trouble(self, what: str) -> GuestError:
        console = self._console.read_text(errors="replace").splitlines()
        tail = "\n".join(console[-TAIL_LINES:])
        return GuestError(f"guest {self.name} {what}\nlast lines of "
                          f'{self._console}:\n{tail or "(none)"}')

    def disk_path(self, name: str) -> str:
        """Return the guest's device of a disk, '' if it sees none."""
        found = self.run(f"grep -lx {name} /sys/block/*/serial").out.split()
        return f"/dev/{Path(found[0]).parent.name}" if found else ""

    # --- QEMU's side ---

    def second_monitor(self) -> QEMUMonitorProtocol:
        """Connect to a QMP monitor of one's own, e.g. for a thread."""
        monitor = QEMUMonitorProtocol(self._monitor, nickname="second")
        monitor.connect()
        monitor.settimeout(QMP_LIMIT_S)
        return monitor

    def iothread(self, name: str) -> Dict[str, Any]:
        """Return what query-iothreads says about an IOThread."""
        threads: Any = self.vm.cmd("query-iothreads")
        for thread in threads:
            if thread["id"] == name:
                return dict(thread)
        raise GuestError(f"query-iothreads does not list {name}")

    def iothread_cpu_ns(self, name: str) -> int:
        """Return the CPU time that an IOThread has used so far."""
        return thread_cpu_ns(self.vm.get_pid(),
                             self.iothread(name)["thread-id"])


def disk_args(setup: Setup, path: Path, aio: str, *, iothread: str = "iot0",
              name: str = "disk0", direct: bool = True,
              read_only: bool = False, legacy: bool = False) -> List[str]:
    """Return the options of a raw disk that is served by an IOThread."""
    return ["-blockdev", json.dumps(blockdev(path, aio, name, direct,
                                             read_only)),
            "-device", json.dumps(disk_device(setup, iothread, name, legacy))]


def blockdev(path: Path, aio: str, name: str, direct: bool = True,
             read_only: bool = False) -> Dict[str, Any]:
    driver = "host_device" if path.is_block_device() else "file"
    return {"driver": "raw", "node-name": name, "read-only": read_only,
            "cache": {"direct": direct},
            "file": {"driver": driver, "filename": str(path), "aio": aio,
                     "read-only": read_only, "cache": {"direct": direct}}}


def disk_device(setup: Setup, iothread: str, name: str,
                legacy: bool = False) -> Dict[str, Any]:
    return {"driver": f"virtio-blk-{setup.machine.bus}", "id": f"{name}-dev",
            "drive": name, "serial": name, "iothread": iothread,
            **(setup.machine.legacy if legacy else {})}


class DiskMode(NamedTuple):
    """How a disk can be opened, or why not."""
    usable: bool
    direct: bool = False
    reason: str = ""


def disk_mode(qemu: str, path: Path, aio: str) -> DiskMode:
    """Ask QEMU whether it can use an aio mode on a disk.

    A file system without O_DIRECT leaves only the host's page cache, which
    aio=native does not accept; a sandbox may forbid io_uring.
    """
    with QEMUMachine(qemu, args=["-machine", "none"]) as vm:
        launch(vm)
        for direct in (True, False):
            answer = vm.qmp("blockdev-add",
                            blockdev(path, aio, "probe", direct))
            if "error" not in answer:
                return DiskMode(True, direct)
    return DiskMode(False, reason=f"aio={aio} cannot be used in "
                    f"{path.parent}: {answer['error']['desc']}")


def make_disk(path: Path, filled_bytes: int = 0) -> None:
    """Make a sparse raw disk of 1 GiB whose first bytes are written.

    A hole is read without any I/O, so whatever is measured must lie in the
    written part.
    """
    if path.exists() and path.stat().st_size == DISK_BYTES:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with open(part, "wb") as file:
        for _ in range(filled_bytes >> 20):
            file.write(os.urandom(1 << 20))
        file.truncate(DISK_BYTES)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)


def kvm_refusal(setup: Setup, qemu: str) -> Optional[str]:
    """Return why KVM cannot run the guest here, or None.

    That /dev/kvm can be opened says little (nested virtualization may be
    missing), so the guest is booted.
    """
    if host() != setup.arch:
        return f"this machine is {host()}, not {setup.arch}"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "/dev/kvm cannot be opened"
    try:
        with Guest(setup._replace(accel="kvm"), qemu, "kvm-probe") as guest:
            guest.wait_ready(KVM_LIMIT_S)
            guest.power_off()
    except GuestError as error:
        return f"a guest does not run ({str(error).splitlines()[0]})"
    return None


def prepare(args: argparse.Namespace, qemu: str) -> Tuple[Setup, str]:
    """Make the guest image, choose KVM or TCG; say why in a sentence."""
    if shutil.which(qemu) is None:
        raise GuestError(f'{qemu}: no such program; "make qemu" builds it')
    arch = args.arch or arch_of(qemu)
    image = guestimage.ensure(CACHE, ARCHES[arch].debian)
    setup = Setup(arch, image, args.work.resolve(), tuple(args.firmware))
    if args.accel == "tcg":
        return setup, "TCG, as asked"
    refusal = kvm_refusal(setup, qemu)
    if refusal is None:
        return setup._replace(accel="kvm"), "KVM"
    if args.accel == "kvm":
        raise GuestError(f"KVM cannot be used: {refusal}; use --accel tcg")
    return setup, f"TCG, because KVM cannot be used: {refusal}"
