# SPDX-License-Identifier: GPL-2.0-or-later
"""Configure and build QEMU.

Every tree that is built is called <somewhere>/src and its build directory is
<somewhere>/obj*, so that all of them are compiled with the same relative
paths and share what the compiler cache holds.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, Sequence

from . import prepare, repo
from .arch import ARCHES, host
from .common import BUILD, Base, ToolError, say, shown

PROGRAMS = ("qemu-img", "qemu-io", "qemu-nbd")
# The same words for every tree and clone, because they are compiled in.
FIRMWARE = "/firmware"
FIRMWARE_PATH = ":".join(f"{FIRMWARE}/{name}" for name in
                         ("unpacked", "source", "qemu", "seabios"))
# In a build directory: the command that configured it.
STAMP = ".configured-with"
# Without a terminal one line of progress per so many of ninja's is enough.
QUIET_EVERY = 100


def targets() -> List[str]:
    """What there can be an emulator for: this machine and the guests."""
    return list(dict.fromkeys([host(), *ARCHES]))


def emulator(arch: str = "") -> str:
    """The system emulator for a kind of guest, by default this machine's."""
    return f"qemu-system-{arch or host()}"


def python() -> str:
    """On Debian the modules that configure wants belong to this python."""
    debian = Path("/usr/bin/python3")
    return str(debian) if debian.exists() else "python3"


def environment(base: Base) -> Dict[str, str]:
    """The environment of compiler and configure."""
    env = dict(os.environ)
    env.setdefault("CCACHE_DIR", str(BUILD / "ccache"))
    env.setdefault("CCACHE_MAXSIZE", "3G")
    env.update(CCACHE_BASEDIR=str(base.build), CCACHE_NOHASHDIR="1")
    return env


def compiler() -> str:
    return "ccache gcc" if shutil.which("ccache") else "gcc"


def link_firmware(base: Base, obj: Path) -> None:
    """A QEMU that is not installed looks for what configure was told in its
    own directory; every place that has firmware is linked there."""
    places = {"unpacked": BUILD / "firmware", "source": base.src / "pc-bios",
              "qemu": Path("/usr/share/qemu"),
              "seabios": Path("/usr/share/seabios")}
    for name, place in places.items():
        link = obj / f"qemu-bundle{FIRMWARE}/{name}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(place)


def system_options() -> List[str]:
    """A small QEMU with everything that block I/O and the tests need.

    All targets, whichever is built: they share most objects, and a list of
    the targets' options is compiled into every one of them."""
    target_list = ",".join(f"{target}-softmmu" for target in targets())
    return [f"--target-list={target_list}", "--without-default-features",
            "--enable-system", "--enable-tcg", "--enable-kvm",
            "--enable-tools", "--enable-linux-io-uring", "--enable-linux-aio",
            "--enable-fdt=system", "--disable-docs", "--disable-download",
            "--disable-install-blobs", f"--firmwarepath={FIRMWARE_PATH}"]


def tools_options() -> List[str]:
    """Only what unit tests and benchmarks of the event loop need."""
    return ["--without-default-features", "--disable-system",
            "--enable-tools", "--enable-linux-io-uring", "--enable-linux-aio",
            "--disable-docs", "--disable-download",
            "--disable-install-blobs"]


def is_configured(obj: Path) -> bool:
    return (obj / STAMP).exists()


def configure(base: Base, src: Path, obj: Path, options: Sequence[str]) -> None:
    """Configure once; again only when the options change."""
    command = [str(src / "configure"), f"--cc={compiler()}",
               f"--python={python()}", *options]
    stamp = obj / STAMP
    wanted = "\n".join(command) + "\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    say(f"configuring {shown(obj)}")
    stamp.unlink(missing_ok=True)
    obj.mkdir(parents=True, exist_ok=True)
    log = obj / "configure.log"
    with log.open("wb") as file:
        done = subprocess.run(command, cwd=obj, env=environment(base),
                              stdin=subprocess.DEVNULL, stdout=file,
                              stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise ToolError(f"configure failed, {shown(log)} ends with:\n{tail}")
    link_firmware(base, obj)
    stamp.write_text(wanted)


def ninja(base: Base, obj: Path, targets: Sequence[str]) -> None:
    """Build targets; ninja shows its own progress on a terminal."""
    command = ["ninja", "-C", str(obj), *targets]
    start = time.monotonic()
    if sys.stdout.isatty():
        status = subprocess.run(command, env=environment(base),
                                check=False).returncode
    else:
        status = _ninja_quiet(command, environment(base), obj / "build.log")
    if status != 0:
        raise ToolError(f"the build in {shown(obj)} failed, see above; to see "
                        f"it again: ninja -C {shown(obj)}")
    minutes = (time.monotonic() - start) / 60
    say(f"built in {shown(obj)}: {minutes:.1f} minutes")


def _ninja_quiet(command: List[str], env: Dict[str, str], log: Path) -> int:
    """Show some of the progress, and from the first failure on everything."""
    failed = False
    with log.open("w") as file, subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            errors="replace") as process:
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            failed = failed or line.startswith(("FAILED:", "ninja: error"))
            progress = re.match(r"\[(\d+)/\d+\] ", line)
            step = int(progress[1]) if progress else 0
            if failed or (step and step % QUIET_EVERY == 0):
                print(line, end="", flush=True)
    return process.returncode


def worktree(base: Base, name: str, commit: str) -> Path:
    """build/<base>/<name>/src: another commit of the tree, to build it.

    Nothing is edited there, so it simply becomes that commit; files that do
    not differ keep their times.
    """
    tree = repo.open_tree(base)
    path = base.build / name / "src"
    tree.git("worktree", "prune")
    known = tree.text("worktree", "list", "--porcelain").splitlines()
    if f"worktree {os.path.realpath(path)}" not in known:
        shutil.rmtree(path, ignore_errors=True)
        tree.git("worktree", "add", "--quiet", "--detach", path, commit)
    repo.Repo(path).git("checkout", "--quiet", "--force", "--detach", commit)
    prepare.stand_ins(base, path)
    return path


def build_system(base: Base, stock: bool, arch: str = "") -> Path:
    """An emulator and the block tools; returns the build directory."""
    if stock:
        tree = repo.open_tree(base)
        src = worktree(base, "stock", tree.text("rev-parse", repo.BASE_TAG))
    else:
        src = base.src
    obj = src.parent / "obj"
    configure(base, src, obj, system_options())
    ninja(base, obj, [emulator(arch), *PROGRAMS])
    if stock:
        link = base.build / "obj-stock"
        if not link.is_symlink():
            link.symlink_to("stock/obj")
    return obj
