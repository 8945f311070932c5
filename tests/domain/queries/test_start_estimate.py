"""Tests of the parser of ``sbatch --test-only``: the lines of each version, and real clusters."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from jupyter_slurm.domain.queries.start_estimate import StartEstimate, parse_start_estimate
from jupyter_slurm.embedded import EmbeddedCluster

_AT = 1764118800
_WHOLE = StartEstimate(_AT, 4, "n[1-2]", "gpu")
_UP_TO_24_11 = f"sbatch: Job 7 to start at {_AT} using 4 processors on nodes n[1-2] in partition gpu"
_SINCE_25_05 = f"sbatch: Job 7 to start at {_AT} a using 4 processors on nodes n[1-2] in partition gpu"
_ON_A_CLUSTER = f"sbatch: Job 7 to start at {_AT} on cluster big a using 4 processors on nodes n[1-2] in partition gpu"
_HETEROGENEOUS = f"sbatch: Job 7 to start at {_AT} using 4 processors on n[1-2]"

# The format strings of src/api/allocate.c in the first release of each version, with values.
_OLD = {_UP_TO_24_11: _WHOLE, _HETEROGENEOUS: StartEstimate(_AT, 4, "n[1-2]")}
_NEW = {_SINCE_25_05: _WHOLE, _ON_A_CLUSTER: _WHOLE, _HETEROGENEOUS: StartEstimate(_AT, 4, "n[1-2]")}
RECORDED = {
    **dict.fromkeys(("20.11", "21.08", "22.05", "23.02", "23.11", "24.05", "24.11"), _OLD),
    **dict.fromkeys(("25.05", "25.11", "26.05"), _NEW),
}
OTHERS = {
    f"{_UP_TO_24_11}\nsbatch:   Preempts: 5,6": _WHOLE,
    f"sbatch: lua: your job is to start at your own risk\n{_SINCE_25_05}": _WHOLE,
    f"sbatch: debug:  Job 7 to start at 1 on cluster a using 9 processors on nodes x in partition y\n{_ON_A_CLUSTER}": _WHOLE,
    f"{_ON_A_CLUSTER}\nsbatch: debug:  Job 7 to start at 1 on cluster a using 9 processors on nodes x in partition y": _WHOLE,
    f"sbatch: Job 7 to start at {_AT} using 1 processor on node n1 in partition gpu": StartEstimate(
        _AT, 1, "n1", "gpu"
    ),
    f"sbatch: Job 7 to start at {_AT} on nodes n1 in partition gpu, using 2 CPUs": StartEstimate(_AT, 2, "n1", "gpu"),
    f"sbatch: Job 7 to start at {_AT} using 4 processors on nodes (null) in partition gpu": StartEstimate(
        _AT, 4, None, "gpu"
    ),
    "sbatch: Job 7 to start at Unknown using 4 processors on nodes n1 in partition gpu": StartEstimate(
        None, 4, "n1", "gpu"
    ),
    "sbatch: Job 7 to start at N/A a using 4 processors on nodes n1 in partition gpu": StartEstimate(
        None, 4, "n1", "gpu"
    ),
    "": StartEstimate(),
    "sbatch: error: something else": StartEstimate(),
}


@pytest.mark.parametrize(
    ("version", "line"), [(version, line) for version, lines in RECORDED.items() for line in lines]
)
def test_lines_of_each_version(version: str, line: str) -> None:
    assert parse_start_estimate(line) == RECORDED[version][line]


@pytest.mark.parametrize("text", OTHERS)
def test_other_lines(text: str) -> None:
    assert parse_start_estimate(text) == OTHERS[text]


@pytest.mark.slurm
@pytest.mark.parametrize("version", ["22.05", "24.11", "26.05"])
def test_what_slurm_prints(version: str, cluster_for: Callable[[str], EmbeddedCluster]) -> None:
    cluster = cluster_for(version)
    env = {**cluster.env(), "SLURM_TIME_FORMAT": "%s"}
    argv = ["sbatch", "--test-only", "-p", "arandu", "-n", "2", "--wrap", "true"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    found = parse_start_estimate(done.stdout + done.stderr)
    assert found.start, done.stderr
    assert found.cpus, done.stderr
    assert found.partition == "arandu", done.stderr
    assert found.nodes, done.stderr
