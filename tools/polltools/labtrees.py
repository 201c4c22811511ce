# SPDX-License-Identifier: GPL-2.0-or-later
"""The trees that the benchmarks compare, and their programs.

  stock   the base with the benchmarks, but without the rest of the series
  series  the base with the whole series
  peer    the base that this one names as its peer, with the benchmarks

Only the programs are built, with the tools' configuration: no emulator.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Dict, Optional, Sequence

from . import build, prepare, repo
from .common import (DEFAULT_BASE, ROOT, Base, ToolError, default_base,
                     load_base, say, shown)

VARIANTS = ("stock", "series", "peer")
RESULTS = ROOT / "bench" / "results"
# The work tree of the benchmarks: build/<base>/lab/src, built in .../obj.
NAME = "lab"
# What a patch may touch and still change nothing that it measures.
BENCH = "tests/bench/"
BESIDE = ("docs/", "MAINTAINERS", "meson.build")


def is_bench(patch: repo.Patch) -> bool:
    """Whether a patch adds a benchmark and does nothing else."""
    paths = [change.path for change in patch.changes()]
    return (any(path.startswith(BENCH) for path in paths)
            and all(path.startswith((BENCH, *BESIDE)) for path in paths))


def bench_count(patches: Sequence[repo.Patch]) -> int:
    """How many patches at the start of a series are benchmarks."""
    for count, patch in enumerate(patches):
        if not is_bench(patch):
            return count
    return len(patches)


def bench_files(patches: Sequence[repo.Patch]) -> Dict[str, str]:
    """The files that patches add to tests/bench/, with their blob ids."""
    found: Dict[str, str] = {}
    for patch in patches:
        for change in patch.changes():
            new = change.before == repo.NO_BLOB or change.path in found
            if change.path.startswith(BENCH) and new:
                found[change.path] = change.after
    return {path: blob for path, blob in found.items()
            if blob != repo.NO_BLOB}


def peer_of(base: Base) -> Base:
    """The base that this one is compared with."""
    name = base.config["base"].get("peer", "")
    if not name:
        raise ToolError(f"bases/{base.name} names no peer, so there is "
                        "nothing to compare with; use another BASE, or go "
                        "without (tools/lab --no-peer)")
    return load_base(name)


def variants_of(base: Base) -> Sequence[str]:
    """What there is to compare on this base: not every one has a peer."""
    if base.bench_only:
        raise ToolError(f"BASE={base.name} is a peer only, without the "
                        "series; leave BASE away, or name another one")
    return VARIANTS if base.config["base"].get("peer") else VARIANTS[:-1]


def iothread_monitor(base: Base) -> str:
    """The fd monitor that IOThreads of this base wait in."""
    return base.config["base"].get("iothread-monitor", "io_uring")


def results_path(base: Base, name: str) -> Path:
    """Where the figures of this base are committed."""
    suffix = "" if base.name == DEFAULT_BASE else f"-{base.name}"
    return RESULTS / f"{name}{suffix}.json"


def programs(base: Base, target: str,
             variants: Sequence[str]) -> Dict[str, Path]:
    """Build a program such as tests/bench/aio-poll-lab in each tree."""
    variants_of(base)
    made = {}
    for variant in variants:
        obj = _build_dir(base, variant, target)
        made[variant] = obj / target
        say(f"{variant}: {shown(made[variant])}")
    return made


def named_programs(wanted: argparse.Namespace,
                   target: str) -> Dict[str, Path]:
    """The programs that the user has built, of those trees that are named:
    the options --stock, --series and --peer."""
    programs = {}
    for variant in VARIANTS:
        path: Optional[Path] = getattr(wanted, variant)
        if path is None:
            continue
        if not os.access(path, os.X_OK) or path.is_dir():
            raise ToolError(f"--{variant} {path} is no program; it is made by "
                            f"'ninja {target}' in a build directory")
        programs[variant] = path.resolve()
    return programs


def _build_dir(base: Base, variant: str, target: str) -> Path:
    if variant == "stock":
        return _benches(base, target)
    if variant == "series":
        return _series(base, target)
    if variant == "peer":
        return _benches(peer_of(base), target)
    raise ToolError(f"no variant '{variant}'; there are: "
                    f"{', '.join(VARIANTS)}")


def _own_source(base: Base) -> str:
    """QEMU_SRC is a source of the base that the user works with."""
    if base.name != default_base():
        return ""
    return os.environ.get("QEMU_SRC", "")


def _benches(base: Base, target: str) -> Path:
    """The base with the benchmarks of the patch files."""
    patches, commits = prepare.series_commits(base, _own_source(base))
    count = bench_count(patches)
    if count == 0:
        raise ToolError(f"the first patch of {shown(base.patches)} is no "
                        "benchmark, so there is no program to build")
    return build_in(base, bench_tree(base, commits[count - 1]), [target])


def bench_tree(base: Base, commit: str) -> Path:
    """A work tree for benchmarks that is at this commit."""
    return build.worktree(base, NAME, commit)


def build_in(base: Base, src: Path, targets: Sequence[str]) -> Path:
    """Build programs of such a tree; returns the build directory."""
    obj = src.parent / "obj"
    build.configure(base, src, obj, build.tools_options())
    build.ninja(base, obj, targets)
    return obj


def _series(base: Base, target: str) -> Path:
    """The tree that the user works in, as it is.  When the emulator has been
    built there, most of what the program needs has been as well."""
    prepare.ensure(base, _own_source(base))
    obj = base.src.parent / "obj"
    if build.is_configured(obj):
        build.configure(base, base.src, obj, build.system_options())
    else:
        obj = base.src.parent / f"obj-{NAME}"
        build.configure(base, base.src, obj, build.tools_options())
    build.ninja(base, obj, [target])
    return obj
