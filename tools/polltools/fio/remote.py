# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that runs already: a libvirt domain of this host, whose guest is
reached by ssh and has fio.  Variants differ in properties only, which are set
while it runs; nothing is booted, stopped or pinned."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from ..common import ToolError
from ..source import sha256
from .client import CONNECT_LIMIT_S, JOB_LIMIT_S, PORT, SOCKET, Client
from .matrix import Cell, Hardware, Matrix, MatrixError, Variant
from .pool import Program, roles_of

PID_DIR = Path("/run/libvirt/qemu")
# A refused connection is closed within this; one that stays open is served.
REFUSED_WITHIN_S = 0.5
# Nobody is there to answer a question.
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20")


class RemoteError(ToolError):
    """The domain or its guest did not do what was asked."""


def need(program: str, package: str) -> None:
    if shutil.which(program) is None:
        raise RemoteError(f"{program} is not installed (package {package})")


class Domain:
    """The QEMU of a libvirt domain."""

    def __init__(self, name: str) -> None:
        need("virsh", "libvirt-clients")
        self.name = name
        path = PID_DIR / f"{name}.pid"
        try:
            self.pid = int(path.read_text())
        except (OSError, ValueError) as error:
            raise RemoteError(f"{path} cannot be read ({error}); is the "
                              f"domain {name} running, and are you root?"
                              ) from error

    def qmp(self, command: str, **arguments: Any) -> Any:
        text = json.dumps({"execute": command, "arguments": arguments})
        done = subprocess.run(
            ["virsh", "qemu-monitor-command", self.name, text],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, check=False)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            answer = {"error": {"desc": done.stderr.strip()}}
        if "error" in answer:
            raise RemoteError(f"domain {self.name}: {command}: "
                              f"{answer['error']['desc']}")
        return answer["return"]

    def program(self) -> Program:
        version = self.qmp("query-version")["qemu"]
        binary = Path(f"/proc/{self.pid}/exe")
        try:
            digest = sha256(binary)
        except OSError as error:
            raise RemoteError(f"{binary}: {error.strerror}") from error
        return Program(f"domain {self.name}", ".".join(
            str(version[part]) for part in ("major", "minor", "micro")),
            digest)

    def accel(self) -> str:
        return "kvm" if self.qmp("query-kvm")["enabled"] else "tcg"

    def iothreads(self) -> Dict[str, int]:
        return {thread["id"]: thread["thread-id"]
                for thread in self.qmp("query-iothreads")}

    def roles(self) -> Dict[int, str]:
        return roles_of(self.qmp)

    def apply(self, variant: Variant) -> None:
        for iothread in self.iothreads():
            for name, value in variant.properties:
                self.qmp("qom-set", path=f"/objects/{iothread}",
                         property=name, value=value)


class Connection:
    """fio's server in the guest and the way to it; a context manager."""

    def __init__(self, address: str) -> None:
        need("ssh", "openssh-client")
        self.address = address
        self._temp = tempfile.TemporaryDirectory(prefix="fio-")
        self.directory = Path(self._temp.name)
        self._ssh: Optional["subprocess.Popen[bytes]"] = None

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._temp.cleanup()

    def close(self) -> None:
        if self._ssh:
            self._ssh.terminate()
            self._ssh.wait()
        self._ssh = None
        (self.directory / SOCKET).unlink(missing_ok=True)

    def run(self, command: str) -> str:
        done = subprocess.run([*SSH, self.address, command],
                              stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False)
        if done.returncode:
            raise RemoteError(f"ssh {self.address} {command}: "
                              f"{done.stderr.strip()}")
        return done.stdout.strip()

    def ensure(self) -> None:
        """Start the server, unless it runs."""
        if self._ssh and self._ssh.poll() is None:
            return
        self.close()
        # With a terminal the server ends when the connection does.
        with open(self.directory / "ssh.log", "wb") as log:
            self._ssh = subprocess.Popen(
                [*SSH, "-tt", "-o", "ExitOnForwardFailure=yes",
                 "-L", f"{self.directory / SOCKET}:127.0.0.1:{PORT}",
                 self.address, f"fio --server=ip:127.0.0.1,{PORT}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + CONNECT_LIMIT_S
        while not self._served():
            if self._ssh.poll() is not None or time.monotonic() > deadline:
                self.close()
                said = (self.directory / "ssh.log").read_text(
                    errors="replace").strip()
                raise RemoteError(f"ssh {self.address}: no fio server: "
                                  f"{said or 'it does not answer'}")
            time.sleep(0.1)

    def _served(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(REFUSED_WITHIN_S)
            try:
                probe.connect(str(self.directory / SOCKET))
                return probe.recv(1) != b""
            except socket.timeout:
                return True
            except OSError:
                return False


class RemoteGuest:
    """The guest as one of the variants."""

    def __init__(self, domain: Domain, connection: Connection,
                 devices: List[str], disk_mib: int,
                 variant: Variant) -> None:
        self.domain = domain
        self.connection = connection
        self.devices = devices
        self.disk_mib = disk_mib
        self.variant = variant
        self.kernel = connection.run("uname -r")
        self.resume()

    @property
    def pid(self) -> int:
        return self.domain.pid

    def roles(self) -> Dict[int, str]:
        return self.domain.roles()

    def facts(self) -> Dict[str, Any]:
        # How the domain opens its disks is its own business.
        return {"kernel": self.kernel, "direct": True,
                "pinned": "as the domain is; a running guest, its vCPUs, "
                          "memory and disks are not those of the matrix"}

    def job(self, cell: Cell, runtime_s: int) -> str:
        return cell.job(self.devices, self.disk_mib, runtime_s)

    def fio(self, cell: Cell, runtime_s: int) -> Dict[str, Any]:
        self.connection.ensure()
        directory = self.connection.directory
        with Client(directory, self.job(cell, runtime_s)) as client:
            return client.report(time.monotonic() + runtime_s + JOB_LIMIT_S)

    def stop(self) -> None:
        """The next variant sets its properties."""

    def resume(self) -> None:
        self.domain.apply(self.variant)

    def close(self) -> None:
        """It was there before."""


def check(matrix: Matrix, domain: Domain, devices: List[str]) -> None:
    """The matrix must be one that a running guest can do."""
    programs = {variant.qemu for variant in matrix.variants}
    if len(programs) > 1:
        raise MatrixError("a running guest has one QEMU, the variants name "
                          f"several: {', '.join(sorted(programs))}")
    names = {tuple(sorted(dict(variant.properties)))
             for variant in matrix.variants}
    if len(names) > 1:
        raise MatrixError("in a running guest every variant has to set the "
                          "same properties, or those of another one stay in "
                          "force")
    have = len(domain.iothreads())
    for hardware in matrix.hardware():
        _check_hardware(hardware, have, len(devices))


def _check_hardware(hardware: Hardware, iothreads: int, disks: int) -> None:
    if hardware.iothreads != iothreads or hardware.disks != disks:
        raise MatrixError(f"the cells {hardware} need {hardware.iothreads} "
                          f"IOThreads and {hardware.disks} disks; the domain "
                          f"has {iothreads}, --guest-disk names {disks}")
