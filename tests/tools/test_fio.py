# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/fio without guests: plan, files, resuming, disks, what the host sees.
A guest that answers with recorded figures takes the place of the real ones;
tests/fio/run measures those."""

import contextlib
import copy
import errno
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from polltools.build import python  # noqa: E402
from polltools.common import ToolError  # noqa: E402
from polltools.fio import (client, disks, host, matrix, pool, remote,
                           runner)  # noqa: E402
from polltools.fio.matrix import Cell, Hardware, MatrixError  # noqa: E402
from polltools.fio.pool import Bench, Program  # noqa: E402
from polltools.guestsetup import Setup  # noqa: E402

RESULTS = ROOT / "bench" / "results" / "fio"
# What the client has printed in a real run
RECORDED = next(iter(sorted(RESULTS.glob("runs/*/*.json"))), None)

MATRIX = """\
title = "toy"
rounds = 5
runtime = 3
warmup = 1
vcpus = 2
memory = 512
disk = 64

[[variants]]
name = "stock"
qemu = "A"

[[variants]]
name = "w2"
qemu = "B"
properties = { poll-weight = 2 }

[[cells]]
rw = ["randread", "write"]
bs = ["8k"]
numjobs = [2]
iodepth = [8]
iothreads = [1]
disks = [2]
aio = ["native"]
"""

PLAN = """\
matrix toy: 2 cells x 2 variants x 5 rounds = 20 runs of 3 s, each after a \
warm-up of 1 s
variants (the first is what the others are compared with):
  stock: QEMU A, default properties
  w2: QEMU B, poll-weight=2
cells (rw, block size, jobs, depth, disks, IOThreads, aio):
  randread-8k-j2-qd8-d2-iot1-native
  write-8k-j2-qd8-d2-iot1-native
done: 0 of 20 runs; the others take about 2 min 16 s
"""

JOB = """\
[global]
ioengine=libaio
direct=1
time_based=1
runtime=3
group_reporting=1
lat_percentiles=1
clat_percentiles=0
percentile_list=1:5:10:20:30:40:50:60:70:80:90:95:98:99:99.5:99.9:99.95:99.99
rw=write
bs=8k
iodepth=8
numjobs=2
filename=/dev/vda:/dev/vdb
offset_increment=32m
size=64m

[write-8k-j2-qd8-d2-iot1-native]
"""


WORDS = """\
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import fioreport
directory = Path(sys.argv[2])
try:
    fioreport.write(fioreport.load(directory), directory)
except ValueError as error:
    sys.exit(str(error))
