# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the source comes from: order, checksums, interrupted downloads."""

import hashlib
import http.server
import os
import shutil
import subprocess
import threading
import time
import unittest
from pathlib import Path
from typing import Dict, List

from toyroot import VERSION, ToyRoot

NOWHERE = "http://127.0.0.1:9"


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves self.server.files; a name in .cut breaks off in the middle."""

    def do_GET(self) -> None:
        data = self.server.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.server.served.append(self.path)
        self.wfile.write(data[:len(data) // 2])
        self.server.half_way()
        if self.path not in self.server.cut:
            self.wfile.write(data[len(data) // 2:])

    def log_message(self, *_: object) -> None:
        pass


class Sources(ToyRoot):

    def setUp(self) -> None:
        super().setUp()
        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.server.files: Dict[str, bytes] = {}
        self.server.cut = set()
        self.server.served = []
        self.server.half_way = lambda: None
        thread = threading.Thread(target=self.server.serve_forever,
                                  kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.cache = self.root / "build/cache"
        self.data = self.archive().read_bytes()
        self.digest = hashlib.sha256(self.data).hexdigest()
        # A machine without apt, whatever this one is.
        self.bin = self.tmp / "bin"
        self.bin.mkdir()
        self.fake("apt-get", "exit 1")
        self.path = f"{self.bin}:{os.environ['PATH']}"

    def fake(self, name: str, script: str) -> None:
        """A command that is found before the real one."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def sources(self, release: str = "", sha256: str = "",
                git: str = "", pool: str = "") -> None:
        """Write the sections of bases/toy."""
        text = ""
        if release:
            text += f"[release]\nurl = {release}\n"
            text += f"sha256 = {sha256}\n" if sha256 else ""
        if git:
            text += f"[git]\nurl = {git}\ntag = v{VERSION}\nsubprojects =\n"
        if pool:
            text += f"[debian-pool]\npath = {pool}\nsha256 = {self.digest}\n"
        self.write_base(text)

    def run_checkout(self, status: int = 0, **env: str) -> str:
        return self.tool("checkout", status=status, PATH=self.path, **env)

    def cached(self) -> List[str]:
        return sorted(path.name for path in self.cache.iterdir())

    # --- QEMU_SRC -----------------------------------------------------------

    def test_directory(self) -> None:
        text = self.run_checkout(QEMU_SRC=str(self.source))
        self.assertIn("as listed in bases/toy.tree", text)
        self.assertEqual(self.git("ls-files", "roms", "blobs"), "")
        # What is the user's own stays, but in no commit.
        self.assertTrue((self.src / "blobs/bios.bin").exists())
        self.assertEqual(self.git("status", "--porcelain"), "")

    def test_archive(self) -> None:
        text = self.run_checkout(QEMU_SRC=str(self.archive("mine.tar.xz")))
        self.assertIn("as listed in bases/toy.tree", text)

    def test_git_clone_at_its_tag(self) -> None:
        clone = self.tmp / "clone"
        shutil.copytree(self.source, clone)
        shutil.rmtree(clone / "roms")
        env = self.env(GIT_CONFIG_GLOBAL="/dev/null")
        for words in (("init", "-q"), ("add", "-A"),
                      ("-c", "user.name=x", "-c", "user.email=x@y", "commit",
                       "-qm", "release"), ("tag", "base")):
            subprocess.run(["git", *words], cwd=clone, env=env, check=True)
        (clone / "util/poll.c").write_text("edited\n")
        text = self.run_checkout(QEMU_SRC=str(clone))
        self.assertIn("refs/tags/base", text)
        self.assertIn("as listed in bases/toy.tree", text)

    def test_own_tree_that_differs(self) -> None:
        (self.source / "util/other.c").write_text("patched by a packager\n")
        text = self.run_checkout(QEMU_SRC=str(self.source))
        self.assertIn("different: util", text)
        self.assertTrue(self.src.exists())

    def test_other_version(self) -> None:
        (self.source / "VERSION").write_text("9.9.10\n")
        text = self.run_checkout(QEMU_SRC=str(self.source))
        self.assertIn("this is QEMU 9.9.10", text)

    def test_missing(self) -> None:
        text = self.run_checkout(status=1, QEMU_SRC="/nowhere/qemu")
        self.assertIn("/nowhere/qemu does not exist", text)

    def test_not_qemu(self) -> None:
        (self.source / "VERSION").unlink()
        text = self.run_checkout(status=1, QEMU_SRC=str(self.source))
        self.assertIn("no file VERSION", text)
        self.assertFalse(self.src.exists())

    def test_not_an_archive(self) -> None:
        bad = self.tmp / "bad.tar"
        bad.write_text("not an archive\n")
        text = self.run_checkout(status=1, QEMU_SRC=str(bad))
        self.assertIn("cannot be unpacked", text)
        self.assertFalse(self.src.exists())

    def test_not_used_for_a_tree_that_exists(self) -> None:
        self.run_checkout(QEMU_SRC=str(self.source))
        self.assertIn("QEMU_SRC is not used",
                      self.run_checkout(QEMU_SRC=str(self.source)))

    # --- downloads ----------------------------------------------------------

    def test_release(self) -> None:
        self.server.files["/toy.tar.xz"] = self.data
        self.sources(f"{self.url}/toy.tar.xz", self.digest)
        text = self.run_checkout()
        self.assertIn("verified toy.tar.xz", text)
        self.assertEqual(self.cached(), ["toy.tar.xz"])
        # What was not named by its checksum alone is not kept.
        self.assertFalse((self.src / "blobs/bios.bin").exists())
        self.assertTrue((self.src / "blobs/edk2.fd.bz2").exists())

    def test_nothing_is_downloaded_twice(self) -> None:
        self.server.files["/toy.tar.xz"] = self.data
        self.sources(f"{self.url}/toy.tar.xz", self.digest)
        self.run_checkout()
        self.tool("clean")
        self.assertIn("found toy.tar.xz", self.run_checkout())
        self.assertEqual(self.server.served, ["/toy.tar.xz"])

    def test_interrupted_download(self) -> None:
        self.server.files["/toy.tar.xz"] = self.data
        self.server.cut.add("/toy.tar.xz")
        self.sources(f"{self.url}/toy.tar.xz", self.digest)
        text = self.run_checkout(status=1)
        half = len(self.data) // 2
        self.assertIn(f"ended after {half} of {len(self.data)} bytes", text)
        self.assertIn("QEMU_SRC=", text)
        self.assertEqual(self.cached(), [])
        self.assertFalse(self.src.exists())
        self.server.cut.clear()
        self.run_checkout()
        self.assertEqual(self.cached(), ["toy.tar.xz"])

    def test_half_a_file_never_has_the_name_of_a_whole_one(self) -> None:
        self.server.files["/toy.tar.xz"] = self.data
        self.sources(f"{self.url}/toy.tar.xz", self.digest)
        seen: List[bool] = []

        def half_way() -> None:
            part = self.cache / ".toy.tar.xz.part"
            limit = time.monotonic() + 10
            while not part.exists() and time.monotonic() < limit:
                time.sleep(0.01)
            seen.append(part.exists())
            seen.append((self.cache / "toy.tar.xz").exists())

        self.server.half_way = half_way
        self.run_checkout()
        self.assertEqual(seen, [True, False])
        self.assertEqual(self.cached(), ["toy.tar.xz"])

    def test_leftover_of_a_killed_download(self) -> None:
        self.server.files["/toy.tar.xz"] = self.data
        self.sources(f"{self.url}/toy.tar.xz", self.digest)
        self.cache.mkdir(parents=True)
        (self.cache / ".toy.tar.xz.part").write_bytes(self.data[:100])
        (self.root / "build/toy/.src.new").mkdir(parents=True)
        self.run_checkout()
        self.assertEqual(self.cached(), ["toy.tar.xz"])
        self.assertFalse((self.root / "build/toy/.src.new").exists())

    def test_wrong_checksum(self) -> None:
        self.server.files["/toy.tar.xz"] = self.data + b"x"
        self.sources(f"{self.url}/toy.tar.xz", self.digest)
        text = self.run_checkout(status=1)
        self.assertIn("wrong checksum", text)
        self.assertIn(self.digest, text)
        self.assertEqual(self.cached(), [])

    def test_wrong_checksum_in_the_cache(self) -> None:
        self.server.files["/toy.tar.xz"] = self.data
        self.sources(f"{self.url}/toy.tar.xz", self.digest)
        self.cache.mkdir(parents=True)
        (self.cache / "toy.tar.xz").write_bytes(self.data[:-1])
        text = self.run_checkout()
        self.assertIn("wrong checksum and is removed", text)
        self.assertEqual(self.server.served, ["/toy.tar.xz"])

    def test_release_without_checksum_is_known_by_its_tree(self) -> None:
        self.server.files["/toy.tar.xz"] = self.data
        self.sources(f"{self.url}/toy.tar.xz")
        self.assertIn("as listed in bases/toy.tree", self.run_checkout())

    def test_release_without_checksum_and_with_another_tree(self) -> None:
        (self.source / "util/other.c").write_text("tampered\n")
        self.server.files["/toy.tar.xz"] = self.archive("t.tar.xz").read_bytes()
        self.sources(f"{self.url}/toy.tar.xz")
        text = self.run_checkout(status=1)
        self.assertIn("different: util", text)
        self.assertIn("not used", text)
        self.assertIn("no source of QEMU", text)
        self.assertFalse(self.src.exists())
        # It is not downloaded again, and the user may take it all the same.
        self.assertIn("not what it should be", self.run_checkout(status=1))
        self.assertEqual(self.server.served, ["/toy.tar.xz"])
        self.run_checkout(QEMU_SRC="build/cache/toy.tar.xz.not-used")
        self.assertEqual((self.src / "util/other.c").read_text(), "tampered\n")

    def test_after_another_tree_comes_the_next_source(self) -> None:
        if not Path("/usr/lib/apt/apt-helper").exists():
            self.skipTest("apt-helper is not installed here")
        (self.source / "util/other.c").write_text("tampered\n")
        self.server.files["/toy.tar.xz"] = self.archive("t.tar.xz").read_bytes()
        self.server.files["/debian/pool/q/qemu.tar.xz"] = self.data
        self.fake("apt-get", f"echo main {self.url}/debian/")
        self.sources(f"{self.url}/toy.tar.xz", pool="pool/q/qemu.tar.xz")
        text = self.run_checkout()
        self.assertLess(text.index("not used"), text.index("verified qemu"))
        self.assertEqual((self.src / "util/other.c").read_text(), "other\n")

    def test_page_instead_of_an_archive(self) -> None:
        self.server.files["/toy.tar.xz"] = b"<html>log in first</html>"
        self.sources(f"{self.url}/toy.tar.xz")
        self.assertIn("not an archive", self.run_checkout(status=1))
        self.assertEqual(self.cached(), [])

    def test_order_and_what_to_do_when_nothing_works(self) -> None:
        self.sources(f"{NOWHERE}/toy.tar.xz", git=f"{NOWHERE}/qemu.git",
                     pool="pool/q/qemu.tar.xz")
        text = self.run_checkout(status=1)
        places = [text.index(word) for word in
                  ("source: the cache", "source: the release", "source: tag",
                   "source: the Debian archive", "no source of QEMU",
                   "QEMU_SRC=")]
        self.assertEqual(places, sorted(places))
        self.assertEqual(text.count("not available"), 4)

    def test_missing_release_falls_back_to_the_pool(self) -> None:
        """With a stand-in for the configuration of apt."""
        if not Path("/usr/lib/apt/apt-helper").exists():
            self.skipTest("apt-helper is not installed here")
        self.server.files["/debian/pool/q/qemu.tar.xz"] = self.data
        self.fake("apt-get", f"echo main {self.url}/debian/")
        self.sources(f"{self.url}/none.tar.xz", pool="pool/q/qemu.tar.xz")
        text = self.run_checkout()
        self.assertIn("Not Found", text)
        self.assertIn("verified qemu.tar.xz", text)

    def test_wrong_checksum_in_the_pool(self) -> None:
        if not Path("/usr/lib/apt/apt-helper").exists():
            self.skipTest("apt-helper is not installed here")
        self.server.files["/debian/pool/q/qemu.tar.xz"] = self.data + b"x"
        self.fake("apt-get", f"echo main {self.url}/debian/")
        self.sources(pool="pool/q/qemu.tar.xz")
        self.assertIn("wrong checksum", self.run_checkout(status=1))
        self.assertEqual(self.cached(), [])

    # --- arguments ----------------------------------------------------------

    def test_unknown_base(self) -> None:
        for tool in ("fetch", "checkout", "export", "check-series",
                     "check-build", "build", "clean", "test", "base-tree"):
            text = self.tool(tool, "v0.0", status=1)
            self.assertIn("BASE=v0.0 is not known; bases/ has: toy", text)

    def test_base_that_cannot_be_read(self) -> None:
        (self.root / "bases/toy").write_text("version = 1\n")
        self.assertIn("bases/toy cannot be read", self.tool("fetch", status=1))

    def test_base_tree_is_written(self) -> None:
        path = self.root / "bases/toy.tree"
        before = path.read_text()
        path.unlink()
        self.tool("base-tree", QEMU_SRC=str(self.source))
        after = "".join(line for line in path.read_text().splitlines(True)
                        if not line.startswith("#"))
        self.assertEqual(after, before)
        self.run_checkout(QEMU_SRC=str(self.source))

    def test_base_without_its_tree(self) -> None:
        (self.root / "bases/toy.tree").unlink()
        text = self.run_checkout(status=1, QEMU_SRC=str(self.source))
        self.assertIn("bases/toy.tree is missing", text)
        self.assertFalse(self.src.exists())


if __name__ == "__main__":
    unittest.main()
