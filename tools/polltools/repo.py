# SPDX-License-Identifier: GPL-2.0-or-later
"""The series as files and as commits, and the only bridge between them.

Both directions work on git objects alone, never on a work tree: a step that
fails leaves nothing half-applied, and no user's configuration changes a byte.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

from .common import BUILD, ROOT, Base, ToolError, clean_env, run, shown

BASE_TAG = "refs/tags/base"
SERIES_BRANCH = "refs/heads/series"
# The commit that patches/ was last imported to or exported from.
SYNCED = "refs/poll-weight/synced"
# Ids of the base commit must not depend on who makes it and when.
BASE_IDENTITY = {
    "GIT_AUTHOR_NAME": "QEMU release", "GIT_AUTHOR_EMAIL": "base@localhost",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00+0000",
    "GIT_COMMITTER_NAME": "QEMU release",
    "GIT_COMMITTER_EMAIL": "base@localhost",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00+0000",
}
NO_BLOB = "0" * 40
# DEP-3 wants its fields beside From and Subject; git am skips this one.
FORWARDED = "Forwarded: not-needed"
FORMAT_PATCH = (
    "format-patch", "--zero-commit", "--full-index", "--no-signature",
    "--no-stat", "--no-numbered", "--no-renames", "--no-cover-letter",
    "--no-thread", "--no-attach", "--no-notes", "--no-base",
    "--no-color-moved", "--encode-email-headers", "--diff-algorithm=myers",
    "--filename-max-length=64", "--unified=3", "--binary", "--no-textconv",
    "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/", "--quiet",
    f"--add-header={FORWARDED}",
)


class UserWork(ToolError):
    """The tree holds work of the user's that no patch file has."""


class Repo:
    """A git repository, used without anybody's personal configuration."""

    def __init__(self, path: Path, env: Optional[Dict[str, str]] = None):
        self.path = path
        self.env = clean_env(env)

    def git(self, *words: object, stdin: Optional[bytes] = None,
            env: Optional[Dict[str, str]] = None, check: bool = True
            ) -> "subprocess.CompletedProcess[bytes]":
        """Run git here."""
        return run(["git", *words], cwd=self.path, stdin=stdin, check=check,
                   env={**self.env, **(env or {})})

    def text(self, *words: object, stdin: Optional[bytes] = None,
             env: Optional[Dict[str, str]] = None) -> str:
        """What git prints, without the final newline."""
        done = self.git(*words, stdin=stdin, env=env)
        return done.stdout.decode(errors="surrogateescape").rstrip("\n")

    def commit_of(self, name: str) -> Optional[str]:
        """The commit that a name stands for, or None."""
        done = self.git("rev-parse", "--verify", "--quiet",
                        f"{name}^{{commit}}", check=False)
        return done.stdout.decode().strip() or None

    def commits(self, base: str, tip: str) -> List[str]:
        """The commits after base, oldest first."""
        return self.text("rev-list", "--reverse", f"{base}..{tip}").split()

    def subject(self, commit: str) -> str:
        return self.text("show", "-s", "--format=%s", commit)


@contextmanager
def scratch_repo(*objects_of: Path) -> Iterator[Repo]:
    """A throw-away repository that reads the objects of others.

    New objects, index and configuration are its own and vanish with it.
    """
    git_dirs = [Repo(path).text("rev-parse", "--path-format=absolute",
                                "--git-common-dir") for path in objects_of]
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=BUILD) as name:
        path = Path(name)
        run(["git", "init", "--quiet", "--bare", path], env=clean_env())
        (path / "objects/info/alternates").write_text(
            "".join(f"{git_dir}/objects\n" for git_dir in git_dirs))
        # The hunk headers must not depend on whether this version of git
        # reads attributes from a tree.
        (path / "info").mkdir(exist_ok=True)
        (path / "info/attributes").write_text("* !diff !text -whitespace\n")
        yield Repo(path)


@dataclass(frozen=True)
class FileChange:
    """One file of a patch: what it must be before and will be after."""

    path: str
    before: str
    after: str


@dataclass(frozen=True)
class Patch:
    """One patch file."""

    path: Path
    data: bytes

    @property
    def name(self) -> str:
        return self.path.name

    def changes(self) -> List[FileChange]:
        """The files that the patch touches, with their blob ids."""
        found: List[FileChange] = []
        path = None
        for line in self.data.decode(errors="surrogateescape").split("\n"):
            if line.startswith("diff --git "):
                path = _path_of(line, self.name)
            match = re.match(r"index ([0-9a-f]+)\.\.([0-9a-f]+)( \d+)?$", line)
            if match is None or path is None:
                continue
            if len(match[1]) != 40 or len(match[2]) != 40:
                raise ToolError(f"{self.name}: {path}: the blob ids are "
                                "shortened; 'make export' writes full ones")
            found.append(FileChange(path, match[1], match[2]))
            path = None
        if not found:
            raise ToolError(f"{self.name}: no change to any file found; "
                            "the file is broken or empty")
        return found


