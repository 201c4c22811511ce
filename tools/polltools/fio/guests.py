# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest of one variant, with fio's server in it.

The server listens on the loopback device of the guest, which has no
network: a network device would need a helper that not every QEMU is built
with (slirp, vhost-vsock), and its interrupts would be measured too.  A
virtio-serial port carries the connection to a Unix socket of the host."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from .. import guestvm
from ..common import say
from ..guestvm import QMP_ERRORS, Guest, GuestError
from . import host
from .client import (CONNECT_LIMIT_S, JOB_LIMIT_S, PORT, SOCKET, Client,
                     FioError)
from .matrix import Cell, Hardware, Variant
from .pool import Bench, roles_of

DEVICE = "/dev/vport0p2"


def hardware_args(bench: Bench, variant: Variant, hardware: Hardware,
                  direct: bool) -> List[str]:
    """The options of QEMU: IOThreads and disks."""
    args: List[str] = []
    for number in range(hardware.iothreads):
        args += ["-object", json.dumps(variant.iothread(f"iot{number}"))]
    for number in range(hardware.disks):
        node = guestvm.blockdev(bench.disks[number], hardware.aio,
                                f"disk{number}", direct)
        # All guests use the same disks, one after the other.
        node["file"]["locking"] = "off"
        first, *more = hardware.iothreads_of(number)
        device = guestvm.disk_device(bench.setup, f"iot{first}",
                                     f"disk{number}")
        # A request that fails has to fail in fio, not to stop the guest.
        device.update(rerror="report", werror="report")
        if more:
            del device["iothread"]
            device["iothread-vq-mapping"] = [
                {"iothread": f"iot{thread}"} for thread in (first, *more)]
        args += ["-blockdev", json.dumps(node), "-device", json.dumps(device)]
    return args


class FioGuest:
    """A guest with fio's server in it."""

    def __init__(self, bench: Bench, variant: Variant, hardware: Hardware,
                 direct: bool) -> None:
        self.bench = bench
        self.variant = variant
        self.hardware = hardware
        self.direct = direct
        self.pinned = ""
        self.devices: List[str] = []
        self._temp = tempfile.TemporaryDirectory(prefix="fio-")
        self.directory = Path(self._temp.name)
        self.stopped = False
        try:
            self.guest = Guest(
                bench.setup, bench.program(variant).path,
                f"{hardware}-{variant.name}",
                "-smp", str(bench.vcpus), "-m", f"{bench.matrix.memory_mib}M",
                "-chardev", f"socket,id=fio,path={self.directory / SOCKET},"
                "server=on,wait=off",
                "-device", "virtserialport,chardev=fio,name=fio",
                *hardware_args(bench, variant, hardware, direct))
        except BaseException:
            self._temp.cleanup()
            raise

    @property
    def pid(self) -> int:
        pid: Optional[int] = self.guest.vm.get_pid()
        if pid is None:
            raise GuestError(f"guest {self.guest.name}: QEMU is gone")
        return pid

    def start(self) -> None:
        """Wait until it has booted, start the server, pin the threads."""
        self.guest.wait_ready()
        self._shell("ip link set lo up")
        self._shell(f"fio --server=ip:127.0.0.1,{PORT} "
                    "--daemonize=/tmp/fio.pid")
        for number in range(self.hardware.disks):
            device = self.guest.disk_path(f"disk{number}")
            if not device:
                raise GuestError(f"guest {self.guest.name} does not see "
                                 f"disk{number}")
            self.devices.append(device)
        roles = self.roles()
        self.pinned = (host.pin(list(roles)) if self.bench.pin
                       else "not pinned, as asked")

    def facts(self) -> Dict[str, Any]:
        return {"kernel": self.guest.kernel, "direct": self.direct,
                "pinned": self.pinned}

    def _qmp(self, command: str) -> Any:
        try:
            return self.guest.vm.cmd(command)
        except QMP_ERRORS as error:
            raise GuestError(f"guest {self.guest.name}: QEMU does not answer "
                             f"{command} ({error!r})") from error

    def _shell(self, command: str) -> None:
        answer = self.guest.run(command)
        if answer.status != 0:
            raise GuestError(f"guest {self.guest.name}: '{command}' ended "
                             f"with {answer.status}: {answer.err}")

    def close(self) -> None:
        self.guest.__exit__(None, None, None)
        self._temp.cleanup()

    def roles(self) -> Dict[int, str]:
        return roles_of(self._qmp)

    def stop(self) -> None:
        if not self.stopped:
            self._qmp("stop")
            self.stopped = True

    def resume(self) -> None:
        if self.stopped:
            self._qmp("cont")
            self.stopped = False

    def job(self, cell: Cell, runtime_s: int) -> str:
        return cell.job(self.devices, self.bench.matrix.disk_mib, runtime_s)

    def fio(self, cell: Cell, runtime_s: int) -> Dict[str, Any]:
        """Run a job in the guest; what fio's client has printed."""
        deadline = time.monotonic() + runtime_s + JOB_LIMIT_S
        with Client(self.directory, self.job(cell, runtime_s)) as client:
            self._await_client(client)
            # The other end of the port: ends when either side hangs up.
            self.guest.run(f"nc 127.0.0.1 {PORT} <>{DEVICE} >&0",
                           runtime_s + JOB_LIMIT_S)
            return client.report(deadline)

    def _await_client(self, client: Client) -> None:
        """The guest reads end-of-file from the port until somebody is
        connected to it."""
        deadline = time.monotonic() + CONNECT_LIMIT_S
        while time.monotonic() < deadline:
            if client.ended():
                client.report(deadline)
                raise FioError(f"fio's client ended early: {client.said()}")
            if self._connected():
                return
            time.sleep(0.02)
        raise FioError(f"fio's client did not connect: {client.said()}")

    def _connected(self) -> bool:
        return any(device["label"] == "fio" and
                   not device["filename"].startswith("disconnected:")
                   for device in self._qmp("query-chardev"))


def boot(bench: Bench, variant: Variant, hardware: Hardware) -> FioGuest:
    """Boot a guest; GuestError when an aio mode cannot be used here."""
    mode = guestvm.disk_mode(bench.program(variant).path, bench.disks[0],
                             hardware.aio)
    if not mode.usable:
        raise GuestError(mode.reason)
    guest = FioGuest(bench, variant, hardware, mode.direct)
    try:
        guest.start()
    except BaseException:
        guest.close()
        raise
    say(f"  booted {variant.name}, {hardware}: {guest.guest.boot_s:.1f} s; "
        f"{guest.pinned}{'' if mode.direct else '; NOT O_DIRECT'}")
    return guest
