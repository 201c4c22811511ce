# SPDX-License-Identifier: GPL-2.0-or-later
"""Source packages of Debian, fetched with apt, which checks their signatures.

The suite need not be the one that this machine runs: apt-suite makes a
configuration of its own for it.  A base names its package in [debian-source].
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Iterable, List, Optional

from .common import ROOT, Base, ToolError, Unavailable, clean_env, run

SECTION = "debian-source"
APT_SUITE = ROOT / "tools/polltools/apt-suite"
TIMEOUT_S = 15
OPTIONS = ("-o", f"Acquire::http::Timeout={TIMEOUT_S}",
           "-o", f"Acquire::https::Timeout={TIMEOUT_S}",
           "-o", "Acquire::Retries=1")


def suites(base: Base) -> List[str]:
    """The suite of a base, and those that bring its updates."""
    suite = base.config[SECTION]["suite"]
    return [suite, f"{suite}-updates", f"{suite}-security"]


def configuration(base: Base, *options: str) -> Path:
    """The configuration of apt for the suites of a base."""
    done = run([APT_SUITE, *options, *suites(base)], check=False,
               env=clean_env())
    if done.returncode != 0:
        raise Unavailable(done.stderr.decode(errors="replace").strip())
    return Path(done.stdout.decode().strip())


def reason(done: "subprocess.CompletedProcess[bytes]") -> str:
    """Why apt failed, in one line."""
    text = (done.stdout + done.stderr).decode(errors="replace")
    lines = [line for line in text.splitlines() if line[:2] == "E:"]
    return lines[0] if lines else "apt failed"


def _apt(program: str, conf: Path, *words: str, cwd: Optional[Path] = None
         ) -> str:
    """Run apt; returns what it prints."""
    try:
        done = run([program, "-c", conf, *OPTIONS, "-q", *words], cwd=cwd,
                   env=clean_env(), check=False)
    except ToolError as error:
        raise Unavailable(str(error)) from error
    if done.returncode != 0:
        raise Unavailable(reason(done))
    return done.stdout.decode(errors="replace")


def upstream(version: str) -> str:
    """A Debian version without epoch and revision."""
    return re.sub(r"-[^-]*$", "", re.sub(r"^\d+:", "", version))


def wanted(base: Base) -> str:
    """The upstream version of the package, as Debian calls it."""
    section = base.config[SECTION]
    match = re.fullmatch(rf"{re.escape(section['package'])}_(.+)\.orig"
                         r"\.tar\.\w+", section["orig"])
    if match is None:
        raise ToolError(f"bases/{base.name}: orig = {section['orig']} is not "
                        "the name of an original archive of the package")
    return match[1]


def newest(versions: Iterable[str]) -> str:
    """The highest of some versions, as dpkg compares them."""
    best = ""
    for version in versions:
        if not best or is_newer(version, best):
            best = version
    return best


def is_newer(version: str, other: str) -> bool:
    return run(["dpkg", "--compare-versions", version, "gt", other],
               check=False).returncode == 0


class Archive:
    """What the archive of Debian has of the package of a base now."""

    def __init__(self, base: Base) -> None:
        self.package = base.config[SECTION]["package"]
        self.orig = base.config[SECTION]["orig"]
        self.conf = configuration(base, "--source")
        _apt("apt-get", self.conf, "-o", "APT::Update::Error-Mode=any",
             "update")
        self.version = self._choose(base)

    def _choose(self, base: Base) -> str:
        """The newest revision of the version that the series is made for."""
        text = _apt("apt-cache", self.conf, "showsrc", "--only-source",
                    self.package)
        versions = re.findall(r"^Version: (\S+)$", text, re.MULTILINE)
        fit = [version for version in versions
               if upstream(version) == wanted(base)]
        if not fit:
            has = newest(versions)
            found = upstream(has) if has else "nothing"
            raise Unavailable(
                f"Debian {base.config[SECTION]['suite']} has {found} of "
                f"{self.package} now, and {wanted(base)} is wanted, which is "
                "the version that was tested")
        return newest(fit)

    def download(self, directory: Path, *only: str) -> None:
        """Fetch the files of the package; 'only' limits which."""
        _apt("apt-get", self.conf, "source", "--download-only",
             "--only-source", *only, f"{self.package}={self.version}",
             cwd=directory)