"""


def recorded() -> Dict[str, Any]:
    assert RECORDED
    data: Dict[str, Any] = json.loads(RECORDED.read_text())
    return data


class Temp(unittest.TestCase):

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.dir = Path(temp.name)

    def toy(self, old: str = "", new: str = "") -> matrix.Matrix:
        """The matrix above, with a change."""
        self.assertIn(old, MATRIX)
        path = self.dir / "toy.toml"
        path.write_text(MATRIX.replace(old, new, 1))
        return matrix.load(path)

    @contextlib.contextmanager
    def quietly(self) -> Iterator[io.StringIO]:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            yield said


class Plan(Temp):

    def test_plan(self) -> None:
        toy = self.toy()
        left = runner.todo(toy, self.dir)
        self.assertEqual(runner.plan_text(toy, left) + "\n", PLAN)

    def test_job(self) -> None:
        cell = self.toy().cells[1]
        self.assertEqual(cell.job(["/dev/vda", "/dev/vdb"], 64, 3), JOB)

    def test_variants_take_turns(self) -> None:
        names = [run.variant.name for run in self.toy().runs()[:10]]
        self.assertEqual(names, ["stock", "w2", "w2", "stock", "stock", "w2",
                                 "w2", "stock", "stock", "w2"])

    def test_cells_of_one_hardware_share_guests(self) -> None:
        toy = self.toy("disks = [2]", "disks = [1, 2]")
        kinds = [run.cell.hardware for run in toy.runs()]
        self.assertEqual(sum(a != b for a, b in zip(kinds, kinds[1:])), 1)

    def test_disks_and_iothreads(self) -> None:
        served = Hardware(2, 4, "native")
        self.assertEqual([served.iothreads_of(disk) for disk in range(4)],
                         [[0], [1], [0], [1]])
        spread = Hardware(8, 1, "native")
        self.assertEqual(spread.iothreads_of(0), list(range(8)))
        uneven = Hardware(5, 2, "native")
        self.assertEqual([uneven.iothreads_of(disk) for disk in range(2)],
                         [[0, 2, 4], [1, 3]])

    def test_only(self) -> None:
        toy = self.toy().only(["write-*"])
        self.assertEqual([cell.rw for cell in toy.cells], ["write"])
        with self.assertRaisesRegex(MatrixError, "no cell fits x"):
            toy.only(["x"])

    def test_what_cannot_be_run(self) -> None:
        for old, new, text in (
                ("rounds = 5", "rounds = 0", r"rounds = 0 is not in range \[1"),
                ("rounds = 5", "rounds = true", "rounds = True"),
                ("rounds = 5\n", "", "'rounds' is missing"),
                ("rounds = 5", "round = 5", "the file has 'round'"),
                ("rounds = 5", "rounds =", "cannot be read"),
                ('"write"', '"trim"', "rw = 'trim' is none of"),
                ('"8k"', '"8q"', "no size such as"),
                ('["8k"]', '"8k"', "'bs' must be a list"),
                ('"native"', '"posix"', "native, io_uring, threads"),
                ("numjobs = [2]", "numjobs = [32]", "at least 128"),
                ('"w2"', '"stock"', "two variants are called 'stock'"),
                ('"w2"', '"../w2"', "the name of a variant is '../w2'"),
                ('"B"', '"C"', "neither A nor B nor a path"),
                ("[[variants]]", "[[variant]]", "has 'variant'"),
                ("{ poll-weight = 2 }", "[2]", "must be a table")):
            with self.subTest(new):
                with self.assertRaisesRegex(MatrixError, text):
                    self.toy(old, new)

    def test_matrices_that_come_with_it(self) -> None:
        for name in ("quick", "published", "ci"):
            made = matrix.load(matrix.find(name))
            self.assertGreaterEqual(made.rounds, 5)
        with self.assertRaisesRegex(MatrixError, "none of: ci, published"):
            matrix.find("nope")


class FakeGuest:
    """Answers with recorded figures; trouble is what it shall do."""

    def __init__(self, log: List[str], trouble: Dict[int, BaseException],
                 name: str) -> None:
        self.log, self.trouble, self.name = log, trouble, name
        self.pid = os.getpid()
        self.stopped = False

    def roles(self) -> Dict[int, str]:
        return {self.pid: "iothreads", 1: "vcpus"}

    def facts(self) -> Dict[str, Any]:
        return {"kernel": "6.1", "direct": True, "pinned": "no"}

    def job(self, cell: Cell, runtime_s: int) -> str:
        return cell.job(["/dev/vda"], 64, runtime_s)

    def fio(self, cell: Cell, runtime_s: int) -> Dict[str, Any]:
        self.log.append(f"{self.name} {cell.rw} {runtime_s}")
        jobs = sum(line[-1].isdigit() for line in self.log)
        wrong = self.trouble.pop(jobs, None)
        if wrong:
            raise wrong
        report: Dict[str, Any] = recorded()["fio"]
        return report

    def stop(self) -> None:
        if not self.stopped:
            self.log.append(f"{self.name} stops")
        self.stopped = True

    def resume(self) -> None:
        if self.stopped:
            self.log.append(f"{self.name} goes on")
        self.stopped = False

    def close(self) -> None:
        self.log.append(f"{self.name} ends")


class Running(Temp):

    def setUp(self) -> None:
        super().setUp()
        self.log: List[str] = []
        self.trouble: Dict[int, BaseException] = {}
        patch = mock.patch.object(host.shutil, "which", lambda name: None)
        patch.start()
        self.addCleanup(patch.stop)

    def runner(self, toy: Optional[matrix.Matrix] = None) -> runner.Runner:
        program = Program("qemu", "11.0.1", "0" * 64)
        setup = Setup("x86_64", self.dir, self.dir, (), "tcg")
        bench = Bench(setup, toy or self.toy(), 2, (self.dir,),
                      {"A": program, "B": program}, False)
        return runner.Runner(
            bench, self.dir / "out", host.KvmExits("tcg"),
            lambda bench, variant, hardware: FakeGuest(
                self.log, self.trouble, variant.name))

    def run_it(self, toy: Optional[matrix.Matrix] = None) -> int:
        with self.quietly():
            return self.runner(toy).run()

    def measured(self) -> List[str]:
        """What was measured, warm-ups left out."""
        return [line for line in self.log if line.endswith(" 3")]

    def files(self) -> List[Path]:
        return sorted((self.dir / "out/runs").rglob("*.*"))

    def test_all(self) -> None:
        self.assertEqual(self.run_it(), 0)
        self.assertEqual(len(self.measured()), 20)
        self.assertEqual(self.log[:8], [
            "stock randread 1", "stock randread 3", "stock stops",
            "w2 randread 1", "w2 randread 3", "w2 randread 1",
            "w2 randread 3", "w2 stops"])
        self.assertEqual(self.log[-2:], ["stock ends", "w2 ends"])
        self.assertEqual(len(self.files()), 20)
        one = json.loads(self.files()[0].read_text())
        self.assertEqual(one["fio"], recorded()["fio"])
        self.assertEqual(set(one["host"]["cpu_ns"]),
                         {"iothreads", "vcpus", "other"}
                         if len(os.listdir("/proc/self/task")) > 1
                         else {"iothreads", "vcpus"})

    def test_interrupted_and_resumed(self) -> None:
        self.trouble[14] = KeyboardInterrupt()
        with self.assertRaises(KeyboardInterrupt):
            self.run_it()
        self.assertEqual(self.log[-1].split()[-1], "ends")
        done = {path: path.stat().st_mtime_ns for path in self.files()}
        self.assertTrue(0 < len(done) < 20)
        before = len(self.measured())
        self.assertEqual(self.run_it(), 0)
        self.assertEqual(len(self.files()), 20)
        for path, changed in done.items():
            self.assertEqual(path.stat().st_mtime_ns, changed)
        again = len(self.measured()) - before
        self.assertEqual(again, 20 - len(done))
        self.assertIn("done: 20 of 20", runner.plan_text(
            self.toy(), runner.todo(self.toy(), self.dir / "out")))

    def test_half_a_file_is_measured_again(self) -> None:
        self.run_it()
        path = self.files()[3]
        path.write_text(path.read_text()[:100])
        self.log.clear()
        self.assertEqual(self.run_it(), 0)
        self.assertEqual(len(self.measured()), 1)
        json.loads(path.read_text())

    def test_more_rounds_keep_the_old_ones(self) -> None:
        self.run_it()
        self.log.clear()
        self.run_it(self.toy("rounds = 5", "rounds = 6"))
        self.assertEqual(len(self.measured()), 4)

    def test_guest_that_dies_once(self) -> None:
        self.trouble[2] = ToolError("guest went away")
        self.assertEqual(self.run_it(), 0)
        self.assertEqual(self.log[2], "stock ends")
        self.assertEqual(len(self.files()), 20)

    def test_guest_that_always_dies(self) -> None:
        """It does not stop the others, and is tried again next time."""
        self.trouble.update({1: ToolError("guest went away\nlast lines"),
                             3: ToolError("guest went away again")})
        self.assertEqual(self.run_it(), 1)
        failed = [path for path in self.files() if path.suffix == ".failed"]
        self.assertEqual(len(failed), 1)
        self.assertIn("again", json.loads(failed[0].read_text())["error"])
        self.assertEqual(len(self.files()), 20)
        self.assertEqual(self.run_it(), 0)
        self.assertFalse(failed[0].exists())
        self.assertEqual(len(self.files()), 20)

    def test_another_way_of_measuring(self) -> None:
        self.run_it()
        self.log.clear()
        for old, new, text in (
                ("runtime = 3", "runtime = 4", "runtime_s = 3, now it is 4"),
                ("poll-weight = 2", "poll-weight = 3", "properties = ")):
            with self.assertRaisesRegex(ToolError, text):
                self.run_it(self.toy(old, new))
        self.assertEqual(self.log, [])

    def test_full_disk(self) -> None:
        """Nothing half-written stays; what is there is kept."""
        real = os.fsync
        calls: List[int] = []

        def fsync(fd: int) -> None:
            calls.append(fd)
            if len(calls) == 3:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(fd)

        with mock.patch.object(runner.os, "fsync", fsync):
            with self.assertRaisesRegex(ToolError, "No space left on device; "
                                        "make room"):
                self.run_it()
        self.assertEqual(len(self.files()), 2)
        self.assertEqual(self.log[-1].split()[-1], "ends")
        self.assertEqual(self.run_it(), 0)

    def test_two_at_once(self) -> None:
        """The second changes nothing and says why."""
        with runner.alone(self.dir / "out"):
            with self.assertRaisesRegex(ToolError, "out is in use by another"):
                self.run_it()
        self.assertEqual(self.log, [])
        self.assertEqual(self.files(), [])
        self.assertEqual(self.run_it(), 0)

    def test_directory_that_cannot_be_used(self) -> None:
        (self.dir / "out").touch()
        with self.assertRaisesRegex(ToolError, "out cannot be used: File ex"):
            self.run_it()

    def test_little_memory(self) -> None:
        """One guest at a time; the other one is booted when it is due."""
        with mock.patch.object(pool, "available_mib", lambda: 600):
            self.assertEqual(self.run_it(), 0)
        self.assertNotIn("stock goes on", self.log)
        self.assertEqual(self.log[2:5], ["stock stops", "stock ends",
                                         "w2 randread 1"])

    def test_capacity(self) -> None:
        self.assertEqual(pool.capacity(4096, 64 * 1024), 11)
        self.assertEqual(pool.capacity(4096, 1024), 1)


class FakeFio(Temp):
    """A stand-in for fio that runs a script."""

    def setUp(self) -> None:
        super().setUp()
        program = self.dir / "bin" / "fio"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\n. {self.dir}/script\n')
        program.chmod(0o755)
        patch = mock.patch.dict(
            os.environ, PATH=f"{program.parent}:{os.environ['PATH']}")
        patch.start()
        self.addCleanup(patch.stop)


class Client(FakeFio):
    """fio's client on the host."""

    def fio(self, script: str, limit_s: float = 20) -> Dict[str, Any]:
        (self.dir / "script").write_text(script)
        (self.dir / "answer").write_text(json.dumps(recorded()["fio"]))
        with client.Client(self.dir, JOB) as one:
            return one.report(client.time.monotonic() + limit_s)

    def changed(self, name: str, value: Any) -> None:
        data = recorded()["fio"]
        data["client_stats"][0][name] = value
        with self.assertRaises(client.FioError) as caught:
            client.parse("a line\n" + json.dumps(data))
        self.text = str(caught.exception)

    def test_figures(self) -> None:
        self.assertEqual(self.fio("cp answer out.json"), recorded()["fio"])

    def test_job_and_socket(self) -> None:
        self.fio('echo "$@" >args; cp answer out.json')
        args = (self.dir / "args").read_text()
        self.assertIn("--client=sock:fio job.fio", args)
        self.assertEqual((self.dir / "job.fio").read_text(), JOB)

    def test_no_connection(self) -> None:
        with self.assertRaisesRegex(client.FioError, "ended with 1: refused"):
            self.fio("echo refused; exit 1")

    def test_no_figures(self) -> None:
        for script in (":", "echo x >out.json", "echo '{' >out.json",
                       "echo '{\"client_stats\": []}' >out.json"):
            with self.assertRaisesRegex(client.FioError, "no figures"):
                self.fio(script)

    def test_does_not_end(self) -> None:
        with self.assertRaisesRegex(client.FioError, "not done in time"):
            self.fio("exec sleep 100", 0.3)

    def test_job_with_an_error(self) -> None:
        self.changed("error", 5)
        self.assertIn("fio reports error 5", self.text)
        self.assertIn("a line", self.text)

    def test_job_without_io(self) -> None:
        for part in ("read", "write"):
            data = recorded()["fio"]["client_stats"][0][part]
            if data["total_ios"]:
                self.changed(part, {**data, "total_ios": 0})
        self.assertIn("did no I/O", self.text)


