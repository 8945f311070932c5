"""Tests of another cluster from two files, by the checks of the built-in sites: the command in docs/development/replicas.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROFILE = """
title = "Nordlys, which nobody has"

[login]
host = "login.nordlys.example"

[partitions]
polar = { max_time = "1:00:00" }

[gpus]
h100 = { ask = "--gpus=h100:1" }

[container]
runtime = "charliecloud"

[storage]
shared = "/work/$USER"
local = "/scratch/$USER"
"""
REPLICA = """
[way]
login = "login.nordlys.example"
in = "password"

[storage]
home = "/users/$USER"
shared = ["/work/$USER"]
local = ["/scratch/$USER"]

[software]
runtime = "charliecloud"
images = { "/work/$USER/images/base" = "python" }

[cluster]
name = "nordlys"
extra = ["EnforcePartLimits=ALL"]

[[cluster.nodes]]
names = "n[1-2]"
cpus = 16
memory = "64G"
gpus = { h100 = 4 }

[[cluster.partitions]]
name = "polar"
nodes = "n[1-2]"
max_time = "1:00:00"
default = true
"""
PROVEN = ("profile_leads_there", "runs_in_each_partition", "gpus_of_its_job")
"""The checks of test_replicas.py that cover most of a site: its profile, jobs, a container."""


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.slurm
@pytest.mark.root
@pytest.mark.remote
def test_a_sixth_cluster_is_proven_by_two_files(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles/nordlys.toml").write_text(PROFILE)
    (tmp_path / "nordlys.toml").write_text(REPLICA)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["JUPYTER_SLURM_TEST_SITES"] = str(tmp_path)
    argv = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
    chosen = f"nordlys and ({' or '.join(PROVEN)})"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*argv, "-k", chosen, "tests/sites/test_replicas.py"], env=env, cwd=root, capture_output=True, text=True, timeout=500,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert f"{len(PROVEN)} passed" in done.stdout, done.stdout[-2000:]
