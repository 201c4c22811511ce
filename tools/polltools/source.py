# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the source of a base comes from.

What is downloaded is trusted when its checksum is listed in bases/<base>, or
when the tree that it gives is the one in bases/<base>.tree.  A source that the
user names is the user's own decision: there the series itself decides, because
every file that it touches must have the blob id that the patches name.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable, Dict, Iterator, List, Optional

from . import aptsource
from .aptsource import OPTIONS, TIMEOUT_S
from .common import (CACHE, Base, ToolError, Unavailable, clean_env, run, say,
                     shown)

CHUNK = 1 << 20
# The sections of a base that name an archive, and the key that has its place.
ARCHIVES = {aptsource.SECTION: "orig", "release": "url",
            "debian-pool": "path"}
NOT_USED = ".not-used"


class NoSource(ToolError):
    """No source of a base can be had here."""


@dataclass(frozen=True)
class Source:
    """A source that was found."""

    path: Path
    # The user vouches for it: extra files stay, another tree is accepted.
    own: bool = False
    # A commit of the git repository at path; None: a directory or archive.
    commit: Optional[str] = None


def sources(base: Base, own: str) -> Iterator[Source]:
    """Try the sources in order and say how each attempt ended.  Whoever takes
    one and finds it unfit asks for the next; at the end comes an error."""
    if own:
        yield _own_source(base, own)
        return
    for attempt in _attempts(base):
        try:
            yield attempt(base)
        except Unavailable as reason:
            say(f"  not available: {reason}")
    names = dict.fromkeys(_file_of(base, section) for section in ARCHIVES
                          if section in base.config)
    raise NoSource(
        f"no source of QEMU {base.version} can be had here. What helps:\n"
        f"  - name one that you have: make checkout BASE={base.name} "
        f"QEMU_SRC=<directory, git clone or archive of {base.version}>\n"
        f"  - put {' or '.join(names)} into {shown(CACHE)}/\n"
        "  - a network that reaches one of the addresses above (proxies are "
        "taken from https_proxy)")


def _attempts(base: Base) -> List[Callable[[Base], Source]]:
    """What to try, in this order: what the base names, after the cache."""
    named: Dict[str, Callable[[Base], Source]] = {
        aptsource.SECTION: _from_debian_source, "release": _from_release,
        "git": _from_git, "debian-pool": _from_debian_pool}
    return [_from_cache, *(attempt for section, attempt in named.items()
                           if section in base.config)]


def set_aside(found: Source) -> Path:
    """Keep a download that is not what it should be, but do not use it."""
    aside = found.path.with_name(found.path.name + NOT_USED)
    if aside.is_dir():
        shutil.rmtree(aside)
    found.path.rename(aside)
    return aside


def _own_source(base: Base, name: str) -> Source:
    """QEMU_SRC: a directory, a git clone or an archive."""
    path = Path(name).expanduser().resolve()
    say(f"source: QEMU_SRC={name}")
    if path.is_file():
        return Source(path, own=True)
    if not path.is_dir():
        raise ToolError(f"QEMU_SRC={name} does not exist; name a directory, "
                        "a git clone or an archive of QEMU " + base.version)
    if (path / ".git").exists():
        commit = _commit_in_clone(base, path)
        return Source(path, own=True, commit=commit)
    if not (path / "VERSION").exists():
        raise ToolError(f"QEMU_SRC={name} is not a QEMU source tree: it has "
                        "no file VERSION")
    return Source(path, own=True)


def _commit_in_clone(base: Base, path: Path) -> str:
    """The release in a git clone: its tag, or else what is checked out."""
    tag = base.config.get("git", "tag", fallback="")
    for name in (f"refs/tags/{tag}", "refs/tags/base", "HEAD"):
        done = run(["git", "-c", f"safe.directory={path}", "-C", path,
                    "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"],
                   check=False, env=clean_env())
        if done.returncode == 0:
            say(f"  using its {name}")
            return done.stdout.decode().strip()
    raise ToolError(f"QEMU_SRC={path}: the git clone has no commit")


