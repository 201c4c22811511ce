# SPDX-License-Identifier: GPL-2.0-or-later
"""fio's client on the host: sends a job to a server, brings figures back.

The server is reached over a Unix socket, whatever lies behind it: QEMU's end
of a virtio-serial port, or ssh."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Optional, Type

from ..common import ToolError

SOCKET = "fio"  # in the directory of the connection
PORT = 8765     # fio's own
# To get a connection; and beyond the time that fio is asked to run.
CONNECT_LIMIT_S = 30
JOB_LIMIT_S = 120


class FioError(ToolError):
    """fio did not do what was asked."""


def program() -> str:
    found = shutil.which("fio")
    if found is None:
        raise FioError("fio is not installed; tools/deps installs it")
    return found


def version() -> str:
    return subprocess.run([program(), "--version"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.strip()


class Client:
    """One run of the client; a context manager that leaves nothing behind.

    The directory holds the socket; short names, because the path of a
    Unix socket has 107 bytes at most and fio reports it as the host name."""

    def __init__(self, directory: Path, job: str) -> None:
        self.directory = directory
        self._job = directory / "job.fio"
        self._out = directory / "out.json"
        self._log = directory / "log"
        self._job.write_text(job)
        self._out.unlink(missing_ok=True)
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [program(), f"--client=sock:{SOCKET}", self._job.name,
                 "--output-format=json", f"--output={self._out.name}",
                 "--eta=never"],
                cwd=directory, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def ended(self) -> bool:
        return self.process.poll() is not None

    def report(self, deadline: float) -> Dict[str, Any]:
        """Wait for the end; what fio reports of the job."""
        limit_s = max(0.1, deadline - time.monotonic())
        try:
            status = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise FioError("fio's client is not done in time; it said: "
                           f"{self.said()}") from None
        text = self._out.read_text() if self._out.exists() else ""
        if status != 0:
            raise FioError(f"fio's client ended with {status}: {self.said()}"
                           f"{notes(text)}")
        return parse(text)

    def said(self) -> str:
        text = self._log.read_text(errors="replace").strip()
        return text or "(nothing)"


def notes(text: str) -> str:
    """What fio writes around its JSON: errors of the server."""
    start = re.search(r"^\{", text, re.MULTILINE)
    lines = (text[:start.start()] if start else text).strip().splitlines()
    return "".join(f"\n{line}" for line in lines[-20:])


def parse(text: str) -> Dict[str, Any]:
    """The JSON of the client, when it has figures of one job without
    error."""
    start = re.search(r"^\{", text, re.MULTILINE)
    try:
        report: Dict[str, Any] = json.loads(text[start.start():]
                                            if start else "")
        job = job_of(report)
        status = job["error"]
        ios = job["read"]["total_ios"] + job["write"]["total_ios"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise FioError("fio has printed no figures"
                       f"{notes(text)} ({error!r})") from None
    if status:
        raise FioError(f"fio reports error {status} of {job['jobname']}"
                       f"{notes(text)}")
    if not ios:
        raise FioError(f"fio did no I/O in {job['jobname']}{notes(text)}")
    return report


def job_of(report: Dict[str, Any]) -> Dict[str, Any]:
    """The job of a report; group_reporting leaves one."""
    jobs: List[Dict[str, Any]] = report["client_stats"]
    if len(jobs) != 1:
        raise ValueError(f"{len(jobs)} jobs instead of one")
    return jobs[0]