VIRSH = """\
#!/bin/sh
echo "$3" >>{here}/asked
case "$3" in
*query-iothreads*)
    echo '{{"return": [{{"id": "iothread1", "thread-id": 7}}]}}' ;;
*query-cpus-fast*) echo '{{"return": [{{"thread-id": 8}}]}}' ;;
*query-version*)
    echo '{{"return": {{"qemu": {{"major": 11, "minor": 0, "micro": 1}}}}}}' ;;
*99*) echo '{{"error": {{"desc": "not in range [1, 63]"}}}}' ;;
*) echo '{{"return": {{}}}}' ;;
esac
"""
# Takes the place of ssh with -L: serves the socket, and says nothing
SSH = """\
#!/usr/bin/env python3
import socket, sys, time
if sys.argv[-1] == "uname -r":
    print("6.1.0")
    sys.exit()
assert "-tt" in sys.argv and "fio --server=ip:127.0.0.1,8765" in sys.argv
path = sys.argv[sys.argv.index("-L") + 1].split(":")[0]
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen(5)
kept = []
while True:
    kept.append(server.accept())
"""


class Remote(FakeFio):
    """A running domain, by stand-ins for virsh and ssh."""

    def setUp(self) -> None:
        super().setUp()
        for name, text in (("virsh", VIRSH.format(here=self.dir)),
                           ("ssh", SSH)):
            path = self.dir / "bin" / name
            path.write_text(text)
            path.chmod(0o755)
        (self.dir / "toy.pid").write_text(f"{os.getpid()}\n")
        patch = mock.patch.object(remote, "PID_DIR", self.dir)
        patch.start()
        self.addCleanup(patch.stop)

    def matrix_of_weights(self) -> matrix.Matrix:
        toy = self.toy('qemu = "A"',
                       'qemu = "B"\nproperties = { poll-weight = 3 }')
        return toy.only(["randread-*"])

    def test_all(self) -> None:
        """Each variant sets its properties before it is measured."""
        (self.dir / "answer").write_text(json.dumps(recorded()["fio"]))
        (self.dir / "script").write_text(
            f"[ \"$1\" = --version ] || cp {self.dir}/answer out.json")
        toy = self.matrix_of_weights()
        domain = remote.Domain("toy")
        remote.check(toy, domain, ["/dev/vdb", "/dev/vdc"])
        program = domain.program()
        self.assertEqual(program.version, "11.0.1")
        bench = Bench(Setup("x86_64", self.dir, self.dir, (), "tcg"), toy, 2,
                      (), {"B": program}, False)
        with remote.Connection("me@guest") as connection, self.quietly():
            failed = runner.Runner(
                bench, self.dir / "out", host.KvmExits("tcg"),
                lambda bench, variant, hardware: remote.RemoteGuest(
                    domain, connection, ["/dev/vdb", "/dev/vdc"], 64,
                    variant)).run()
            directory = connection.directory
        self.assertEqual(failed, 0)
        self.assertFalse(directory.exists())
        sets = [json.loads(line)["arguments"] for line in
                (self.dir / "asked").read_text().splitlines()
                if "qom-set" in line]
        self.assertEqual(sets[0], {"path": "/objects/iothread1",
                                   "property": "poll-weight", "value": 3})
        self.assertEqual([one["value"] for one in sets[:4]], [3, 2, 2, 3])
        files = list((self.dir / "out/runs").rglob("*.json"))
        self.assertEqual(len(files), 10)
        self.assertIn("filename=/dev/vdb:/dev/vdc",
                      json.loads(files[0].read_text())["job"])

    def test_value_that_is_refused(self) -> None:
        toy = self.matrix_of_weights().variants[0]
        bad = matrix.Variant(toy.name, "B", (("poll-weight", 99),))
        with self.assertRaisesRegex(ToolError, r"qom-set: not in range"):
            remote.Domain("toy").apply(bad)

    def test_what_a_running_guest_cannot_do(self) -> None:
        domain = remote.Domain("toy")
        good = self.matrix_of_weights()
        for toy, disk_names, text in (
                (self.toy(), ["/dev/vdb"], "has one QEMU"),
                (self.toy('qemu = "A"', 'qemu = "B"'), ["/dev/vdb"],
                 "set the same properties"),
                (good, ["/dev/vdb"], "1 IOThreads and 2 disks; the domain")):
            with self.assertRaisesRegex(MatrixError, text):
                remote.check(toy, domain, disk_names)

    def test_no_domain_or_no_server(self) -> None:
        with self.assertRaisesRegex(ToolError, "is the domain other running"):
            remote.Domain("other")
        (self.dir / "bin/ssh").write_text("#!/bin/sh\necho denied; exit 255")
        with remote.Connection("me@guest") as connection:
            with self.assertRaisesRegex(ToolError, "no fio server: denied"):
                connection.ensure()