def _file_of(base: Base, section: str) -> str:
    """The name of an archive in the cache."""
    archive = base.config[section]
    return archive[ARCHIVES[section]].rsplit("/", 1)[-1]


def _new_in_cache(name: str) -> Path:
    """Where a download goes, unless it turned out to be useless before."""
    aside = CACHE / (name + NOT_USED)
    if aside.exists():
        raise Unavailable(f"it was not what it should be, see {shown(aside)}")
    return CACHE / name


def _from_cache(base: Base) -> Source:
    say(f"source: the cache, {shown(CACHE)}/")
    for section in ARCHIVES:
        if section not in base.config:
            continue
        path = CACHE / _file_of(base, section)
        if not path.exists():
            continue
        wanted = base.config.get(section, "sha256", fallback="")
        if wanted and sha256(path) != wanted:
            say(f"  {shown(path)} has a wrong checksum and is removed")
            path.unlink()
            continue
        say(f"  found {path.name}")
        return Source(path)
    raise Unavailable("no archive of this release there")


def _from_debian_source(base: Base) -> Source:
    section = base.config[aptsource.SECTION]
    say(f"source: the source package {section['package']} of Debian "
        f"{section['suite']}, with apt")
    path = _new_in_cache(section["orig"])
    archive = aptsource.Archive(base)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".apt-", dir=CACHE) as name:
        archive.download(Path(name), "--tar-only")
        part = Path(name) / section["orig"]
        if not part.exists():
            raise Unavailable(f"version {archive.version} has no {part.name}")
        _accept(part, path, section.get("sha256", ""))
    return Source(path)


def _from_release(base: Base) -> Source:
    url = base.config["release"]["url"]
    say(f"source: the release, {url}")
    path = _new_in_cache(_file_of(base, "release"))
    download(url, path, base.config.get("release", "sha256", fallback=""))
    if not tarfile.is_tarfile(path):
        path.unlink()
        raise Unavailable("what was sent is not an archive")
    return Source(path)


def _from_git(base: Base) -> Source:
    section = base.config["git"]
    url, tag = section["url"], section["tag"]
    say(f"source: tag {tag} of {url}")
    path = _new_in_cache(f"git-{tag}")
    _probe(f"{url}/info/refs?service=git-upload-pack")
    fresh = CACHE / f".{path.name}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    done = subprocess.run(
        ["git", "-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=30",
         "-c", "advice.detachedHead=false", "clone", "--depth=1",
         f"--branch={tag}", url, fresh], env=clean_env(), check=False,
        stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        done = subprocess.run(["meson", "subprojects", "download",
                               *section["subprojects"].split()],
                              cwd=fresh, check=False)
    if done.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        raise Unavailable("see above")
    shutil.rmtree(path, ignore_errors=True)
    fresh.rename(path)
    return Source(path, commit="HEAD")


def _from_debian_pool(base: Base) -> Source:
    section = base.config["debian-pool"]
    say(f"source: the Debian archive, {section['path']}")
    path = CACHE / _file_of(base, "debian-pool")
    apt_download(section["path"], path, section["sha256"])
    return Source(path)


