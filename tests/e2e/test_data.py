# SPDX-License-Identifier: GPL-2.0-or-later
"""Data stays intact while polling parameters change and disks come and go."""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from guestcase import INT64_MAX, GuestCase, in_force, qom, refusal
from polltools import guestvm
from polltools.guestvm import Guest

FIO_LIMIT_S = 300
STORM_LIMIT_S = 400

# At least 2000 changes in total, a third while each aio mode does I/O.
CHANGES = 700
CHECK_EVERY = 16
SEED = 20261

# The feature bit of devices that follow virtio 1.0 or later.
VERSION_1 = 32

ACCEPTED: Dict[str, Tuple[int, ...]] = {
    "poll-max-ns": (0, 1, 4096, 32768, 32768, 1_000_000, INT64_MAX),
    "poll-grow": (0, 1, 2, 3, 16, INT64_MAX),
    "poll-shrink": (0, 1, 2, 5, INT64_MAX),
    "poll-weight": (1, 2, 3, 3, 7, 16, 17, 63),
}
REFUSED: Dict[str, Tuple[int, ...]] = {
    "poll-max-ns": (-1, -INT64_MAX - 1),
    "poll-grow": (-1,),
    "poll-shrink": (-1,),
    "poll-weight": (0, -1, 64, INT64_MAX, -INT64_MAX - 1),
}
REFUSED_SHARE = 0.1

# Block sizes and depths, each job on a part of the disk of its own.
JOBS = (
    ("small", "--rw=randwrite --bs=4k --iodepth=16 --offset=0 --size=6m"),
    ("single", "--rw=randwrite --bs=8k --iodepth=1 --offset=64m --size=3m"),
    ("mixed", "--rw=randwrite --bsrange=4k-64k --iodepth=4 --offset=128m "
              "--size=16m"),
    ("large", "--rw=write --bs=256k --iodepth=2 --offset=512m --size=48m"),
)


class Storm(threading.Thread):
    """Changes every poll property as fast as a QMP monitor answers."""

    def __init__(self, guest: Guest) -> None:
        super().__init__(name="storm", daemon=True)
        self.changes = {name: 0 for name in ACCEPTED}
        self.refusals = {name: 0 for name in ACCEPTED}
        self.values: Dict[str, int] = {}
        self.error: Optional[BaseException] = None
        self._monitor = guest.second_monitor()
        self._random = random.Random(SEED)
        self._end = threading.Event()

    @property
    def total(self) -> int:
        return sum(self.changes.values())

    def run(self) -> None:
        try:
            for name in ACCEPTED:
                self.values[name] = self._get(name)
            while not self._end.is_set():
                self._step(self._random.choice(list(ACCEPTED)))
        except BaseException as error:  # shown by the thread that tests
            self.error = error
        finally:
            self._monitor.close()

    def stop(self) -> None:
        self._end.set()
        self.join(guestvm.QMP_LIMIT_S)
        if self.is_alive():
            raise AssertionError("the second monitor does not answer")
        if self.error is not None:
            raise AssertionError(f"after {self.total} changes, values "
                                 f"{self.values}: {self.error!r}")

    def _step(self, name: str) -> None:
        if self._random.random() < REFUSED_SHARE:
            self._refused(name, self._random.choice(REFUSED[name]))
            return
        value = self._random.choice(ACCEPTED[name])
        self._monitor.cmd("qom-set", **qom(name, value))
        self.values[name] = in_force(name, value)
        self.changes[name] += 1
        if self.total % CHECK_EVERY == 0:
            self._check(name)

    def _refused(self, name: str, value: int) -> None:
        answer = self._monitor.cmd_raw("qom-set", qom(name, value))
        text = answer.get("error", {}).get("desc", "accepted")
        if text != refusal(name):
            raise AssertionError(f"{name}={value}: {text}")
        self._check(name)
        self.refusals[name] += 1

    def _check(self, name: str) -> None:
        seen = self._get(name)
        if seen != self.values[name]:
            raise AssertionError(f"{name} reads {seen}, expected "
                                 f"{self.values[name]}")

    def _get(self, name: str) -> int:
        value: Any = self._monitor.cmd("qom-get", **qom(name))
        return int(value)


def verify_options(seed: int) -> List[str]:
    """Return fio's options to write blocks, then to read and check them.

    The seed is part of each block's header, so that data of an earlier pass
    is not mistaken for this one's.
    """
    return ["--ioengine=libaio", "--direct=1", "--thread",
            "--verify=crc32c", "--verify_fatal=1", "--do_verify=1",
            f"--randseed={seed}", "--allrandrepeat=1"]


