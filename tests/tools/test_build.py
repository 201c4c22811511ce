# SPDX-License-Identifier: GPL-2.0-or-later
"""Building, with a stand-in for configure and ninja: what is built from what,
and what is shown when it fails."""

import os
import sys
import unittest
from pathlib import Path

from toyroot import ToyRoot

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from polltools.arch import host  # noqa: E402

CONFIGURE = """\
#!/bin/sh
# Notes how often it ran and in which tree; meson would do the rest.
echo run >>configure-runs
echo "$@" >configure-arguments
[ ! -e "${0%/*}/broken" ] || { echo the reason; exit 1; }
mkdir -p tests/unit
cp "${0%/*}/util/poll.c" configured-from
"""

# A unit test is a shell script made from a line of the tree.
NINJA = """\
#!/bin/sh
[ "$1" = -C ] && cd "$2" && shift 2
echo "[1/2] Compiling"
echo "warning: noise"
src=$(ls -d ../src)
for target; do
    if [ -e "$src/util/broken.c" ]; then
        echo "FAILED: $target"
        echo "broken.c:1: error: no"
        exit 1
    fi
    case $target in
    tests/unit/*)
        count=$(grep -c ten "$src/util/poll.c")
        printf '#!/bin/sh\\necho 1..2; echo ok 1; echo ok %s\\n' \\
            "2 found $count" >"$target"
        [ ! -e "$src/util/crash.c" ] ||
            printf '#!/bin/sh\\necho 1..2; echo ok 1; kill -9 $$\\n' >"$target"
        chmod +x "$target" ;;
    qemu-system-*) cp "$src/util/poll.c" "$target" ;;
    esac
done
"""

UNIT_TESTS = "tests = {\n  'test-aio': [],\n  'test-bitops': [],\n}\n"


class Build(ToyRoot):

    def make_source(self) -> None:
        super().make_source()
        (self.source / "configure").write_text(CONFIGURE)
        (self.source / "configure").chmod(0o755)
        (self.source / "tests/unit").mkdir(parents=True)
        (self.source / "tests/unit/meson.build").write_text(UNIT_TESTS)

    def write_base(self, more: str = "", tree: object = None) -> None:
        super().write_base(more, tree or self.tree_of_source())

    def setUp(self) -> None:
        super().setUp()
        tools = self.tmp / "bin"
        tools.mkdir()
        (tools / "ninja").write_text(NINJA)
        (tools / "ninja").chmod(0o755)
        self.path = f"{tools}:{os.environ['PATH']}"
        self.obj = self.root / "build/toy/obj"
        # Not self.series(): this toy has other files.
        self._make_series()

    def run_tool(self, *words: str, status: int = 0) -> str:
        return self.tool(*words, status=status, PATH=self.path)

    def emulator(self, obj: str) -> str:
        where = self.root / "build/toy" / obj
        return next(where.glob("qemu-system-*")).read_text()

    def test_series_and_stock(self) -> None:
        self.run_tool("build")
        self.run_tool("build", "--stock")
        self.assertIn("line ten\n", self.emulator("obj"))
        self.assertIn("line 10\n", self.emulator("obj-stock"))
        # Building the stock tree leaves the other one alone.
        self.assertIn("line ten\n", (self.src / "util/poll.c").read_text())
        self.assertEqual(self.git("status", "--porcelain"), "")

    def test_guests_of_another_kind(self) -> None:
        """One build directory has both emulators; only one is built."""
        other = "s390x" if host() == "x86_64" else "x86_64"
        text = self.run_tool("build", "--arch", other)
        self.assertIn(f"ready: build/toy/obj/qemu-system-{other}\n", text)
        built = [path.name for path in self.obj.glob("qemu-system-*")]
        self.assertEqual(built, [f"qemu-system-{other}"])
        self.run_tool("build")
        self.assertTrue((self.obj / f"qemu-system-{host()}").exists())
        runs = (self.obj / "configure-runs").read_text().split()
        self.assertEqual(runs, ["run"])

    def test_unknown_architecture(self) -> None:
        text = self.run_tool("build", "--arch", "vax", status=2)
        self.assertRegex(text, "'vax' .choose from .*x86_64.*s390x|"
                               "'vax' .choose from .*s390x.*x86_64")
        self.assertFalse(self.obj.exists())

    def test_configured_once(self) -> None:
        self.run_tool("build")
        self.run_tool("build")
        runs = (self.obj / "configure-runs").read_text().split()
        self.assertEqual(runs, ["run"])

    def test_firmware_is_where_the_uninstalled_program_looks(self) -> None:
        firmware = self.root / "build/firmware"
        firmware.mkdir(parents=True)
        (firmware / "bios.bin").write_text("bios\n")
        self.run_tool("build")
        words = (self.obj / "configure-arguments").read_text().split()
        option = next(word for word in words
                      if word.startswith("--firmwarepath="))
        first = option.split("=")[1].split(":")[0]
        self.assertTrue((self.obj / f"qemu-bundle{first}/bios.bin").exists())

    def test_configure_fails(self) -> None:
        (self.src / "broken").write_text("")
        text = self.run_tool("build", status=1)
        self.assertIn("configure failed", text)
        self.assertIn("the reason", text)
        (self.src / "broken").unlink()
        self.run_tool("build")

    def test_compiler_fails(self) -> None:
        (self.src / "util/broken.c").write_text("")
        text = self.run_tool("build", status=1)
        self.assertIn("FAILED: qemu-system", text)
        self.assertIn("broken.c:1: error: no", text)
        self.assertIn("ninja -C build/toy/obj", text)
        self.assertNotIn("noise", text)

    def test_unexported_work_is_built_as_it_is(self) -> None:
        self.edit("line 5\n", "line five\n")
        self.assertIn("not committed", self.run_tool("build"))
        self.assertIn("line five\n", self.emulator("obj"))
        self.commit("util: not exported yet")
        self.edit("line 6\n", "line six\n")
        self.assertIn("as it is", self.run_tool("build"))
        self.assertIn("line six\n", self.emulator("obj"))

    def test_every_step_is_built_and_tested(self) -> None:
        text = self.run_tool("check-build")
        self.assertEqual(text.count("  test-aio: 2 passed, 0 failed"), 2)
        self.assertNotIn("test-bitops", text)
        self.assertTrue(text.endswith("4 passed, 0 failed\n"), text)

    def test_step_that_fails(self) -> None:
        """The next patch repairs it, which does not make it good."""
        (self.src / "util/crash.c").write_text("")
        self.commit("util: crash")
        (self.src / "util/crash.c").unlink()
        self.commit("util: do not crash")
        self.run_tool("export")
        text = self.run_tool("check-build", status=1)
        self.assertTrue(text.endswith("7 passed, 1 failed\n"), text)
        self.assertIn("0003-util-crash.patch", text)

    def test_steps_do_not_touch_the_users_tree(self) -> None:
        self.edit("line 5\n", "line five\n")
        self.run_tool("check-build")
        self.assertIn("line five\n", (self.src / "util/poll.c").read_text())

    def test_tree_that_was_removed_by_hand(self) -> None:
        self.run_tool("check-build")
        (self.root / "build/toy/check/src/.git").unlink()
        self.run_tool("check-build")


if __name__ == "__main__":
    unittest.main()