def _probe(url: str) -> None:
    """Fail soon when a host does not answer; git itself waits for minutes."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S):
            pass
    except (OSError, ValueError) as error:
        raise Unavailable(_reason(error)) from error


def _reason(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or error
    return str(reason) or type(error).__name__


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(CHUNK), b""):
            digest.update(block)
    return digest.hexdigest()


def download(url: str, path: Path, wanted: str) -> None:
    """Download to a temporary name; rename when it is complete and right."""
    CACHE.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            size = int(answer.headers.get("Content-Length") or 0)
            with part.open("wb") as file:
                _copy_stream(answer, file, size)
    except (OSError, ValueError) as error:
        part.unlink(missing_ok=True)
        raise Unavailable(_reason(error)) from error
    got = part.stat().st_size
    if size and got != size:
        part.unlink()
        raise Unavailable(f"the download ended after {got} of {size} bytes")
    _accept(part, path, wanted)


def _copy_stream(answer: IO[bytes], file: IO[bytes], size: int) -> None:
    """Copy with a line of progress every few seconds."""
    done, last = 0, time.monotonic()
    for block in iter(lambda: answer.read(CHUNK), b""):
        file.write(block)
        done += len(block)
        if time.monotonic() - last >= 5:
            last = time.monotonic()
            of = f" of {size >> 20}" if size else ""
            say(f"  {done >> 20}{of} MiB")


def _accept(part: Path, path: Path, wanted: str) -> None:
    """Give a complete download its name, if its checksum is right."""
    got = sha256(part)
    if wanted and got != wanted:
        part.unlink()
        raise Unavailable(f"wrong checksum: sha256 is {got}, {wanted} is "
                          "expected; the file was removed")
    part.rename(path)
    say(f"  {'verified' if wanted else 'received'} {path.name}")


def debian_mirrors() -> List[str]:
    """The archives that apt is configured for, those with 'main' first."""
    try:
        done = run(["apt-get", "indextargets", "--format",
                    "$(COMPONENT) $(REPO_URI)", "Created-By: Packages"],
                   check=False)
    except ToolError:
        return []
    found = []
    for line in done.stdout.decode().splitlines():
        component, _, address = line.partition(" ")
        if component == "main" and address not in found:
            found.append(address)
    return found


def apt_download(pool_path: str, path: Path, wanted: str) -> None:
    """Fetch a file of the Debian archive with apt's own helper."""
    helper = Path("/usr/lib/apt/apt-helper")
    mirrors = debian_mirrors()
    if not mirrors or not helper.exists():
        raise Unavailable("apt is not configured here (not a Debian machine?)")
    CACHE.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    problem = ""
    for mirror in mirrors:
        part.unlink(missing_ok=True)
        done = run([helper, *OPTIONS, "-o", "APT::Sandbox::User=root",
                    "download-file", mirror.rstrip("/") + "/" + pool_path,
                    part], check=False)
        if done.returncode == 0 and part.exists():
            _accept(part, path, wanted)
            return
        problem = aptsource.reason(done)
    part.unlink(missing_ok=True)
    raise Unavailable(problem)


def unpack(source: Source, target: Path) -> None:
    """Put the files of a source into a new directory."""
    target.mkdir(parents=True)
    if source.commit is not None:
        _unpack_clone(source, target)
    elif source.path.is_dir():
        for path in sorted(source.path.iterdir()):
            if path.name not in (".git", "build"):
                _copy(path, target / path.name)
    else:
        done = run(["tar", "-xf", source.path, "-C", target, "--no-same-owner",
                    "--strip-components=1"], check=False)
        if done.returncode != 0:
            raise ToolError(f"{source.path} cannot be unpacked:\n"
                            + done.stderr.decode(errors="replace").strip())
    if not (target / "VERSION").exists():
        raise ToolError(f"{source.path} is not a QEMU source: it has no file "
                        "VERSION")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def _unpack_clone(source: Source, target: Path) -> None:
    """A commit, and the subprojects that lie beside it in the clone."""
    archive = target / ".archive.tar"
    run(["git", "-c", f"safe.directory={source.path}", "-C", source.path,
         "archive", "-o", archive, source.commit], env=clean_env())
    run(["tar", "-xf", archive, "-C", target, "--no-same-owner"])
    archive.unlink()
    beside = source.path / "subprojects"
    for path in sorted(beside.iterdir()) if beside.is_dir() else []:
        wrap = beside / f"{path.name}.wrap"
        copy = target / "subprojects" / path.name
        if path.is_dir() and wrap.exists() and not copy.exists():
            shutil.copytree(path, copy, symlinks=True,
                            ignore=shutil.ignore_patterns(".git"))