def write_and_verify(guest: Guest, device: str, seed: int) -> None:
    """Run all jobs; fio fails if a block reads back wrong."""
    jobs = [option for name, options in JOBS
            for option in (f"--name={name}", options)]
    report = guest.fio(f"--filename={device}", *verify_options(seed), *jobs,
                       limit_s=FIO_LIMIT_S)
    for job in report["jobs"]:
        written, read = job["write"]["io_bytes"], job["read"]["io_bytes"]
        if not 0 < written == read:
            raise AssertionError(f"fio job {job['jobname']} wrote {written} "
                                 f"bytes but verified {read}")


class ChangesDuringIO(GuestCase):
    """Every poll property changes all the time while data is verified."""

    def run_storm(self, *modes: str, legacy: bool = False) -> None:
        guest = self.boot_with_disk(self.new_disk(), modes=modes,
                                    legacy=legacy)
        device = guest.disk_path("disk0")
        self.check_standard(guest, device, legacy)
        storm = Storm(guest)
        storm.start()
        deadline = time.monotonic() + STORM_LIMIT_S
        passes = 0
        while passes == 0 or storm.total < CHANGES:
            self.assertLess(time.monotonic(), deadline,
                            f"only {storm.total} changes in {passes} passes")
            write_and_verify(guest, device, seed=passes + 1)
            passes += 1
            if not storm.is_alive():
                break
        storm.stop()
        print(f"{passes} passes, {storm.total} changes, "
              f"{sum(storm.refusals.values())} refusals ... ", end="",
              flush=True)
        self.assertGreaterEqual(storm.total, CHANGES)
        for name in ACCEPTED:
            self.assertGreater(storm.changes[name], 0, name)
            self.assertGreater(storm.refusals[name], 0, name)
            self.assertEqual(guest.iothread("iot0")[name], storm.values[name])
        self.power_off(guest)

    def check_standard(self, guest: Guest, device: str, legacy: bool) -> None:
        """The guest must drive the device as the test is meant to."""
        features = guest.run(f"cat /sys/block/{Path(device).name}/device/"
                             "features").out
        self.assertEqual(features[VERSION_1], "0" if legacy else "1", features)

    def test_native(self) -> None:
        self.run_storm("native")

    def test_io_uring(self) -> None:
        self.run_storm("io_uring")

    def test_threads(self) -> None:
        self.run_storm("threads")

    # The rings of such a device have the byte order of the guest.
    def test_legacy_device(self) -> None:
        self.run_storm(*guestvm.AIO_MODES, legacy=True)


class SameBytes(GuestCase):
    """What one side writes the other one reads, at the same place; a guest
    that verifies its own data does not notice if only the places differ."""

    BLOCK = 65536
    COUNT = 16
    FROM, TO = 1024, 4000  # in blocks

    def test_both_ways(self) -> None:
        disk = self.new_disk()
        sample = random.Random(SEED).randbytes(self.BLOCK * self.COUNT)
        with open(disk, "r+b") as file:
            file.seek(self.FROM * self.BLOCK)
            file.write(sample)
            file.flush()
            os.fsync(file.fileno())
        guest = self.boot_with_disk(disk)
        device = guest.disk_path("disk0")
        blocks = f"bs={self.BLOCK} count={self.COUNT} skip={self.FROM}"
        read = guest.run(f"dd if={device} {blocks} | sha256sum")
        self.assertEqual(read.out.split()[0],
                         hashlib.sha256(sample).hexdigest(), read.err)
        copied = guest.run(f"dd if={device} of={device} {blocks} "
                           f"seek={self.TO} conv=notrunc,fsync")
        self.assertEqual(copied.status, 0, copied.err)
        self.power_off(guest)
        with open(disk, "rb") as file:
            file.seek(self.TO * self.BLOCK)
            self.assertTrue(file.read(len(sample)) == sample,
                            "the host does not find what the guest wrote")


class Corruption(GuestCase):
    """The verification of the other tests can fail."""

    OPTIONS = ("--name=check", "--rw=write", "--bs=8k", "--size=2m",
               "--iodepth=4")
    BYTE = 1024 * 1024 + 5000

    def flip(self, disk: Path) -> None:
        with open(disk, "r+b", buffering=0) as file:
            byte = os.pread(file.fileno(), 1, self.BYTE)
            os.pwrite(file.fileno(), bytes([byte[0] ^ 1]), self.BYTE)
            os.fsync(file.fileno())

    def test_one_wrong_bit_is_found(self) -> None:
        disk = self.new_disk()
        guest = self.boot_with_disk(disk)
        options = [f"--filename={guest.disk_path('disk0')}",
                   *verify_options(1), *self.OPTIONS]
        guest.fio(*options)
        self.flip(disk)
        answer = guest.try_fio(*options, "--verify_only")
        self.assertNotEqual(answer.status, 0, answer.out)
        self.assertIn("crc32c: verify failed", answer.out + answer.err)
        self.flip(disk)
        guest.fio(*options, "--verify_only")
        self.power_off(guest)


