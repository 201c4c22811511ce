# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the kernel and the initramfs of the test guest.

mmdebstrap downloads and unpacks the packages (checked by apt's signatures;
nothing is installed and nothing of the other architecture is run), this
module picks the files.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Tuple

from .common import ToolError, shown

INIT = Path(__file__).with_name("guest-init")

# What the guest needs beyond what the kernel has built in.  A name may be a
# module in one Debian release and built in in another.
MODULES = {
    "amd64": ["virtio_pci", "virtio_blk", "virtio_console"],
    "s390x": ["virtio_blk", "virtio_console"],
}
FIO = "usr/bin/fio"
BUSYBOX = "usr/bin/busybox"


def say(message: str) -> None:
    """Show progress; standard output is for the result."""
    print(f"guest-image: {message}", file=sys.stderr, flush=True)


# --- where the packages come from -----------------------------------------

def host_codename() -> str:
    """Return the Debian release of this machine, '' if it is none."""
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return ""
    facts = dict(line.split("=", 1) for line in text.splitlines()
                 if "=" in line)
    if facts.get("ID", "").strip('"') != "debian":
        return ""
    return facts.get("VERSION_CODENAME", "").strip('"')


def apt_targets() -> List[Tuple[str, str, str, str]]:
    """List (origin, codename, release as configured, address) of apt."""
    fields = "$(ORIGIN)|$(CODENAME)|$(RELEASE)|$(REPO_URI)|$(COMPONENT)"
    command = ["apt-get", "indextargets", "--format", fields]
    # Before the first "apt-get update" only the second form knows anything.
    for option in ("--release-info", "--no-release-info"):
        try:
            text = subprocess.run([*command, option, "Created-By: Packages"],
                                  check=True, stdout=subprocess.PIPE,
                                  text=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise ToolError(f"cannot read the configuration of apt: {error}; "
                            "name the source with --suite and --mirror")
        if text:
            break
    return select_main(text)


def select_main(text: str) -> List[Tuple[str, str, str, str]]:
    """Pick component main from the output of 'apt-get indextargets'.

    Without release information apt prints the names of the fields for
    origin and codename.
    """
    targets = []
    for line in text.splitlines():
        origin, codename, release, uri, component = line.split("|")
        if component != "main":
            continue
        known = not codename.startswith("$")
        targets.append((origin if known else "Debian",
                        codename if known else release, release, uri))
    return targets


def apt_sources(targets: Iterable[Tuple[str, str, str, str]],
                suite: str) -> List[str]:
    """Return the sources of a release: itself, its updates and security."""
    wanted = (suite, f"{suite}-updates", f"{suite}-security")
    lines = [f"deb {uri} {release} main"
             for origin, codename, release, uri in targets
             if origin == "Debian" and codename in wanted]
    return list(dict.fromkeys(lines))


def proxy_options() -> List[str]:
    """Hand the proxy and TLS settings of this machine's apt on."""
    text = subprocess.run(["apt-config", "dump", "Acquire"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return [f"--aptopt={line}" for line in text.splitlines()
            if re.match(r'Acquire::https?::\S+ "[^"]+";', line)]


# --- what is picked from the packages ---------------------------------------

class Packages:
    """The unpacked packages, a tar archive, seen as one merged /usr."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._members = {self.merged(member.name): member
                         for member in archive if not member.isdir()}
        self._libraries: Dict[str, str] = {}
        for name in sorted(self._members, key=len, reverse=True):
            if name.startswith("usr/lib"):
                # Shortest path last: it wins over private copies.
                self._libraries[os.path.basename(name)] = name

    @staticmethod
    def merged(name: str) -> str:
        name = os.path.normpath(name).lstrip("/")
        if re.match(r"(bin|sbin|lib\w*)/", name):
            name = f"usr/{name}"
        return name

    def names(self) -> Iterable[str]:
        return self._members

    def read(self, name: str) -> bytes:
        member = self._members.get(name)
        if member is None:
            raise ToolError(f"{name}: not in the packages")
        if member.issym():
            target = os.path.join("/", os.path.dirname(member.name),
                                  member.linkname)
            return self.read(self.merged(target))
        data = self._archive.extractfile(member)
        if data is None:
            raise ToolError(f"{name}: neither a file nor a link to one")
        return data.read()

    def library(self, soname: str) -> str:
        if soname not in self._libraries:
            raise ToolError(f"library {soname}: not in the packages")
        return self._libraries[soname]


def elf_needs(data: bytes) -> List[str]:
    """Return the libraries and the program loader that an ELF file needs."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        text = subprocess.run(
            ["readelf", "--wide", "--dynamic", "--program-headers", file.name],
            check=True, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "LC_ALL": "C"}).stdout
    needs = re.findall(r"\(NEEDED\)\s+Shared library: \[(.+)\]", text)
    loader = re.findall(r"\[Requesting program interpreter: (.+)\]", text)
    return needs + [os.path.basename(path) for path in loader]


def program_files(packages: Packages, program: str) -> Dict[str, bytes]:
    """Return a program and every library it needs, by path."""
    files: Dict[str, bytes] = {}
    todo = [program]
    while todo:
        name = todo.pop()
        if name in files:
            continue
        files[name] = packages.read(name)
        todo += map(packages.library, elf_needs(files[name]))
    return files


def module_name(path: str) -> str:
    return os.path.basename(path).split(".ko")[0].replace("-", "_")


def module_needs(data: bytes, path: str) -> List[str]:
    """Return the modules that a module names in its .modinfo section."""
    found = re.search(rb"\0depends=([^\0]*)\0", data)
    if found is None:
        raise ToolError(f"{path}: no depends= in this kernel module")
    return [name.replace("-", "_")
            for name in found.group(1).decode().split(",") if name]


def module_files(packages: Packages,
                 wanted: Iterable[str]) -> Dict[str, bytes]:
    """Return modules and what they depend on, in the order of loading."""
    paths = {module_name(name): name for name in packages.names()
             if re.search(r"/kernel/.*\.ko(\.xz)?$", name)}
    builtin = {module_name(line)
               for name in packages.names() if name.endswith("modules.builtin")
               for line in packages.read(name).decode().splitlines()}
    files: Dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in builtin or name in files:
            return
        if name not in paths:
            raise ToolError(f"kernel module {name}: neither in the packages "
                            "nor built in")
        data = packages.read(paths[name])
        if paths[name].endswith(".xz"):
            data = lzma.decompress(data)
        for need in module_needs(data, paths[name]):
            add(need)
        files[name] = data

    for name in wanted:
        add(name)
    return files


# --- the initramfs ------------------------------------------------------------

def cpio_entry(inode: int, name: str, mode: int,
               data: bytes = b"") -> Iterator[bytes]:
    """Yield one entry of the 'newc' format, see cpio(5)."""
    header = [inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0,
              len(name) + 1, 0]
    start = b"070701" + b"".join(b"%08X" % field for field in header)
    start += name.encode() + b"\0"
    yield start + b"\0" * (-len(start) % 4)
    yield data + b"\0" * (-len(data) % 4)


def cpio(files: Dict[str, Tuple[int, bytes]]) -> Iterator[bytes]:
    """Yield an archive of files {path: (mode, data)} and their directories.

    /dev/console is part of every kernel.
    """
    entries = {str(parent): (0o040755, b"") for name in files
               for parent in Path(name).parents if parent != Path(".")}
    entries.update(files)
    # A directory sorts before what is in it.
    for inode, name in enumerate(sorted(entries), 1):
        yield from cpio_entry(inode, name, *entries[name])
    yield from cpio_entry(0, "TRAILER!!!", 0)


def guest_files(packages: Packages,
                arch: str) -> Dict[str, Tuple[int, bytes]]:
    modules = module_files(packages, MODULES[arch])
    files = {name: (0o100755, data)
             for name, data in program_files(packages, FIO).items()}
    files[BUSYBOX] = (0o100755, packages.read(BUSYBOX))
    files["init"] = (0o100755, INIT.read_bytes())
    for name, data in modules.items():
        files[f"modules/{name}.ko"] = (0o100644, data)
    order = "".join(f"{name}.ko\n" for name in modules)
    files["modules/order"] = (0o100644, order.encode())
    for link in ("bin", "lib", "lib64"):
        files[link] = (0o120777, f"usr/{link}".encode())
    return files


def unpacked_kernel(image: bytes) -> bytes:
    """Return what an x86 bzImage has packed with xz, else the image itself.

    Unpacking xz is most of the time that a guest takes to boot when its CPU
    is emulated.  QEMU starts the unpacked kernel by its PVH entry.  The
    fields are those of the Linux/x86 boot protocol.
    """
    if image[0x202:0x206] != b"HdrS":
        return image
    setup_sectors = image[0x1f1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start:start + length]
    if not payload.startswith(b"\xfd7zXZ\0"):
        return image
    return lzma.LZMADecompressor().decompress(payload)


def write_guest(packages: Packages, arch: str, key: str, out: Path) -> None:
    kernels = [name for name in packages.names()
               if name.startswith("boot/vmlinuz-")]
    if len(kernels) != 1:
        raise ToolError(f"expected one kernel in the packages, found {kernels}")
    kernel = packages.read(kernels[0])
    if arch == "amd64":
        kernel = unpacked_kernel(kernel)
    (out / "kernel").write_bytes(kernel)
    with open(out / "initramfs", "wb") as file:
        file.writelines(cpio(guest_files(packages, arch)))
    facts = {"recipe": key, "arch": arch,
             "kernel": kernels[0].replace("boot/vmlinuz-", "")}
    (out / "guest.json").write_text(json.dumps(facts, indent=2) + "\n",
                                    encoding="utf-8")


# --- the steps -------------------------------------------------------------

def recipe_key(arch: str, suite: str) -> str:
    """Name the recipe: whatever changes the image changes the key."""
    content = hashlib.sha256()
    for part in (Path(__file__).read_bytes(), INIT.read_bytes(),
                 arch.encode(), suite.encode()):
        content.update(hashlib.sha256(part).digest())
    return content.hexdigest()


def is_current(image: Path, key: str) -> bool:
    try:
        text = (image / "guest.json").read_text(encoding="utf-8")
        return bool(json.loads(text)["recipe"] == key)
    except (OSError, ValueError, KeyError):
        return False


def download(arch: str, suite: str, sources: List[str], tar: Path) -> None:
    packages = f"linux-image-{arch},fio,busybox-static"
    say(f"downloading and unpacking {packages} ({suite}, {arch}); "
        "about 150 MB")
    command = ["mmdebstrap", "--mode=auto", "--variant=extract",
               f"--architectures={arch}", f"--include={packages}",
               *proxy_options(), suite, str(tar), *sources]
    if subprocess.run(command, stdin=subprocess.DEVNULL).returncode != 0:
        raise ToolError("mmdebstrap failed, see above. Without root it needs "
                        "user namespaces and newuidmap (package uidmap); the "
                        f"mirror must carry {arch}, another one is given with "
                        "--mirror")


def build(arch: str, suite: str, sources: List[str], key: str,
          image: Path) -> None:
    """Make the image in a directory of its own, then rename it."""
    for program, package in (("mmdebstrap", "mmdebstrap"),
                             ("readelf", "binutils")):
        if not shutil.which(program):
            raise ToolError(f"{program} is missing: apt-get install {package}")
    work = image.with_name(f"{image.name}.part")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    tar = work / "packages.tar"
    download(arch, suite, sources, tar)
    say("picking fio, busybox, the kernel and its modules")
    with tarfile.open(tar) as archive:
        write_guest(Packages(archive), arch, key, work)
    tar.unlink()
    shutil.rmtree(image, ignore_errors=True)
    work.rename(image)
    say(f"made {shown(image)}")


def sources_of(suite: str, mirror: str) -> List[str]:
    if mirror:
        return [f"deb {mirror} {suite} main"]
    sources = apt_sources(apt_targets(), suite)
    if not sources:
        raise ToolError(f'apt has no Debian source for {suite}; run "apt-get '
                        'update", or give --suite or --mirror')
    return sources


def ensure(cache: Path, arch: str, suite: str = "", mirror: str = "") -> Path:
    """Return the directory of an image that fits the recipe; make it."""
    suite = suite or host_codename()
    if not suite:
        raise ToolError("this machine does not name a Debian release; give "
                        "one with --suite, and --mirror if apt is not set up "
                        "for it")
    image = cache / f"guest-{arch}"
    key = recipe_key(arch, suite)
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f"guest-{arch}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_current(image, key):
            build(arch, suite, sources_of(suite, mirror), key, image)
    return image
