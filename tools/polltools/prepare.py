# SPDX-License-Identifier: GPL-2.0-or-later
"""Turn a source into the git tree build/<base>/src, and keep it up to date."""

from __future__ import annotations

import bz2
import fnmatch
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Dict, Generator, List, Tuple

from . import repo, source
from .common import Base, ToolError, say, shown


def ensure(base: Base, own: str) -> None:
    """Have a tree to build: up to date if it holds no work of the user's."""
    try:
        checkout(base, own)
    except repo.UserWork as work:
        say(f"building {shown(base.src)} as it is: {work}")


def checkout(base: Base, own: str) -> None:
    """Make or update the tree; it is complete and up to date, or untouched."""
    patches = repo.read_series(base)
    if (base.src / ".git").exists():
        if own:
            say(f"{shown(base.src)} exists, so QEMU_SRC is not used; "
                "remove the directory to start from another source")
        _update(base, patches)
    else:
        _create(base, patches, own)


def series_commits(base: Base,
                   own: str) -> Tuple[List[repo.Patch], List[str]]:
    """The patches and a commit for each, without touching the work tree."""
    patches = repo.read_series(base)
    if not patches:
        raise ToolError(f"{shown(base.patches)} has no series yet, so there "
                        "is nothing to check")
    if not (base.src / ".git").exists():
        _create(base, patches, own)
    tree = repo.open_tree(base)
    start = tree.text("rev-parse", repo.BASE_TAG)
    tip = repo.import_series(tree, start, patches)
    tree.git("update-ref", "refs/poll-weight/check", tip)
    return patches, tree.commits(start, tip)


Unpacked = Generator[Tuple[source.Source, Path], None, None]


class OtherTree(ToolError):
    """A source is not the release that it should be."""


def _unpacked(base: Base, own: str) -> Unpacked:
    """Each source, unpacked in a directory that is gone afterwards; the
    caller moves it away to keep it, or takes the next source."""
    base.build.mkdir(parents=True, exist_ok=True)
    fresh = base.build / ".src.new"
    try:
        for found in source.sources(base, own):
            shutil.rmtree(fresh, ignore_errors=True)
            say(f"unpacking {found.path.name}")
            source.unpack(found, fresh)
            yield found, fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _create(base: Base, patches: List[repo.Patch], own: str) -> None:
    if base.src.exists():
        raise ToolError(f"{shown(base.src)} is in the way and is not a git "
                        "tree; remove it")
    wanted = _entries(base.top())
    with closing(_unpacked(base, own)) as sources:
        for found, fresh in sources:
            try:
                tree = _commit_base(base, fresh, found, wanted)
            except OtherTree as other:
                say(f"  not used: {other}\n  It is kept as "
                    f"{shown(source.set_aside(found))}; name that as QEMU_SRC "
                    "if you trust it.")
                continue
            start = tree.text("rev-parse", repo.BASE_TAG)
            _settle(tree, repo.import_series(tree, start, patches))
            fresh.rename(base.src)
            break
    _report(base, patches)


def _commit_base(base: Base, path: Path, found: source.Source,
                 wanted: Dict[str, str]) -> repo.Repo:
    """One commit with a fixed id for all that the base consists of."""
    version = (path / "VERSION").read_text().strip()
    if version not in base.tested:
        say(f"  this is QEMU {version}; base {base.name} was tested on "
            f"{', '.join(base.tested)}")
    tree, tree_id = _make_tree(base, path, found)
    _compare(base, wanted, _entries(tree.text("ls-tree", tree_id)), found)
    commit = tree.text("commit-tree", tree_id,
                       stdin=f"QEMU {version}\n".encode(),
                       env=repo.BASE_IDENTITY)
    tree.git("update-ref", repo.BASE_TAG, commit)
    tree.git("update-ref", repo.SERIES_BRANCH, commit)
    return tree


def _make_tree(base: Base, path: Path,
               found: source.Source) -> Tuple[repo.Repo, str]:
    """A git repository around the files, and the id of their tree."""
    tree = repo.Repo(path)
    tree.git("init", "--quiet", "--initial-branch=series")
    _configure(tree)
    if not found.own:
        for name in _left_out(base, path):
            (path / name).unlink()
    stand_ins(base, path)
    _exclude(base, path)
    tree.git("add", "--all", "--force", "--", ".",
             *(f":(exclude,glob){pattern}" for pattern in _globs(base)))
    return tree, tree.text("write-tree")


def list_tree(base: Base, own: str) -> str:
    """The top of the base tree that a source of the user's gives."""
    with closing(_unpacked(base, own)) as sources:
        found, fresh = next(sources)
        tree, tree_id = _make_tree(base, fresh, found)
        return tree.text("ls-tree", tree_id) + "\n"


def _globs(base: Base) -> List[str]:
    """Pathspecs of what is not part of the base commit."""
    return ([pattern.replace("/*/*", "/*/**") if pattern.endswith("/*/*")
             else pattern[:-1] + "**" if pattern.endswith("/*") else pattern
             for pattern in base.words("leave-out")]
            + base.words("empty-bz2"))