class Disks(Temp):

    def made(self, count: int = 2) -> List[Path]:
        with self.quietly():
            return disks.made(self.dir / "work", count, 1)

    def test_made_once(self) -> None:
        paths = self.made()
        self.assertEqual([path.stat().st_size for path in paths],
                         [disks.MIB] * 2)
        self.assertNotEqual(paths[0].read_bytes()[:512], bytes(512))
        before = paths[0].stat().st_mtime_ns
        self.made(3)
        self.assertEqual(paths[0].stat().st_mtime_ns, before)

    def test_not_enough_space(self) -> None:
        with mock.patch.object(disks, "_free_mib", lambda path: 1):
            with self.assertRaisesRegex(ToolError, "need 2 MiB.* 1 are free"):
                self.made()
        self.assertEqual(list((self.dir / "work").iterdir()), [])

    def test_space_that_is_gone_meanwhile(self) -> None:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with mock.patch.object(disks.os, "posix_fallocate", side_effect=full):
            with self.assertRaisesRegex(ToolError, "No space left.*WORK="):
                self.made()
        self.assertEqual(list((self.dir / "work").iterdir()), [])

    def test_no_device(self) -> None:
        path = self.dir / "file"
        path.touch()
        for name, text in ((path, "no block device"),
                           (self.dir / "none", "No such file")):
            with self.assertRaisesRegex(ToolError, text):
                disks.given([str(name)], 1, 1, True)

    def test_too_few_or_twice(self) -> None:
        with self.assertRaisesRegex(ToolError, "needs 2 disks, DISKS names 1"):
            disks.given(["/dev/null"], 2, 1, True)
        with self.assertRaisesRegex(ToolError, "names /dev/null twice"):
            disks.given(["/dev/null", "/dev/../dev/null"], 2, 1, True)

    def test_mounted_partitioned_or_held(self) -> None:
        path = Path("/dev/toy")
        entry = self.dir / "8:0"
        (entry / "holders").mkdir(parents=True)
        disks.check_sysfs(path, entry)
        (entry / "holders/md0").mkdir()
        with self.assertRaisesRegex(ToolError, "is used by md0"):
            disks.check_sysfs(path, entry)
        (entry / "toy1").mkdir()
        (entry / "toy1/partition").touch()
        with self.assertRaisesRegex(ToolError, r"has partitions \(toy1\)"):
            disks.check_sysfs(path, entry)
        (entry / "partition").touch()
        with self.assertRaisesRegex(ToolError, "is a partition"):
            disks.check_sysfs(path, entry)

    def test_the_disk_of_this_machine(self) -> None:
        """Whatever holds the root file system is refused."""
        for line in Path("/proc/self/mounts").read_text().splitlines():
            device = line.split()[0]
            if os.access(device, os.R_OK) and Path(device).is_block_device():
                break
        else:
            self.skipTest("no mounted block device can be read here")
        with self.assertRaisesRegex(
                ToolError, "is mounted|is a partition|partitions|is used by"):
            disks.given([device], 1, 1, True)

    def test_mounts(self) -> None:
        text = ("23 1 254:0 / / rw,relatime - ext4 /dev/root rw\n"
                "24 23 0:22 / /proc rw - proc none rw\n"
                "25 23 254:16 /a /mnt\\040b rw - ext4 /dev/vdb rw\n")
        self.assertEqual(disks.mounted_at("254:16", text), "/mnt\\040b")
        self.assertEqual(disks.mounted_at("54:0", text), "")


