"""Memory of the job on this node: Docker's daemon runs containers outside the control group that limits the job.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import re
import subprocess

_ANSWER_TIMEOUT_S = 30.0
_PER_UNIT = (
    ("SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"),
    ("SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE"),
)
_ON_NODES = re.compile(r"^\s*Nodes=(\S+) .*\bMem=(\d+)(?:\s|$)", re.MULTILINE)


def memory_of(env: dict[str, str]) -> int:
    """Return the bytes of memory of the job on this node; 0: all of it, or unknown.

    Slurm sets no variable for ``--mem=0``, and none for the default memory of each GPU. In such a job the controller is
    asked what the job got.
    """
    with contextlib.suppress(KeyError, ValueError):
        return int(env["SLURM_MEM_PER_NODE"]) << 20
    for each, count in _PER_UNIT:
        with contextlib.suppress(KeyError, ValueError):
            return int(env[each]) * int(env[count]) << 20
    return _allocated(env.get("SLURM_JOB_ID", ""), env.get("SLURMD_NODENAME", "")) << 20


def _allocated(job: str, node: str) -> int:
    """Return the MB of a job on a node from the controller; 0: unknown."""
    if not job or not node:
        return 0
    # `Nodes=n[1-2] CPU_IDs=0 Mem=400 GRES=` for each group of nodes with the same share
    found = _ON_NODES.findall(_output("scontrol", "--details", "show", "job", job))
    if len(found) == 1:
        return int(found[0][1])
    for nodes, size in found:
        if node in _output("scontrol", "show", "hostnames", nodes).split():
            return int(size)
    return 0


def _output(*argv: str) -> str:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")
