"""Files of the runner that go into the folder of a cluster, and their digest."""

from __future__ import annotations

import functools
import hashlib
from importlib import resources

__all__ = ["RUNNER", "runner_digest", "shipped"]

RUNNER = (
    "cell/run.py",
    "lifecycle/resume.py",
    "ranks/launch.py",
    "container/run.py",
    "kernel/contained.py",
    "kernel/keeper.py",
    "kernel/cells.py",
    "kernel/listener.py",
    "kernel/folder.py",
    "kernel/idle.py",
    "kernel/run_cell.py",
    "kernel/ipython_kernel.py",
    "kernel/messages.py",
    "kernel/output.py",
    "kernel/process.py",
    "kernel/sockets.py",
    "kernel/start.py",
    "kernel/wires.py",
    "link/handshake.py",
    "link/link.py",
    "kernel/zmtp.py",
    "session/tls_door.py",
    "allocation/hold.py",
    "allocation/step.py",
    "ranks/rank.py",
    "ranks/torchrun.py",
    "ranks/ray_cluster.py",
    "ranks/ray_node.py",
    "loader.py",
    "container/build.py",
    "cell/display.py",
    "ranks/frames.py",
    "job.py",
    "session/jupyter.py",
    "job_directory.py",
    "cell/plain.py",
    "session/command.py",
    "login_node/relay.py",
    "allocation/process.py",
    "container/runtimes.py",
    "container/images.py",
    "session/install.py",
    "container/lock.py",
    "container/image_notes.py",
    "cell/ipython.py",
    "session/serve.py",
    "lifecycle/stage.py",
    "cell/sweep.py",
    "lifecycle/usage.py",
    "variables/values.py",
)
"""The files of the runner; a job starts one of them, and they find the others beside themselves."""


@functools.cache  # once: the package may be updated under a running agent
def shipped(name: str) -> bytes:
    """Return the content of a file of the runner."""
    return resources.files("jupyter_slurm.runner").joinpath(name).read_bytes()


@functools.cache
def runner_digest() -> str:
    """Return what names the runner's files: their content, so that versions do not meet."""
    return hashlib.sha256(b"\0".join(shipped(name) for name in RUNNER)).hexdigest()[:8]
