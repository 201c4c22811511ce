# SPDX-License-Identifier: GPL-2.0-or-later
"""Paths, bases, errors and processes: what every tool needs."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
CACHE = BUILD / "cache"
DEFAULT_BASE = "v11.0"


class ToolError(Exception):
    """Something the user has to know; its text names the next step."""


class Unavailable(Exception):
    """Something cannot be had; whoever asked for it tries something else."""


def say(text: str) -> None:
    """One line of progress, in order with the output of child processes."""
    print(text, flush=True)


def main(tool: Callable[[], int]) -> None:
    """Run a tool: errors become one message and a non-zero exit."""
    try:
        status = tool()
    except ToolError as error:
        name = os.path.relpath(sys.argv[0])
        sys.stdout.flush()
        print(f"{name}: error: {error}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        print("interrupted; the same command starts again", file=sys.stderr)
        status = 130
    sys.exit(status)


def run(command: Sequence[object], *, cwd: Optional[Path] = None,
        env: Optional[Mapping[str, str]] = None, stdin: Optional[bytes] = None,
        check: bool = True) -> "subprocess.CompletedProcess[bytes]":
    """Run a command and keep what it prints; an error shows all of it."""
    words = [str(word) for word in command]
    source = subprocess.DEVNULL if stdin is None else None
    try:
        done = subprocess.run(words, cwd=cwd, env=env, input=stdin,
                              stdin=source, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
    except FileNotFoundError as error:
        raise ToolError(f"{words[0]} is not installed; "
                        "tools/deps installs what is missing") from error
    if check and done.returncode != 0:
        text = (done.stderr + done.stdout).decode(errors="replace").strip()
        raise ToolError(f"'{' '.join(words)}' failed:\n{text}")
    return done


def shown(path: Path) -> str:
    """A path as the user would type it."""
    return os.path.relpath(path)


@dataclass(frozen=True)
class Base:
    """One QEMU version that the series is carried on (a file in bases/)."""

    name: str
    config: configparser.ConfigParser

    @property
    def version(self) -> str:
        return self.config["base"]["version"]

    @property
    def tested(self) -> List[str]:
        return self.words("tested")

    def words(self, key: str) -> List[str]:
        """A list from section [base]."""
        return self.config["base"].get(key, "").split()

    @property
    def bench_only(self) -> bool:
        """A peer: its series is nothing but benchmarks."""
        return self.config["base"].getboolean("bench-only", fallback=False)

    @property
    def patches(self) -> Path:
        return ROOT / "patches" / self.name

    @property
    def build(self) -> Path:
        return BUILD / self.name

    @property
    def src(self) -> Path:
        """The git tree to work in: tag `base`, branch `series`."""
        return self.build / "src"

    def top(self) -> str:
        """The top of the base tree in the format of 'git ls-tree'."""
        path = ROOT / "bases" / f"{self.name}.tree"
        try:
            lines = path.read_text().splitlines()
        except FileNotFoundError as error:
            raise ToolError(f"{shown(path)} is missing; tools/base-tree "
                            "writes it") from error
        return "".join(f"{line}\n" for line in lines
                       if not line.startswith("#"))


def base_names() -> List[str]:
    """The bases that exist."""
    return sorted(path.name for path in (ROOT / "bases").iterdir()
                  if path.is_file() and path.suffix != ".tree")


def load_base(name: str) -> Base:
    """Read bases/NAME."""
    names = base_names()
    if name not in names:
        raise ToolError(f"BASE={name} is not known; "
                        f"bases/ has: {', '.join(names)}")
    config = configparser.ConfigParser(interpolation=None)
    path = ROOT / "bases" / name
    try:
        config.read_string(path.read_text(), source=str(path))
        config["base"]["version"]
    except (configparser.Error, KeyError) as error:
        raise ToolError(f"{shown(path)} cannot be read: {error}") from error
    return Base(name, config)


def default_base() -> str:
    """The base that is meant when none is named."""
    return os.environ.get("BASE") or DEFAULT_BASE


def clean_env(extra: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """An environment in which git does the same for every user."""
    env = {key: value for key, value in os.environ.items()
           if not key.startswith("GIT_")}
    env.update(GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1",
               GIT_CONFIG_SYSTEM="/dev/null", GIT_TERMINAL_PROMPT="0",
               LC_ALL="C.UTF-8", TZ="UTC")
    env.update(extra or {})
    return env
