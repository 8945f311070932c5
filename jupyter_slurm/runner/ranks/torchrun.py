"""Run of a Python cell by torchrun on one node: ``python -u torchrun.py JOBDIR [args]``, for ``launch.py``.

The program runs once on each node. Each process that torchrun starts is a rank (``rank.py``). Their number is that of
the job's tasks on the node, or of the node's GPUs if the node has one task. Python 3.8+, standard library only.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

# The runner is not a package: its files are loaded by path.
loader = runpy.run_path(__file__[: -len("ranks/torchrun.py")] + "loader.py")
load, path_of = loader["load"], loader["path_of"]


def processes(env: Any) -> int:
    """Return the number of ranks of this node: its tasks, or its GPUs."""
    tasks = load("ranks.rank").tasks_per_node(env.get("JUPYTER_SLURM_TASKS_PER_NODE", ""))
    node, gpus = int(env.get("SLURM_NODEID") or 0), env.get("SLURM_GPUS_ON_NODE") or ""
    asked = tasks[node] if node < len(tasks) else 1
    return asked if asked > 1 or not gpus.isdigit() else max(1, int(gpus))


def command(env: Any, args: list[str]) -> list[str]:
    """Return the command line of torchrun. Its options have underscores, which all versions support."""
    where = env.get("MASTER_ADDR") or env.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")
    options = {
        "nnodes": env.get("SLURM_NNODES", "1"),
        "node_rank": env.get("SLURM_NODEID", "0"),
        "nproc_per_node": processes(env),
        "master_addr": where,
        "master_port": env["MASTER_PORT"],
    }
    script = __file__[: -len("torchrun.py")] + "rank.py"
    said = [f"--{name}={value}" for name, value in options.items()]
    return [sys.executable, "-u", path_of("module_start"), "torch.distributed.run", *said, script, *args]


if __name__ == "__main__":
    argv = command(os.environ, sys.argv[1:])
    os.execv(argv[0], argv)  # noqa: S606 - Python itself
