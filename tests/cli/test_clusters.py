"""Tests of the cluster that a command in a terminal uses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import Site


def test_a_laptop_has_no_slurm_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    settings = {
        "sites": [str(tmp_path / "sites")],
        "runtime_dir": str(tmp_path / "run"),
        "state_dir": str(tmp_path / "s"),
    }
    (tmp_path / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": settings}))
    (tmp_path / "sites" / "far.toml").write_text('[login]\nhost = "login.invalid"\n')
    env = {**os.environ, "PATH": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "jupyter_slurm.cli.main", *words]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)

    done = run("doctor")
    assert done.returncode == 1
    assert "`jupyter slurm doctor NAME`" in done.stderr
    assert "Clusters: far." in done.stderr
    done = run("jobs")
    assert done.returncode == 1
    assert "This computer has no Slurm, and no cluster is chosen. Site profiles: far." in done.stderr
    assert "--cluster far" in done.stderr
    assert not (tmp_path / "run").exists(), "no agent was started for that"
    done = run("clean")
    run("agent", "stop")
    assert (done.returncode, done.stdout) == (1, "")
    assert "No cluster is connected" in done.stderr
    assert "Run `jupyter slurm connect NAME` first." in done.stderr


@pytest.mark.slurm
@pytest.mark.root
@pytest.mark.slow
def test_jobs_of_a_cluster_far_away(laptop: Any, ssh_site: Site, wait_for: Callable[..., Any]) -> None:
    laptop.knows(ssh_site)
    laptop.write("sites/far.toml", '[login]\nhost = "login"\n')
    argv = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp", "--wrap=sleep 600")
    job = ssh_site.slurm.run(*argv, user=ssh_site.user).stdout.strip()
    dialogue = [("erification code", ssh_site.codes.next)]
    listed = laptop.slurm("jobs", "--cluster", "far", dialogue=dialogue)
    assert listed.code == 0, listed.text
    assert job in [line.split()[0] for line in listed.text.splitlines() if line.strip()]
    laptop.write("sites/torn.toml", "[login")
    told = laptop.printed("connect").stdout
    assert "far: connected since" in told
    assert "torn: cannot be used: " in told
    assert "1970" not in told
    assert laptop.printed("clean", "--dry-run").stdout.endswith("0 would be removed, 0 kept.\n")
    assert "sleep 600" in laptop.printed("show", job, "--script", "--cluster", "far").stdout
    for command in (("show", job), ("report", job), ("cancel", job), ("hold", job), ("tunnel", job, "8888")):
        elsewhere = laptop.printed(*command)
        assert (elsewhere.returncode, elsewhere.stdout) == (1, ""), "a number alone acts on no other cluster"
        assert f"far has a job {job}: add `--cluster far`" in elsewhere.stderr, elsewhere
    server = ("--", "python3", "-m", "http.server", "--bind", "127.0.0.1", "{port}")
    begun = laptop.slurm("launch", "far", "noopen", "name=w", "--chdir=/tmp", *server)
    assert begun.code == 0, begun.text
    assert "Cluster far has 1 more: `jupyter slurm sessions --cluster far`." in laptop.printed("sessions").stderr
    assert "far" not in laptop.printed("log", "nobody").stderr
    assert laptop.printed("log", "w").returncode == 0
    _check_sessions_without_slurm(laptop)
    stopped = laptop.printed("stop", "w")
    assert (stopped.returncode, "Stopped: Session" in stopped.stdout) == (0, True), stopped
    assert laptop.printed("cancel", job, "--cluster", "far").returncode == 0
    question = ("squeue", "--noheader", f"--jobs={job}", "--states=PD,R", "--format=%T")
    wait_for(lambda: not ssh_site.slurm.run(*question).stdout, "the job to be cancelled")


def _check_sessions_without_slurm(laptop: Any) -> None:
    """Check that sessions need no chosen cluster on a computer without the Slurm commands."""
    programs = laptop.home / "programs"
    programs.mkdir()
    (programs / "setpriv").symlink_to(str(shutil.which("setpriv")))
    everything, laptop.environment["PATH"] = laptop.environment["PATH"], str(programs)
    listed = laptop.printed("sessions")
    assert (listed.returncode, listed.stderr) == (0, ""), listed
    assert listed.stdout.splitlines()[1].startswith("w "), listed
    assert laptop.printed("log").returncode == 0
    assert "no cluster is chosen" in laptop.printed("jobs").stderr
    laptop.environment["PATH"] = everything