def _path_of(line: str, name: str) -> str:
    """The path in a 'diff --git a/X b/X' line (the series renames nothing)."""
    match = re.match(r"diff --git a/(.+) b/\1$", line)
    if match is None:
        raise ToolError(f"{name}: cannot read '{line}'; renames and quoted "
                        "names are not supported")
    return match[1]


def series_names(base: Base) -> List[str]:
    """The names in patches/<base>/series; none when there is no series."""
    path = base.patches / "series"
    if not path.exists():
        return []
    names = [line.strip() for line in path.read_text().splitlines()]
    return [name for name in names if name and not name.startswith("#")]


def read_series(base: Base) -> List[Patch]:
    """The patches in order; the list and the directory must agree."""
    _recover(base)
    listed = series_names(base)
    where = shown(base.patches)
    present = sorted(path.name for path in base.patches.glob("*.patch"))
    for name in listed:
        if not re.fullmatch(r"[\w.+-]+\.patch", name):
            raise ToolError(f"{where}/series: '{name}' is not the plain name "
                            "of a .patch file")
        if listed.count(name) > 1:
            raise ToolError(f"{where}/series lists {name} twice")
        if name not in present:
            raise ToolError(f"{where}/series lists {name}, which does not "
                            "exist; restore the file or run 'make export'")
    for name in present:
        if name not in listed:
            raise ToolError(f"{where}/{name} is not listed in series; add it "
                            "there or remove the file")
    if listed != present:
        raise ToolError(f"{where}/series is not in the order of the file "
                        "names, so 'git am *.patch' would apply another "
                        "series; 'make export' numbers them anew")
    return [Patch(base.patches / name, (base.patches / name).read_bytes())
            for name in listed]


def _mail(repo: Repo, patch: Patch) -> Tuple[Dict[str, str], bytes, bytes]:
    """Header, commit message and diff of a patch, as 'git am' reads them."""
    with tempfile.TemporaryDirectory() as name:
        message, diff = Path(name) / "message", Path(name) / "diff"
        done = repo.git("mailinfo", message, diff, stdin=patch.data,
                        check=False)
        if done.returncode != 0:
            raise ToolError(f"{patch.name} is not a patch in the form of an "
                            "e-mail: " + done.stderr.decode().strip())
        head = dict(line.split(": ", 1)
                    for line in done.stdout.decode().splitlines()
                    if ": " in line)
        missing = {"Author", "Email", "Subject", "Date"} - set(head)
        if missing:
            raise ToolError(f"{patch.name}: no {', '.join(sorted(missing))} "
                            "in its header")
        text = head["Subject"].encode() + b"\n\n" + message.read_bytes()
        text = repo.git("stripspace", stdin=text).stdout
        return head, text, diff.read_bytes()


def _check_blobs(repo: Repo, patch: Patch, tree: str, after: bool) -> None:
    """Compare the blob ids that a patch names with those of a tree."""
    changes = patch.changes()
    names = "".join(f"{tree}:{change.path}\n" for change in changes)
    done = repo.git("cat-file", "--batch-check=%(objectname)",
                    stdin=names.encode(errors="surrogateescape"))
    lines = done.stdout.decode(errors="surrogateescape").splitlines()
    for change, line in zip(changes, lines):
        has = line if re.fullmatch("[0-9a-f]{40}", line) else NO_BLOB
        wanted = change.after if after else change.before
        if has != wanted:
            raise ToolError(
                f"{patch.name}: {change.path} "
                f"{'became' if after else 'is'} blob {has}, but the patch "
                f"names {wanted} {'after' if after else 'before'} it; "
                "the base or an earlier patch differs")


def apply_patch(repo: Repo, patch: Patch, parent: str) -> str:
    """Make the commit of one patch; zero fuzz, and every blob id must fit."""
    head, message, diff = _mail(repo, patch)
    _check_blobs(repo, patch, parent, after=False)
    index = {"GIT_INDEX_FILE": str(_git_path(repo, "import.index"))}
    repo.git("read-tree", parent, env=index)
    done = repo.git("apply", "--cached", "--whitespace=nowarn", "-",
                    stdin=diff, env=index, check=False)
    if done.returncode != 0:
        raise ToolError(f"{patch.name} does not apply:\n"
                        f"{done.stderr.decode(errors='replace').strip()}")
    tree = repo.text("write-tree", env=index)
    _check_blobs(repo, patch, tree, after=True)
    who = {}
    for role in ("AUTHOR", "COMMITTER"):
        who.update({f"GIT_{role}_NAME": head["Author"],
                    f"GIT_{role}_EMAIL": head["Email"],
                    f"GIT_{role}_DATE": head["Date"]})
    return repo.text("commit-tree", tree, "-p", parent, stdin=message, env=who)


def _git_path(repo: Repo, name: str) -> Path:
    return repo.path / repo.text("rev-parse", "--git-path", name)