def _left_out(base: Base, path: Path) -> List[str]:
    """The files of the source that the base commit leaves out."""
    patterns = base.words("leave-out")
    names = []
    for where, _, files in os.walk(path):
        for file in files:
            name = os.path.relpath(os.path.join(where, file), path)
            # '*' of fnmatch matches '/' as well, which is what is meant here.
            if any(fnmatch.fnmatchcase(name, each) for each in patterns):
                names.append(name)
    return names


def stand_ins(base: Base, path: Path) -> None:
    """Files that meson wants to see, where the source has none."""
    for name in base.words("empty-bz2"):
        file = path / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bz2.compress(b""))


def _exclude(base: Base, path: Path) -> None:
    """Keep generated and left-out files out of the user's commits."""
    lines = ["# written by 'make checkout'"]
    lines += [f"/{glob}" for glob in _globs(base)]
    lines += ["/pyvenv/", "/python/qemu.egg-info/", "/python/build/"]
    (path / ".git/info").mkdir(exist_ok=True)
    (path / ".git/info/exclude").write_text("\n".join(lines) + "\n")


def _configure(tree: repo.Repo) -> None:
    """Commits made in the tree carry the identity of this repository, and
    files are what the commits say, whatever the user's own settings are."""
    tree.git("config", "core.autocrlf", "false")
    for key, value in repo.repository_identity().items():
        tree.git("config", key, value)


def _compare(base: Base, wanted: Dict[str, str], got: Dict[str, str],
             found: source.Source) -> None:
    """The tree must be the known one, unless the user vouches for it."""
    listed = f"bases/{base.name}.tree"
    differ = sorted(name for name in set(wanted) | set(got)
                    if wanted.get(name) != got.get(name))
    if not differ:
        say(f"  the tree is QEMU {base.version} as listed in {listed}")
        return
    text = ", ".join(differ[:10]) + (", ..." if len(differ) > 10 else "")
    if not found.own:
        raise OtherTree(f"its tree is not QEMU {base.version} as listed in "
                        f"{listed}; different: {text}")
    say(f"  note: not the tree listed in {listed}; different: {text}\n"
        "  used all the same, because it is yours: what the series touches "
        "is compared by blob id")


def _entries(text: str) -> Dict[str, str]:
    pairs: List[Tuple[str, str]] = []
    for line in text.splitlines():
        what, _, name = line.partition("\t")
        pairs.append((name, what))
    return dict(pairs)


def _settle(tree: repo.Repo, tip: str) -> None:
    """Show a commit in the work tree; files that do not differ keep their
    times, so that the next build is an incremental one."""
    if tree.git("read-tree", "-m", "-u", "HEAD", tip,
                check=False).returncode != 0:
        raise ToolError(f"{shown(tree.path)}: the new series would overwrite "
                        "a file there that is not committed")
    tree.git("update-ref", repo.SERIES_BRANCH, tip)
    tree.git("symbolic-ref", "HEAD", repo.SERIES_BRANCH)
    tree.git("update-ref", repo.SYNCED, tip)


def _update(base: Base, patches: List[repo.Patch]) -> None:
    tree = repo.open_tree(base)
    start, tip = tree.commit_of(repo.BASE_TAG), tree.commit_of("HEAD")
    if start is None or tip is None:
        raise ToolError(f"{shown(base.src)} has no tag base; remove it")
    wanted = repo.import_series(tree, start, patches)
    if wanted == tip:
        tree.git("update-ref", repo.SYNCED, tip)
        dirty = tree.text("status", "--porcelain")
        say(f"{shown(base.src)} is up to date ({len(patches)} patches)"
            + (", with changes that are not committed" if dirty else ""))
        return
    repo.refuse_unclean(tree)
    refuse_unexported(base, tree, start, tip)
    _settle(tree, wanted)
    _report(base, patches)


def refuse_unexported(base: Base, tree: repo.Repo, start: str,
                      tip: str) -> None:
    """Commits that are in no patch file must not get lost."""
    synced = tree.commit_of(repo.SYNCED) or start
    if tree.git("merge-base", "--is-ancestor", tip, synced,
                check=False).returncode == 0:
        return
    if repo.export_series(tree, start, tip) == repo.series_files(base):
        return
    where = shown(tree.path)
    raise repo.UserWork(
        f"{where} has commits that are not exported: its branch series is at "
        f"'{tree.subject(tip)}'\nRun 'make export BASE={base.name}' to keep "
        f"them; to throw them away: 'git -C {where} reset --hard "
        f"{repo.SYNCED}'")


def _report(base: Base, patches: List[repo.Patch]) -> None:
    if patches:
        say(f"{shown(base.src)}: tag base, and {len(patches)} patches on "
            "branch series")
    else:
        say(f"{shown(base.src)}: tag base; patches/{base.name}/ has no "
            "series yet")
