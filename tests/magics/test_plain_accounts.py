"""Test of an account with nothing prepared: no root, ``LANG=C``, no runtime directory, a home with a blank and umlauts."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.slurm, pytest.mark.root]

_CODE = r"""
%load_ext jupyter_slurm
import os
get_ipython().run_cell_magic("sbatch", "wait", "print('Grüße aus', __import__('os').getcwd())")
get_ipython().run_cell_magic("sbatch", "wait", '#!/bin/sh\necho "größer, in $PWD"\n')
"""


def test_cells_run_for_an_account_without_anything_prepared(
    cluster: EmbeddedCluster,
    alice: str,
    user_python: tuple[list[str], dict[str, str]],
    short_tmp: Path,
) -> None:
    (python, variables), account, home = user_python, pwd.getpwnam(alice), short_tmp / "Jörg Müller"
    runtime = Path(f"/tmp/jupyter-slurm-{account.pw_uid}")
    assert not Path(f"/run/user/{account.pw_uid}").exists()
    home.mkdir(mode=0o700)
    os.chown(home, account.pw_uid, account.pw_gid)
    bare = {"PATH": os.environ["PATH"], "HOME": str(home), "USER": alice, "LANG": "C", "TERM": "dumb", **variables}
    env = {**cluster.env(bare), **cluster.owned()}

    def run(*words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*python, "-P", "-m", *words], env=env, user=alice, group=account.pw_gid, extra_groups=[], cwd=home,
            input=typed, capture_output=True, encoding="utf-8", timeout=240, check=False,
        )  # fmt: skip

    try:
        done = run("IPython", "--simple-prompt", "--no-banner", "--colors=NoColor", typed=_CODE)
        assert (done.returncode, "Traceback" in done.stdout) == (0, False), done
        assert f"Grüße aus {home}\n" in done.stdout, done
        assert f"größer, in {home}\n" in done.stdout, done
        assert runtime.stat().st_uid == account.pw_uid, "the agent is where it needs no login"
    finally:
        stopped = run("jupyter_slurm.cli.main", "agent", "stop")
        shutil.rmtree(runtime, ignore_errors=True)
        shutil.rmtree(home)
    assert stopped.returncode == 0, stopped