def import_series(repo: Repo, base: str, patches: List[Patch]) -> str:
    """The commits of the series on top of base; returns the last one."""
    tip = base
    try:
        for patch in patches:
            tip = apply_patch(repo, patch, tip)
    finally:
        _git_path(repo, "import.index").unlink(missing_ok=True)
    return tip


def export_series(repo: Repo, base: str, tip: str) -> Dict[str, bytes]:
    """The files of the series for the commits base..tip, proven to be stable:
    importing them gives the same files again."""
    _refuse_unfit(repo, base, tip)
    with scratch_repo(repo.path) as scratch:
        files = _format(scratch, base, tip)
        patches = [Patch(Path(name), data)
                   for name, data in sorted(files.items()) if name != "series"]
        again = _format(scratch, base, import_series(scratch, base, patches))
    for name in sorted(set(files) | set(again)):
        if files.get(name) != again.get(name):
            raise ToolError(f"{name} would change when it is imported and "
                            "exported again; is there a line '---' or "
                            "'diff -' in the commit message, or a line in "
                            "brackets at the start of its subject?")
    return files


def _refuse_unfit(repo: Repo, base: str, tip: str) -> None:
    """Commits that cannot be patches of the series."""
    if repo.git("merge-base", "--is-ancestor", base, tip,
                check=False).returncode != 0:
        raise ToolError("branch series does not start at tag base; "
                        "rebase it onto base")
    merges = repo.text("rev-list", "--merges", f"{base}..{tip}").split()
    if merges:
        raise ToolError(f"commit {merges[0]} is a merge; rebase the branch")
    for commit in repo.commits(base, tip):
        subject = repo.subject(commit)
        if re.match(r"(fixup|squash|amend)! ", subject):
            raise ToolError(f"commit '{subject}' waits to be squashed; run "
                            "'git rebase -i --autosquash base' first")
        if not repo.text("diff-tree", "-r", f"{commit}^", commit):
            raise ToolError(f"commit '{subject}' changes nothing; drop it")


def _format(scratch: Repo, base: str, tip: str) -> Dict[str, bytes]:
    """Run git format-patch in a scratch repository."""
    with tempfile.TemporaryDirectory() as name:
        scratch.git(*FORMAT_PATCH, "-o", name, f"{base}..{tip}")
        files = {path.name: path.read_bytes() for path in Path(name).iterdir()}
    files["series"] = "".join(f"{name}\n" for name in sorted(files)).encode()
    return files


def series_files(base: Base) -> Dict[str, bytes]:
    """The exported files as they are in patches/<base>/ now."""
    _recover(base)
    paths = list(base.patches.glob("*.patch"))
    if (base.patches / "series").exists():
        paths.append(base.patches / "series")
    return {path.name: path.read_bytes() for path in paths}


def _aside(base: Base) -> Path:
    """Where the old files are for the moment between two renames."""
    return base.patches.with_name(f".{base.patches.name}.old")


def _recover(base: Base) -> None:
    """Undo an export that was killed in that moment."""
    if not base.patches.exists() and _aside(base).exists():
        _aside(base).rename(base.patches)


def write_series(base: Base, files: Dict[str, bytes]) -> None:
    """Swap new files in; what is not a patch (COVER.md) stays."""
    final, old = base.patches, _aside(base)
    fresh = final.with_name(f".{final.name}.new")
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    fresh.mkdir(parents=True)
    if final.exists():
        for path in final.iterdir():
            if path.suffix != ".patch" and path.name != "series":
                _copy(path, fresh / path.name)
    for name, data in files.items():
        (fresh / name).write_bytes(data)
    if final.exists():
        final.rename(old)
    fresh.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def open_tree(base: Base) -> Repo:
    """The git tree of a base; it must exist."""
    if not (base.src / ".git").exists():
        raise ToolError(f"{shown(base.src)} does not exist; run "
                        f"'make checkout BASE={base.name}' first")
    return Repo(base.src)


def refuse_unclean(repo: Repo) -> None:
    """A tree that a tool is about to change must hold nothing else."""
    branch = repo.git("symbolic-ref", "--quiet", "HEAD",
                      check=False).stdout.decode().strip()
    where = shown(repo.path)
    if branch != SERIES_BRANCH:
        raise UserWork(f"{where} is not on branch series (a rebase that is "
                       "not finished?); finish it or run "
                       f"'git -C {where} switch series'")
    dirty = repo.text("status", "--porcelain", "--untracked-files=normal")
    if dirty:
        raise UserWork(f"{where} has changes that are not committed:\n"
                       f"{dirty}\ncommit them or remove them")


def repository_identity() -> Dict[str, str]:
    """user.name and user.email of the repository that holds the patches."""
    found = {}
    for key in ("user.name", "user.email"):
        done = run(["git", "-C", ROOT, "config", key], check=False)
        value = done.stdout.decode().strip()
        if value:
            found[key] = value
    return found
