# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's source package of a base, with the series added to it.

The series becomes debian/patches/poll-weight/, after the patches of Debian;
the version gets a suffix, so that it is newer than Debian's and older than
the next one of Debian.  The bytes depend on Debian's package, the series and
the name in the changelog alone.
"""

from __future__ import annotations

import email
import email.policy
import email.utils
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence

from . import aptsource, repo
from .common import (CACHE, Base, ToolError, Unavailable, base_names,
                     clean_env, load_base, run, say, shown)
from .source import sha256

# The directory in debian/patches, and the default suffix of the version.
NAME = "poll-weight"
SUFFIX = "+pollweight1"
# DEP-3: what each patch says, besides its subject.
FIELDS = ("From", "Subject", "Forwarded")
CHANGE = """\
{source} ({version}) {suite}; urgency=medium

  * Add the series {name}, {count} patches (debian/patches/{name}/):
    IOThreads learn how long they wait for events and poll only where that
    pays. New property {name} of the object iothread, 1 to 63.

 -- {who}  {date}

"""


def check_base(base: Base) -> List[repo.Patch]:
    """The patches of a base that a package can be made of."""
    if aptsource.SECTION not in base.config:
        others = [name for name in base_names()
                  if aptsource.SECTION in load_base(name).config]
        raise ToolError(
            f"Debian has no source package for base {base.name}: bases/"
            f"{base.name} has no section [{aptsource.SECTION}]. "
            + (f"Try: make deb BASE={others[0]}" if others else
               "No base has one."))
    patches = repo.read_series(base)
    if not patches:
        raise ToolError(f"{shown(base.patches)} has no series yet, so there "
                        "is nothing to add to the package")
    return patches


def check_suffix(suffix: str) -> str:
    """A suffix that makes a version newer, and is one for dpkg."""
    if not re.fullmatch(r"\+[a-z][A-Za-z0-9.+]*[0-9]", suffix):
        raise ToolError(f"'{suffix}' is no suffix for a version; it begins "
                        f"with + and a letter and ends with a digit, as in "
                        f"{SUFFIX}")
    return suffix


# --- Debian's package --------------------------------------------------------

@dataclass(frozen=True)
class Dsc:
    """A .dsc file and what it lists."""

    path: Path

    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def field(self, name: str) -> str:
        match = re.search(rf"^{name}: (.*)$", self.text(), re.MULTILINE)
        if match is None:
            raise ToolError(f"{shown(self.path)} has no field {name}")
        return match[1].strip()

    def files(self) -> Dict[str, str]:
        """The other files of the package: name and checksum."""
        match = re.search(r"^Checksums-Sha256:\n((?: .*\n)+)",
                          self.text(), re.MULTILINE)
        lines = match[1].splitlines() if match else []
        return {line.split()[2]: line.split()[0] for line in lines}

    def is_complete(self) -> bool:
        """Whether the other files lie beside it and are what it lists."""
        return bool(self.files()) and all(
            (self.path.with_name(name)).exists()
            and sha256(self.path.with_name(name)) == wanted
            for name, wanted in self.files().items())


def obtain(base: Base) -> Dsc:
    """The newest revision in Debian, or else one that was fetched before."""
    section = base.config[aptsource.SECTION]
    say(f"source package {section['package']} of Debian {section['suite']}, "
        "with apt")
    try:
        return _fetch(aptsource.Archive(base))
    except Unavailable as problem:
        say(f"  not available: {problem}")
    known = _cached(base)
    if known is None:
        raise ToolError(
            f"no source package of {section['package']} "
            f"{aptsource.wanted(base)} can be had here. What helps: a network "
            f"that reaches Debian's archive, or its files in {shown(CACHE)}/")
    say(f"  {known.path.name} was fetched before")
    return known


def _fetch(archive: aptsource.Archive) -> Dsc:
    plain = re.sub(r"^\d+:", "", archive.version)
    dsc = Dsc(CACHE / f"{archive.package}_{plain}.dsc")
    if dsc.path.exists() and dsc.is_complete():
        say(f"  {archive.version}, in the cache")
        return dsc
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".apt-", dir=CACHE) as name:
        # apt does not fetch again what lies there and has the right checksum.
        if (CACHE / archive.orig).exists():
            link(CACHE / archive.orig, Path(name) / archive.orig)
        archive.download(Path(name))
        new = Dsc(Path(name) / dsc.path.name)
        # The .dsc comes last: with it, the package is there.
        for file in [*new.files(), dsc.path.name]:
            (Path(name) / file).replace(CACHE / file)
    say(f"  {archive.version}, verified by apt")
    return dsc


def _cached(base: Base) -> Optional[Dsc]:
    package = base.config[aptsource.SECTION]["package"]
    found = {dsc.field("Version"): dsc for dsc in
             map(Dsc, CACHE.glob(f"{package}_{aptsource.wanted(base)}-*.dsc"))
             if dsc.is_complete()}
    return found[aptsource.newest(found)] if found else None


def link(source: Path, target: Path) -> None:
    """Another name for a file, or a copy where that is not possible."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


# --- the package with the series ---------------------------------------------

# Called with what has been found to be right.
Done = Callable[[str], None]


