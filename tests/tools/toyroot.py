# SPDX-License-Identifier: GPL-2.0-or-later
"""A throw-away copy of this repository with a QEMU of four files.

Every test runs the real tools in it, as a user would: with a git
configuration that would spoil the patches if the tools let it."""

import atexit
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Dict, List, Optional

ROOT = Path(__file__).resolve().parents[2]
VERSION = "9.9.9"

POLL_C = "".join(f"line {number}\n" for number in range(1, 41))

# Finds fault with one word, as the real one does with many.
CHECKPATCH = """\
my $bad = 0;
open(my $file, '<', $ARGV[-1]) or die;
while (<$file>) {
    if (/^\\+.*BADSTYLE/) { print "ERROR: bad style\\n"; $bad = 1; }
}
exit $bad;
"""

HOSTILE_CONFIG = """\
[user]
    name = Somebody Else
    email = else@example.org
[diff]
    noprefix = true
    mnemonicPrefix = true
    context = 1
    algorithm = patience
    renames = copies
    interHunkContext = 9
[format]
    signature = -- spoiled
    numbered = true
    subjectPrefix = SPOILED
    signOff = true
    headers = "X-Spoiled: yes\\n"
    thread = true
    attach = true
[core]
    autocrlf = true
    abbrev = 4
[commit]
    gpgSign = true
[apply]
    whitespace = fix
"""

BASE = """\
[base]
version = {version}
tested = {version}
leave-out =
    roms/*/*
    blobs/*.bin
empty-bz2 = blobs/edk2.fd.bz2
"""


# The directory with a repository that has a series, once a test needed it.
TEMPLATE: List[Path] = []
# The top of the base tree of the source that every test begins with.
TREE: List[str] = []


class ToyRoot(unittest.TestCase):
    """Base class: self.root is the copy, self.source an unpacked toy QEMU."""

    def setUp(self) -> None:
        self.tmp = Path(tempfile.mkdtemp(prefix="toyroot-"))
        self.addCleanup(shutil.rmtree, self.tmp)
        self.root = self.tmp / "repo"
        shutil.copytree(ROOT / "tools", self.root / "tools",
                        ignore=shutil.ignore_patterns("__pycache__"))
        self.home = self.tmp / "home"
        self.home.mkdir()
        (self.home / ".gitconfig").write_text(HOSTILE_CONFIG)
        self.source = self.tmp / f"qemu-{VERSION}"
        self.make_source()
        (self.root / "bases").mkdir()
        self.write_base()
        self.patches = self.root / "patches/toy"
        self.src = self.root / "build/toy/src"

    # --- the toy QEMU -------------------------------------------------------

    def make_source(self) -> None:
        files = {"VERSION": f"{VERSION}\n", "util/poll.c": POLL_C,
                 "util/other.c": "other\n", "scripts/checkpatch.pl": CHECKPATCH,
                 "roms/big/rom.c": "left out\n", "blobs/bios.bin": "left out\n"}
        for name, text in files.items():
            path = self.source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def write_base(self, more: str = "", tree: Optional[str] = None) -> None:
        """bases/toy, and the tree that belongs to self.source."""
        (self.root / "bases/toy").write_text(
            BASE.format(version=VERSION) + more)
        if tree is None:
            if not TREE:
                TREE.append(self.tree_of_source())
            tree = TREE[0]
        (self.root / "bases/toy.tree").write_text(tree)

    def tree_of_source(self) -> str:
        """'git ls-tree' of what the base commit has to contain, made without
        the tools under test."""
        work = self.tmp / "tree"
        shutil.copytree(self.source, work)
        shutil.rmtree(work / "roms")
        shutil.rmtree(work / "blobs")
        env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}

        def git(*words: str) -> str:
            return subprocess.run(["git", *words], cwd=work, check=True,
                                  env=env, stdout=subprocess.PIPE,
                                  text=True).stdout
        git("init", "--quiet")
        git("add", "--all")
        text = git("ls-tree", git("write-tree").strip())
        shutil.rmtree(work)
        return text

    def archive(self, name: str = "toy.tar.xz") -> Path:
        """The toy QEMU as an archive."""
        path = self.tmp / name
        subprocess.run(["tar", "-cJf", path, "-C", self.tmp,
                        self.source.name], check=True)
        return path

    # --- running things -----------------------------------------------------

    def env(self, **more: str) -> Dict[str, str]:
        env = {key: value for key, value in os.environ.items()
               if not key.startswith("GIT_")
               and key not in ("BASE", "QEMU_SRC", "http_proxy", "no_proxy")}
        env.update(HOME=str(self.home), XDG_CONFIG_HOME=str(self.home),
                   BASE="toy", LC_ALL="C.UTF-8")
        env.update(more)
        return env

    def tool(self, name: str, *words: object, status: int = 0,
             **env: str) -> str:
        """Run a tool; returns all that it prints."""
        done = subprocess.run(
            [str(self.root / "tools" / name), *(str(word) for word in words)],
            cwd=self.root, env=self.env(**env), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False)
        self.assertEqual(done.returncode, status, done.stdout)
        self.assertNotIn("Traceback", done.stdout)
        return done.stdout

    def git(self, *words: str) -> str:
        """git as the user of the tree runs it (unsigned commits)."""
        done = subprocess.run(
            ["git", "-c", "commit.gpgSign=false", *words], cwd=self.src,
            env=self.env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.strip()

    # --- steps that tests begin with ----------------------------------------

    def checkout(self, **env: str) -> str:
        return self.tool("checkout", QEMU_SRC=str(self.source), **env)

    def edit(self, old: str, new: str, file: str = "util/poll.c") -> None:
        path = self.src / file
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1))

    def commit(self, subject: str, body: str = "") -> None:
        body = body or ("Why: a test.\n\nUpstream status: not submitted.\n\n"
                        "Tested: by itself.")
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", subject, "-m", body)

    def series(self) -> List[str]:
        """Two patches, exported; returns their names.  Made once, copied
        from then on."""
        if not TEMPLATE:
            self._make_series()
            TEMPLATE.append(Path(tempfile.mkdtemp(prefix="toytemplate-")))
            atexit.register(shutil.rmtree, TEMPLATE[0])
            shutil.copytree(self.root, TEMPLATE[0] / "repo")
        else:
            shutil.rmtree(self.root)
            shutil.copytree(TEMPLATE[0] / "repo", self.root)
        return (self.patches / "series").read_text().split()

    def _make_series(self) -> None:
        self.checkout()
        self.edit("line 10\n", "line ten\n")
        self.commit("util: write ten as a word")
        self.edit("line 30\n", "line thirty\nand more — in UTF-8\n")
        (self.src / "util/new.c").write_text("new\n")
        self.commit("util: add a file with a subject that is so long that it "
                    "has to be folded in the header — and is not ASCII")
        self.tool("export")

    def snapshot(self) -> Dict[str, bytes]:
        """All files of patches/toy."""
        return {path.name: path.read_bytes()
                for path in self.patches.iterdir()}
