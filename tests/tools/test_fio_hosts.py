# SPDX-License-Identifier: GPL-2.0-or-later
"""The playbook for several hosts: two names for this machine, and a
repository whose 'make fio' only writes down what it was asked."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOK = ROOT / "bench/ansible/fio.yml"

MAKEFILE = """\
fio:
\t@test "$(MATRIX)" != broken
\t@mkdir -p $(OUT)/runs
\t@echo "$(MATRIX) A=$(QEMU_A) B=$(QEMU_B) $(ROUNDS)" >>$(OUT)/asked
\t@echo figures >$(OUT)/runs/one
"""


@unittest.skipUnless(shutil.which("ansible-playbook"),
                     "ansible-playbook is not installed (ansible-core)")
class Hosts(unittest.TestCase):

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.dir = Path(temp.name)
        source = self.dir / "source"
        source.mkdir()
        (source / "Makefile").write_text(MAKEFILE)
        env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
        for words in (["init", "--quiet"], ["add", "--all"],
                      ["-c", "user.name=a", "-c", "user.email=a@b", "commit",
                       "--quiet", "-m", "toy"]):
            subprocess.run(["git", *words], cwd=source, env=env, check=True)
        python = shutil.which("python3")
        (self.dir / "hosts.ini").write_text("".join(
            f"{name} ansible_connection=local fio_dir={self.dir}/{name} "
            f"ansible_python_interpreter={python} {more}\n"
            for name, more in (("one", "fio_qemu_b=/opt/qemu"),
                               ("two", ""), ("bad", "fio_matrix=broken"))))

    def play(self, *settings: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["ansible-playbook", "-i", str(self.dir / "hosts.ini"),
             str(PLAYBOOK), "-e", f"fio_source={self.dir}/source",
             "-e", "fio_poll_s=1", *settings],
            env={**os.environ,
                 **{f"ANSIBLE_{name}": str(self.dir / "ansible")
                    for name in ("ASYNC_DIR", "LOCAL_TEMP", "REMOTE_TEMP",
                                 "HOME")}},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)

    def test_results_of_every_host(self) -> None:
        """A host that fails does not keep the others from finishing."""
        done = self.play("-e", "fio_make=ROUNDS=7")
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("failed=1"), 1, done.stdout)
        results = self.dir / "source/build/fio-hosts"
        self.assertEqual((results / "one/asked").read_text(),
                         "quick A= B=/opt/qemu 7\n")
        self.assertEqual((results / "two/asked").read_text(),
                         "quick A= B= 7\n")
        self.assertEqual((results / "two/runs/one").read_text(), "figures\n")
        self.assertEqual(list((results / "bad").iterdir()), [])


if __name__ == "__main__":
    unittest.main()