# As mpstat prints it, with fewer kinds
MPSTAT = """\
{"sysstat": {
    "hosts": [
        {
            "nodename": "vm",
            "statistics": [
                {
                    "timestamp": "18:42:25",
                    "cpu-load": [
                        {"cpu": "all", "usr": 30.69, "iowait": 0.00, \
"steal": 0.00, "idle": 40.00}
                    ]
                },
                {
                    "timestamp": "18:42:26",
                    "cpu-load": [
                        {"cpu": "all", "usr": 22.77, "iowait": 2.00, \
"steal": 6.93, "idle": 60.00}
                    ]
                }
            ]
        }
    ]
}}
"""


class Host(Temp):

    def test_threads_of_a_process(self) -> None:
        start = host.all_threads_cpu_ns(os.getpid())[os.getpid()]
        while host.all_threads_cpu_ns(os.getpid())[os.getpid()] == start:
            pass

    def test_threads_without_a_role_are_other(self) -> None:
        seen = host.Observation(1, {7: "iothreads", 8: "vcpus", 9: "vcpus"},
                                host.KvmExits("tcg"))
        self.assertEqual(seen._by_role({7: 1, 8: 2, 9: 3, 10: 4, 11: 5}),
                         {"iothreads": 1, "vcpus": 5, "other": 9})

    def test_ticks(self) -> None:
        self.assertEqual(
            host.cpu_ticks("cpu  10 1 20 300 40 5 6 7 8 9\ncpu0 1\n"),
            {"all": 389, "busy": 49})

    def test_mpstat(self) -> None:
        self.assertEqual(host.mpstat_mean(MPSTAT), {
            "usr": 26.73, "iowait": 1.0, "steal": 3.46, "idle": 50.0})
        with self.assertRaises(IndexError):
            host.mpstat_mean('{"sysstat": {"hosts": [{"statistics": []}]}}')

    def tracefs(self) -> Path:
        event = self.dir / "instances" / host.TRACE_INSTANCE / \
            "events/kvm/kvm_exit"
        event.mkdir(parents=True)
        (event / "hist").write_text(
            "# event histogram\n#\n\n"
            "{ common_pid:       4711 } hitcount:       1030\n"
            "{ common_pid:       4712 } hitcount:          7\n\n"
            "Totals:\n    Hits: 1037\n")
        return event

    def test_exits(self) -> None:
        event = self.tracefs()
        exits = host.KvmExits("kvm", self.dir)
        self.assertEqual(exits.why, "")
        self.assertEqual(exits.counts(), {4711: 1030, 4712: 7})
        self.assertEqual((event / "trigger").read_text(),
                         "hist:keys=common_pid\n")

    def test_no_exits(self) -> None:
        self.assertIn("no KVM", host.KvmExits("tcg").why)
        exits = host.KvmExits("kvm", self.dir / "none")
        self.assertIn("No such file", exits.why)
        self.assertIsNone(exits.counts())
        exits.close()

    def test_siblings_come_last(self) -> None:
        for cpu, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
            path = self.dir / f"cpu{cpu}/topology/thread_siblings_list"
            path.parent.mkdir(parents=True)
            path.write_text(f"{siblings}\n")
        self.assertEqual(host.cpus_by_core([0, 1, 2, 3], self.dir),
                         [0, 1, 2, 3])
        self.assertEqual(host.cpus_by_core([0, 2, 3], self.dir), [0, 2, 3])
        (self.dir / "cpu1/topology/thread_siblings_list").write_text("0-1")
        self.assertEqual(host.cpus_by_core([0, 1, 2], self.dir), [0, 1, 2])
        self.assertEqual(host.parse_cpus("0,4-6\n"), [0, 4, 5, 6])

    def test_pinning(self) -> None:
        pinned: Dict[int, Any] = {}
        with mock.patch.object(host.os, "sched_getaffinity",
                               lambda pid: {0, 1, 2, 3}), \
                mock.patch.object(host.os, "sched_setaffinity",
                                  pinned.__setitem__):
            self.assertIn("3 of 4", host.pin([100, 101, 102]))
            self.assertEqual(len(pinned), 3)
            self.assertEqual(len(set(map(frozenset, pinned.values()))), 3)
            pinned.clear()
            self.assertIn("need 5 CPUs, there are 4",
                          host.pin([100, 101, 102, 103]))
            self.assertEqual(pinned, {})

    def test_idle_states(self) -> None:
        self.assertEqual(host.c_states(self.dir), "none (driver: none)")
        for number, (name, latency, off) in enumerate(
                (("POLL", 0, 0), ("C6", 133, 1))):
            state = self.dir / f"cpu0/cpuidle/state{number}"
            state.mkdir(parents=True)
            for file, value in (("name", name), ("latency", latency),
                                ("disable", off)):
                (state / file).write_text(f"{value}\n")
        (self.dir / "cpuidle").mkdir()
        (self.dir / "cpuidle/current_driver").write_text("intel_idle\n")
        self.assertEqual(host.c_states(self.dir),
                         "intel_idle: POLL (0 us), C6 (133 us, off)")


