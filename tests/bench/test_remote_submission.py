"""Benchmark of a cell's submission from a laptop, compared with bare sbatch on the login node itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts.sshd import SshHost
from ssh_hosts.ways import CARRIERS, Way

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.bench, pytest.mark.root, pytest.mark.slurm, pytest.mark.timeout(600)]

RUNS = 15
AT_MOST = 2.0

OURS = """
%load_ext jupyter_slurm

def ours():
    job = get_ipython().run_cell_magic("sbatch", "", SCRIPT)
    assert int(job.id) and job.cluster == "far"
"""


@pytest.fixture(params=CARRIERS)
def far(
    request: pytest.FixtureRequest,
    kernel_env: dict[str, str],
    cluster: EmbeddedCluster,
    home: Path,
    login_host: SshHost,
) -> Iterator[None]:
    """Use the cluster behind SSH for kernels; its connection ends with the test."""
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.config import Settings

    path = home / "config" / "jupyter_slurm_config.json"
    before = json.loads(path.read_text())["Settings"]
    settings = Way(request.param, login_host).settings(cluster, home, str(home / "far"))
    path.write_text(json.dumps({"Settings": {**before, "sites": settings["sites"], "cluster": "far"}}))
    yield
    folders = {name: before[name] for name in ("job_root", "runtime_dir", "state_dir")}
    client = AgentClient.connect(Settings(**folders), start=False)
    client.post("/v1/clusters/far/disconnect")
    client.stop_agent()
    path.write_text(json.dumps({"Settings": before}))


@pytest.mark.usefixtures("far")
def test_a_cell_over_ssh_costs_at_most_twice_what_sbatch_costs(
    start_kernel: Callable[..., Any], new_table: Callable[[str], Any], request: pytest.FixtureRequest
) -> None:
    """The magic itself, as it blocks the kernel, against sbatch as that kernel starts it on the login node."""
    kernel = start_kernel()
    kernel.prepare(OURS)
    rows = [("bare sbatch, no SSH", "bare"), ("%%sbatch over SSH", "ours")]
    for _, work in rows * 3:  # the first call logs in, the second starts the helper on the login node
        kernel.milliseconds(work)
    table = new_table(f"Submission of a script over SSH ({request.node.callspec.params['far']})")
    for _ in range(RUNS):
        for row, work in rows:
            table.add(row, kernel.milliseconds(work))
    assert table.ratio("%%sbatch over SSH", "bare sbatch, no SSH") <= AT_MOST, table.lines()
