# SPDX-License-Identifier: GPL-2.0-or-later
"""Build binary packages in a chroot of the Debian release they are for.

mmdebstrap makes the chroot, runs the build in it and removes it, as root or
in a user namespace.  Nothing is installed on this machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from shlex import quote
from typing import List, Sequence

from . import aptsource, guestimage
from .common import ROOT, Base, ToolError, Unavailable, say, shown
from .debpackage import Dsc

SCRIPT = ROOT / "tools/polltools/build-in-chroot"
# The one that Debian's packaging cannot do without on a PC.
ALWAYS = "x86"
# Packages called qemu-system-* that are no emulators, or are left out (xen).
OTHERS = ("common", "data", "gui", "xen")


def build(base: Base, dsc: Dsc, systems: Sequence[str]) -> None:
    """Build the packages and put them beside the source package."""
    chosen = _systems(dsc, systems)
    if not shutil.which("mmdebstrap"):
        raise ToolError("mmdebstrap is not installed; tools/deps guest "
                        "installs it")
    out = base.build / ".deb.binary"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    start = time.monotonic()
    say(f"building {', '.join(chosen) or 'all system emulators'} and the "
        f"tools in a chroot of {base.config[aptsource.SECTION]['suite']}; "
        "this takes from half an hour to hours")
    try:
        _run(base, dsc, chosen, out)
        made = sorted(out.glob("*.deb"))
        if not made:
            raise ToolError("the build has made no package, see above")
        for path in out.iterdir():
            path.replace(dsc.path.with_name(path.name))
    finally:
        shutil.rmtree(out, ignore_errors=True)
    say(f"built in {(time.monotonic() - start) / 60:.1f} minutes, in "
        f"{shown(dsc.path.parent)}:")
    for path in made:
        say(f"  {path.name}")


def _systems(dsc: Dsc, systems: Sequence[str]) -> List[str]:
    """The emulators to build; none: all of them."""
    names = re.findall(r"\bqemu-system-([a-z0-9]+)(?![-\w])",
                       dsc.field("Binary"))
    known = [name for name in names if name not in OTHERS]
    for name in systems:
        if name not in known:
            raise ToolError(f"there is no package qemu-system-{name}; there "
                            f"are: {' '.join(known)}")
    if not systems or ALWAYS in systems:
        return list(systems)
    return [ALWAYS, *systems]


def _run(base: Base, dsc: Dsc, systems: Sequence[str], out: Path) -> None:
    try:
        sources = aptsource.configuration(base).with_name("sources.list")
    except Unavailable as error:
        raise ToolError(str(error)) from error
    files = [dsc.path, *(dsc.path.with_name(name) for name in dsc.files())]
    env = dict(os.environ, SYSTEMS=" ".join(systems),
               JOBS=str(os.cpu_count() or 1))
    # A chroot with all build dependencies is too large for many a /tmp.
    env.setdefault("TMPDIR", str(base.build))
    hooks = ['mkdir "$1/build"',
             *(f"upload {quote(str(path))} /build/{path.name}"
               for path in [*files, SCRIPT]),
             f'chroot "$1" sh /build/{SCRIPT.name}',
             f"sync-out /build/out {quote(str(out))}"]
    command = ["mmdebstrap", "--mode=auto", "--variant=buildd",
               "--format=null", *guestimage.proxy_options(),
               *(f"--customize-hook={hook}" for hook in hooks),
               base.config[aptsource.SECTION]["suite"], "/dev/null",
               str(sources)]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL,
                          check=False)
    if done.returncode != 0:
        raise ToolError("the build failed, see above. Without root mmdebstrap "
                        "needs user namespaces, newuidmap (package uidmap) "
                        "and a TMPDIR that others can enter; "
                        f"{shown(dsc.path)} can be given to sbuild as well")