class Tool(Temp):
    """The command line."""

    def fio(self, *words: object, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-B", str(ROOT / "tools/fio"),
             *map(str, words)], cwd=self.dir, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False)
        self.assertEqual(done.returncode, status, done.stdout)
        self.assertNotIn("Traceback", done.stdout)
        return done.stdout

    def test_dry_run(self) -> None:
        self.toy()
        said = self.fio("--matrix", "toy.toml", "--dry-run", "--out", "out")
        self.assertEqual(said, PLAN)
        self.assertEqual([path.name for path in self.dir.iterdir()],
                         ["toy.toml"])

    def test_wrong_words(self) -> None:
        self.assertIn("none of: ci, published, quick",
                      self.fio("--matrix", "x", "--dry-run", status=1))
        self.assertIn("not in range", self.fio("--rounds", "0", "--dry-run",
                                               status=1))
        self.assertIn("no report: ", self.fio("--report", ".", status=1))


class Report(Temp):
    """bench/fioreport.py, from the files of a real run."""

    def setUp(self) -> None:
        super().setUp()
        have = subprocess.run([python(), "-c", "import numpy, matplotlib"],
                              stderr=subprocess.DEVNULL, check=False)
        if have.returncode:
            self.skipTest(f"{python()} has no numpy or no matplotlib")

    def copy(self, change: Any = None) -> None:
        """The data of the committed report, without the report."""
        for path in RESULTS.rglob("*.json"):
            data = json.loads(path.read_text())
            if change:
                data = change(path, data)
            if data is None:
                continue
            new = self.dir / path.relative_to(RESULTS)
            new.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(data))

    def report(self, status: int = 0) -> str:
        """The whole report, by the program that tools/fio runs."""
        return self._report(status, str(ROOT / "bench/fioreport.py"))

    def words(self, status: int = 0) -> str:
        """The report without its plots, which take most of the time."""
        return self._report(status, "-c", WORDS, str(ROOT / "bench"))

    def _report(self, status: int, *program: str) -> str:
        done = subprocess.run(
            [python(), "-B", *program, str(self.dir)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False)
        self.assertEqual(done.returncode, status, done.stdout)
        self.assertNotIn("Traceback", done.stdout)
        return done.stdout or (self.dir / "report.md").read_text()

    def test_committed_report(self) -> None:
        """The same data, the same words; the plots' bytes depend on the
        version of matplotlib."""
        self.copy()
        self.words()
        for name in ("report.md", "report.html"):
            self.assertEqual((self.dir / name).read_text(),
                             (RESULTS / name).read_text())
        for path in RESULTS.glob("jobs/*"):
            self.assertEqual((self.dir / "jobs" / path.name).read_text(),
                             path.read_text())

    def test_twice_the_same_bytes(self) -> None:
        """And every link leads somewhere."""
        self.copy()
        self.report()
        self.links()
        first = {path: path.read_bytes() for path in self.dir.rglob("*.*")}
        self.report()
        second = {path: path.read_bytes() for path in self.dir.rglob("*.*")}
        self.assertEqual(first, second)
        self.assertTrue([path for path in first if path.suffix == ".svg"])

    def links(self) -> None:
        text = (self.dir / "report.html").read_text()
        links = re.findall(r'(?:href|src)="([^"]+)"', text)
        runs = {str(path.relative_to(RESULTS))
                for path in RESULTS.glob("runs/*/*.json")}
        self.assertEqual(runs, runs & set(links))
        for link in links:
            if link.startswith("#"):
                self.assertIn(f'id="{link[1:]}"', text)
            else:
                self.assertTrue((self.dir / link).is_file(), link)

    def faster(self, factor: float, rounds: int = 5) -> Any:
        """The series' IOPS are those of stock, times a factor."""
        def change(path: Path, data: Dict[str, Any]) -> Any:
            if "round" not in data:
                return {**data, "rounds": rounds} if "rounds" in data else data
            if data["round"] > rounds:
                return None
            base = json.loads(path.with_name(
                f"stock.{data['round']}.json").read_text())
            job = copy.deepcopy(base["fio"])
            if data["variant"] == "series-w3":
                for part in ("read", "write"):
                    job["client_stats"][0][part]["iops"] *= factor
            return {**data, "fio": job, "host": base["host"]}
        return change

    def test_difference(self) -> None:
        self.copy(self.faster(1.10))
        self.assertIn("**+10.0 %** *[+10.0, +10.0]*", self.words())

    def test_loss_is_red(self) -> None:
        self.copy(self.faster(0.90))
        self.words()
        self.assertIn('<span class="bad">-10.0 %</span>',
                      (self.dir / "report.html").read_text())

    def test_difference_below_the_noise(self) -> None:
        self.copy(self.faster(1.02))
        text = self.words()
        self.assertIn("*+2.0 %* *[+2.0, +2.0]*", text)
        self.assertNotIn("**+2.0 %**", text)

    def test_too_few_rounds(self) -> None:
        self.copy(self.faster(1.10, rounds=4))
        text = self.words()
        self.assertIn("*+10.0 %*", text)
        self.assertNotIn("**+10.0 %**", text)

    def test_runs_that_failed(self) -> None:
        gone = next(RESULTS.glob("runs/*/series-w3.3.json"))
        self.copy(lambda path, data: None if path == gone else data)
        failed = (self.dir / gone.relative_to(RESULTS)).with_suffix(".failed")
        failed.write_text('{"format": 1, "error": "guest went away"}')
        text = self.words()
        self.assertRegex(text, r"1 of \d+ runs are missing")
        self.assertIn("guest went away", text)

    def test_cells_that_were_not_run(self) -> None:
        """The report is of the others, and complete."""
        self.copy(lambda path, data: None if "/randwrite-" in str(path)
                  else data)
        text = self.words()
        self.assertIn("2 cells of the matrix have not been run", text)
        self.assertNotIn("are missing", text)

    def test_broken_files(self) -> None:
        self.assertIn("matrix.json: No such file", self.report(1))
        for broken in ({}, {"format": 2}, {"format": 1, "fio": {}}):
            self.copy(lambda path, data: broken if path == RECORDED else data)
            self.assertIn("has no figures", self.words(1))


if __name__ == "__main__":
    unittest.main()
