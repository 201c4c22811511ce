# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest image: where its packages come from and what is picked."""

import io
import lzma
import os
import stat
import struct
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path
from typing import Dict, List, Tuple
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from polltools import guestimage  # noqa: E402
from polltools.common import ToolError  # noqa: E402
from polltools.guestimage import Packages  # noqa: E402

TARGETS = """\
Debian|trixie|stable|http://mirror/debian/|main
Debian|trixie|stable|http://contrib/debian/|contrib
Debian|trixie-security|trixie-security|http://mirror/security/|main
Debian Backports|trixie-backports|trixie-backports|http://mirror/debian/|main
Debian|forky|testing|http://mirror/debian/|main
Else|trixie|trixie|http://else/|main
"""
BEFORE_UPDATE = "$(ORIGIN)|$(CODENAME)|trixie|http://mirror/debian/|main\n" * 2

# Says what it was asked and unpacks nothing, like an mmdebstrap without net.
MMDEBSTRAP = """\
#!/bin/sh
echo "$@" >>"$LOG"
exit 1
"""


def packages(files: Dict[str, bytes],
             links: Tuple[Tuple[str, str], ...] = ()) -> Packages:
    """Return unpacked packages with these files and symbolic links."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, target in links:
            member = tarfile.TarInfo(f"./{name}")
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    data.seek(0)
    return Packages(tarfile.open(fileobj=data))


def read_cpio(data: bytes) -> Dict[str, Tuple[int, bytes]]:
    """Read an archive of the 'newc' format."""
    files = {}
    at = 0
    while True:
        assert data[at:at + 6] == b"070701", at
        fields = [int(data[at + 6 + 8 * i:at + 14 + 8 * i], 16)
                  for i in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = data[at + 110:at + 110 + name_size - 1].decode()
        at += (110 + name_size + 3) // 4 * 4
        if name == "TRAILER!!!":
            return files
        files[name] = (mode, data[at:at + size])
        at += (size + 3) // 4 * 4


class Sources(unittest.TestCase):

    def sources(self, text: str) -> List[str]:
        return guestimage.apt_sources(guestimage.select_main(text), "trixie")

    def test_release_updates_and_security_of_debian(self) -> None:
        self.assertEqual(self.sources(TARGETS), [
            "deb http://mirror/debian/ stable main",
            "deb http://mirror/security/ trixie-security main"])

    def test_before_the_first_update(self) -> None:
        self.assertEqual(self.sources(BEFORE_UPDATE),
                         ["deb http://mirror/debian/ trixie main"])

    def test_none(self) -> None:
        with mock.patch.object(guestimage, "apt_targets", lambda: []):
            with self.assertRaisesRegex(ToolError, "trixie.*--mirror"):
                guestimage.sources_of("trixie", "")


class Picking(unittest.TestCase):

    def test_old_and_merged_usr_look_the_same(self) -> None:
        tree = packages({"lib/a": b"1", "usr/lib/b": b"2", "boot/lib/c": b"3"})
        self.assertEqual(set(tree.names()),
                         {"usr/lib/a", "usr/lib/b", "boot/lib/c"})

    def test_links_are_followed(self) -> None:
        tree = packages({"lib/x/libz.so.1.2": b"code"},
                        (("usr/lib/x/libz.so.1", "libz.so.1.2"),
                         ("lib64/ld.so", "/lib/x/libz.so.1.2")))
        self.assertEqual(tree.read("usr/lib/x/libz.so.1"), b"code")
        self.assertEqual(tree.read("usr/lib64/ld.so"), b"code")

    def test_shortest_path_of_a_library(self) -> None:
        tree = packages({"usr/lib/x/private/liba.so": b"", "lib/x/liba.so": b"",
                         "usr/lib/y/deep/libb.so": b""})
        self.assertEqual(tree.library("liba.so"), "usr/lib/x/liba.so")
        self.assertEqual(tree.library("libb.so"), "usr/lib/y/deep/libb.so")
        with self.assertRaisesRegex(ToolError, "libc.so"):
            tree.library("libc.so")

    def test_modules_come_after_what_they_need(self) -> None:
        top = b"\0depends=low-er,built\0"
        root = "lib/modules/6/kernel/drivers"
        tree = packages({
            f"{root}/top.ko": top,
            f"{root}/low-er.ko.xz": lzma.compress(b"\0depends=\0"),
            "lib/modules/6/modules.builtin": b"kernel/x/built.ko\n"})
        files = guestimage.module_files(tree, ["top", "built"])
        self.assertEqual(list(files), ["low_er", "top"])
        self.assertEqual(files["low_er"], b"\0depends=\0")
        with self.assertRaisesRegex(ToolError, "kernel module other"):
            guestimage.module_files(tree, ["other"])

    def test_needs_of_a_program(self) -> None:
        needs = guestimage.elf_needs(Path("/bin/sh").read_bytes())
        self.assertTrue(any(name.startswith("libc.") for name in needs), needs)
        self.assertTrue(any(name.startswith("ld") for name in needs), needs)


class Kernel(unittest.TestCase):

    def image(self, payload: bytes) -> bytes:
        """Return a bzImage with one sector of set-up code."""
        image = bytearray(1024)
        image[0x1f1] = 1
        image[0x202:0x206] = b"HdrS"
        struct.pack_into("<II", image, 0x248, 16, len(payload))
        return bytes(image) + b"\0" * 16 + payload + b"rest"

    def test_xz_is_unpacked(self) -> None:
        image = self.image(lzma.compress(b"vmlinux") + b"size")
        self.assertEqual(guestimage.unpacked_kernel(image), b"vmlinux")

    def test_the_rest_stays(self) -> None:
        for image in (self.image(b"(\xb5/\xfd"), b"no bzImage" * 100):
            self.assertEqual(guestimage.unpacked_kernel(image), image)


class Initramfs(unittest.TestCase):

    def test_archive(self) -> None:
        files = {"init": (0o100755, b"#!"), "bin": (0o120777, b"usr/bin"),
                 "usr/bin/fio": (0o100755, b"12345")}
        seen = read_cpio(b"".join(guestimage.cpio(files)))
        for name, entry in files.items():
            self.assertEqual(seen.pop(name), entry)
        self.assertEqual(seen, {"usr": (0o040755, b""),
                                "usr/bin": (0o040755, b"")})

    def test_directories_come_first(self) -> None:
        files = {"usr/bin/fio": (0o100755, b""), "init": (0o100755, b"")}
        order = list(read_cpio(b"".join(guestimage.cpio(files))))
        self.assertEqual(order, ["init", "usr", "usr/bin", "usr/bin/fio"])


class Cache(unittest.TestCase):

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.cache = Path(directory.name) / "cache"
        self.image = self.cache / "guest-amd64"
        self.log = Path(directory.name) / "log"
        program = Path(directory.name) / "mmdebstrap"
        program.write_text(MMDEBSTRAP)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        path = f"{directory.name}:{os.environ['PATH']}"
        for patch in (
                mock.patch.dict(os.environ, PATH=path, LOG=str(self.log)),
                mock.patch.object(guestimage, "say", lambda text: None)):
            patch.start()
            self.addCleanup(patch.stop)

    def ensure(self) -> Path:
        return guestimage.ensure(self.cache, "amd64", "trixie",
                                 "http://mirror/")

    def put(self, key: str) -> None:
        self.image.mkdir(parents=True)
        (self.image / "guest.json").write_text(f'{{"recipe": "{key}"}}')

    def test_a_failed_download_leaves_nothing(self) -> None:
        with self.assertRaisesRegex(ToolError, "mmdebstrap failed"):
            self.ensure()
        self.assertFalse(self.image.exists())
        asked = self.log.read_text()
        self.assertIn("--architectures=amd64", asked)
        self.assertIn("deb http://mirror/ trixie main", asked)

    def test_what_fits_is_kept(self) -> None:
        self.put(guestimage.recipe_key("amd64", "trixie"))
        self.assertEqual(self.ensure(), self.image)
        self.assertFalse(self.log.exists())

    def test_another_recipe_is_made_again(self) -> None:
        self.put(guestimage.recipe_key("amd64", "bookworm"))
        with self.assertRaisesRegex(ToolError, "mmdebstrap failed"):
            self.ensure()
        self.assertTrue(self.image.exists(), "the old one went too early")

    def test_a_half_written_one_is_made_again(self) -> None:
        self.image.mkdir(parents=True)
        (self.image / "guest.json").write_text("{")
        with self.assertRaisesRegex(ToolError, "mmdebstrap failed"):
            self.ensure()


if __name__ == "__main__":
    unittest.main()