class HotRemove(GuestCase):
    """A busy disk and its IOThread leave and come back."""

    CYCLES = 2
    BUSY_READS = 50
    LIMIT_S = 120

    def wait_until(self, what: str,
                   condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + self.LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.1)

    def plug(self, guest: Guest, disk: Path, mode: Tuple[str, bool],
             weight: int) -> str:
        aio, direct = mode
        guest.vm.cmd("object-add", {"qom-type": "iothread", "id": "iot1",
                                    "poll-weight": weight})
        guest.vm.cmd("blockdev-add",
                     guestvm.blockdev(disk, aio, "disk1", direct))
        guest.vm.cmd("device_add",
                     guestvm.disk_device(self.guests, "iot1", "disk1"))
        self.wait_until("the guest does not see the new disk",
                        lambda: guest.disk_path("disk1"))
        return guest.disk_path("disk1")

    def unplug(self, guest: Guest) -> None:
        guest.vm.cmd("device_del", {"id": "disk1-dev"})
        event = guest.vm.event_wait("DEVICE_DELETED", timeout=self.LIMIT_S,
                                    match={"data": {"device": "disk1-dev"}})
        self.assertIsNotNone(event)
        guest.vm.cmd("blockdev-del", {"node-name": "disk1"})
        guest.vm.cmd("object-del", {"id": "iot1"})

    def gone_at_once(self) -> bool:
        """Whether an unplugged disk does not wait until the guest lets go."""
        return self.guests.machine.bus == "ccw"

    def take_offline(self, guest: Guest, device: str) -> None:
        """Make the guest let go of a disk while it is busy."""
        name = Path(device).name
        answer = guest.run(f"echo 0 >/sys/block/{name}/device/../online",
                           self.LIMIT_S)
        self.assertEqual(answer.status, 0, answer.err)

    def start_reading(self, guest: Guest, device: str) -> None:
        """Keep a disk busy in the background."""
        guest.run(f"fio --name=busy --filename={device} --readonly "
                  "--rw=randread --bs=4k --size=64m --ioengine=libaio "
                  "--direct=1 --iodepth=8 --time_based --runtime=600 "
                  ">/tmp/busy.log 2>&1 &")
        stat = f"/sys/block/{Path(device).name}/stat"

        def reads() -> int:
            return int(guest.run(f"cat {stat}").out.split()[0])

        start = reads()
        self.wait_until("fio does not read",
                        lambda: reads() > start + self.BUSY_READS)

    def test_busy_disk(self) -> None:
        disk0, disk1 = self.new_disk("disk0"), self.new_disk("disk1")
        mode = self.choose(disk1, guestvm.AIO_MODES)
        guest = self.boot_with_disk(disk0)
        for cycle in range(self.CYCLES):
            weight = 5 + cycle
            device = self.plug(guest, disk1, mode, weight)
            self.assertEqual(guest.iothread("iot1")["poll-weight"], weight)
            write_and_verify(guest, device, seed=cycle + 1)
            self.start_reading(guest, device)
            self.assertEqual(guest.run("pidof fio").status, 0)
            if self.gone_at_once():
                self.take_offline(guest, device)
            self.unplug(guest)
            self.assertEqual(guest.disk_path("disk1"), "")
            # Without its disk, fio either ends with an error or tries on
            # for ever.
            guest.run("killall -9 fio; rm -f /tmp/busy.log")
        write_and_verify(guest, guest.disk_path("disk0"), seed=9)
        self.power_off(guest)

    # QEMU itself takes the requests back that are in flight.
    def test_surprise(self) -> None:
        if not self.gone_at_once():
            self.skipTest("with PCI the guest lets go of its disk first")
        disk0, disk1 = self.new_disk("disk0"), self.new_disk("disk1")
        mode = self.choose(disk1, guestvm.AIO_MODES)
        guest = self.boot_with_disk(disk0)
        device = self.plug(guest, disk1, mode, weight=7)
        self.start_reading(guest, device)
        self.unplug(guest)
        self.wait_until("the guest still sees the disk",
                        lambda: not guest.disk_path("disk1"))
        write_and_verify(guest, guest.disk_path("disk0"), seed=9)
        # Linux 6.1 may be stuck with what it has lost, so it is not asked to
        # power off.
        guest.vm.shutdown()
        self.assertEqual(guest.vm.exitcode(), 0)