def make(base: Base, patches: Sequence[repo.Patch], dsc: Dsc, suffix: str,
         work: Path, done: Done) -> Dsc:
    """Write the new source package into an empty directory."""
    for name in dsc.files():
        if ".orig" in name:
            link(dsc.path.with_name(name), work / name)
    tree = work / "tree"
    dpkg(work, "dpkg-source", "--skip-patches", "--extract", dsc.path, tree)
    done(f"{dsc.path.name} unpacks, its checksums are right")
    _add_patches(tree, patches)
    done("each patch has the fields of DEP-3")
    for name in _push(tree, patches):
        done(f"quilt push without fuzz: {name}")
    version = _add_change(base, tree, patches, suffix)
    done(f"version {version} is newer than {dsc.field('Version')}")
    dpkg(work, "dpkg-source", "--build", tree)
    shutil.rmtree(tree)
    made = list(work.glob("*.dsc"))
    if len(made) != 1 or not Dsc(made[0]).is_complete():
        raise ToolError("dpkg-source --build left no complete package in "
                        f"{shown(work)}")
    done(f"dpkg-source --build: {made[0].name}")
    return Dsc(made[0])


def dpkg(work: Path, *command: object) -> str:
    """Run one of dpkg's tools; returns what it prints."""
    return run(command, cwd=work, env=clean_env()).stdout.decode(
        errors="replace")


def _add_patches(tree: Path, patches: Sequence[repo.Patch]) -> None:
    """Copy the series behind the patches of Debian."""
    directory = tree / "debian/patches"
    target = directory / NAME
    if target.exists():
        raise ToolError("the package of Debian has the series already "
                        f"(debian/patches/{NAME})")
    target.mkdir(parents=True)
    for patch in patches:
        _check_dep3(patch)
        (target / patch.name).write_bytes(patch.data)
    series = directory / "series"
    text = series.read_text() if series.exists() else ""
    if text and not text.endswith("\n"):
        text += "\n"
    series.write_text(text + "".join(f"{NAME}/{patch.name}\n"
                                     for patch in patches))


def _check_dep3(patch: repo.Patch) -> None:
    header = patch.data.split(b"\n\n", 1)[0].decode(errors="replace")
    for field in FIELDS:
        if not re.search(rf"^{field}: \S", header, re.MULTILINE):
            raise ToolError(f"{patch.name} has no field {field} in its header "
                            "(DEP-3); 'make export' writes it")


def _push(tree: Path, patches: Sequence[repo.Patch]) -> List[str]:
    """All patches, those of Debian too; what was applied of the series."""
    env = {name: value for name, value in clean_env().items()
           if not name.startswith("QUILT_")}
    env["QUILT_PATCHES"] = "debian/patches"
    push = run(["quilt", "--quiltrc", "-", "push", "-a", "--fuzz=0"],
               cwd=tree, env=env, check=False)
    text = (push.stdout + push.stderr).decode(errors="replace")
    if push.returncode != 0:
        raise ToolError("quilt push -a --fuzz=0 failed:\n"
                        + _from_last_patch(text))
    applied = [f"{NAME}/{patch.name}" for patch in patches]
    missing = [name for name in applied
               if f"Applying patch {name}\n" not in text
               and f"Applying patch debian/patches/{name}\n" not in text]
    if missing:
        raise ToolError(f"quilt did not apply {', '.join(missing)}:\n{text}")
    own = text[text.find(f"{NAME}/{patches[0].name}"):]
    moved = len(re.findall(r"^Hunk #.*\boffset\b", own, re.MULTILINE))
    if moved:
        say(f"  note: {moved} hunks of the series were found at other lines")
    return applied


def _from_last_patch(text: str) -> str:
    """The end of quilt's output, from the patch that fails."""
    return text[max(0, text.rfind("Applying patch")):].strip()


def _newest_date(patches: Sequence[repo.Patch]) -> datetime:
    """When the series was last changed."""
    dates = [datetime.fromtimestamp(0, timezone.utc)]
    for patch in patches:
        match = re.search(rb"^Date: (.*)$", patch.data, re.MULTILINE)
        if match is not None:
            dates.append(email.utils.parsedate_to_datetime(match[1].decode()))
    return max(dates)


def _add_change(base: Base, tree: Path, patches: Sequence[repo.Patch],
                suffix: str) -> str:
    """A new entry on top of the changelog; returns the new version."""
    def last(field: str) -> str:
        return dpkg(tree, "dpkg-parsechangelog", "--show-field",
                    field).strip()

    old = last("Version")
    version = old + suffix
    if not aptsource.is_newer(version, old):
        raise ToolError(f"dpkg does not take {version} for newer than {old}; "
                        "use another suffix")
    before = datetime.fromtimestamp(int(last("Timestamp")), timezone.utc)
    date = max(before, _newest_date(patches))
    changelog = tree / "debian/changelog"
    entry = CHANGE.format(
        source=last("Source"), version=version, name=NAME,
        count=len(patches), suite=base.config[aptsource.SECTION]["suite"],
        who=_who(patches), date=email.utils.format_datetime(date))
    changelog.write_bytes(entry.encode() + changelog.read_bytes())
    return version


def _who(patches: Sequence[repo.Patch]) -> str:
    """Who has made the package: as Debian's tools find it out, or else as git
    does, or else the author of the series."""
    found = repo.repository_identity()
    name = os.environ.get("DEBFULLNAME") or found.get("user.name")
    mail = os.environ.get("DEBEMAIL") or found.get("user.email")
    if name and mail:
        return f"{name} <{mail}>"
    last = email.message_from_bytes(patches[-1].data,
                                    policy=email.policy.default)
    return str(last["From"])
