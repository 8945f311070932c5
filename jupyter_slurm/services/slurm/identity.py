"""Which cluster a folder belongs to, and which files of the runner go into it."""

from __future__ import annotations

import functools
import hashlib
import json
from importlib import resources

__all__ = ["RUNNER", "cluster_id", "read_about", "runner_digest", "shipped"]

RUNNER = (
    "cell.py",
    "resume.py",
    "launch.py",
    "contain.py",
    "contained.py",
    "kernel.py",
    "kernel_cells.py",
    "kernel_door.py",
    "kernel_folder.py",
    "kernel_idle.py",
    "kernel_inside.py",
    "kernel_ipython.py",
    "kernel_messages.py",
    "kernel_output.py",
    "kernel_process.py",
    "kernel_sockets.py",
    "kernel_start.py",
    "kernel_wires.py",
    "greeting.py",
    "link.py",
    "zmtp.py",
    "door.py",
    "hold.py",
    "step.py",
    "rank.py",
    "torchrun.py",
    "ray_cluster.py",
    "ray_node.py",
    "beside.py",
    "build.py",
    "display.py",
    "frames.py",
    "job.py",
    "jupyters.py",
    "place.py",
    "plain.py",
    "program.py",
    "relay.py",
    "remote.py",
    "runtimes.py",
    "images.py",
    "install.py",
    "lease.py",
    "notes.py",
    "shell.py",
    "serve.py",
    "stage.py",
    "sweep.py",
    "usage.py",
    "values.py",
)
"""The files of the runner; a job starts one of them, and they find the others beside themselves."""


def cluster_id(slurm_conf: str | None) -> str:
    """Return the id of a Slurm of this machine: by its configuration file, so that two can stand side by side."""
    if not slurm_conf:
        return "local"
    return "local-" + hashlib.sha256(slurm_conf.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def read_about(raw: bytes) -> tuple[str | None, str | None] | None:
    """Return SLURM_CONF and PATH from a cluster.json; None when it is not one."""
    try:
        about = json.loads(raw)
        return about["slurm_conf"], about["path"]
    except (ValueError, KeyError, TypeError):
        return None


@functools.cache  # once: the package may be updated under a running agent
def shipped(name: str) -> bytes:
    """Return the content of a file of the runner."""
    return resources.files("jupyter_slurm.runner").joinpath(name).read_bytes()


@functools.cache
def runner_digest() -> str:
    """Return what names the runner's files: their content, so that versions do not meet."""
    return hashlib.sha256(b"\0".join(shipped(name) for name in RUNNER)).hexdigest()[:8]
