"""Start of the keeper: a small daemon that waits for the end of a process and then stops the cluster."""

from __future__ import annotations

import os
import sys

from jupyter_slurm.embedded.daemons import Daemons
from jupyter_slurm.embedded.machine.processes import inspect_process
from jupyter_slurm.errors import EmbeddedError

ROLE = "keeper"


def start(daemons: Daemons, pid: int) -> None:
    """Start the keeper of a cluster. Raises EmbeddedError if the process does not exist."""
    owner = inspect_process(pid)
    if owner is None:
        raise EmbeddedError(f"There is no process {pid} to wait for.", hint="Give the ID of a running process.")
    directory = str(daemons.layout.root)
    # The daemons' environment is plain, so it needs the import path of this process.
    env = {"PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path)}
    # The module of the child is named and not imported: it imports the cluster, which imports this module.
    code = f"from {__package__}.owner_watch_process import main; main()"
    daemons.spawn(ROLE, sys.executable, "-c", code, directory, str(owner.pid), str(owner.started), env=env)
