"""A cluster that lives no longer than a process: a small daemon waits for its end and stops the cluster."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

from jupyter_slurm.embedded.daemons import Daemons
from jupyter_slurm.embedded.machine.processes import Process, look
from jupyter_slurm.errors import EmbeddedError

ROLE = "keeper"


def start(daemons: Daemons, pid: int) -> None:
    """Start the keeper of a cluster. Raises EmbeddedError when there is no such process."""
    owner = look(pid)
    if owner is None:
        raise EmbeddedError(f"There is no process {pid} to wait for.")
    directory = str(daemons.layout.root)
    # The daemons' environment is plain: what we can import from, it has to be told.
    env = {"PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path)}
    # Not by -m: the package's own import would have made it a second copy of this module.
    code = f"from {__name__} import main; main()"
    daemons.spawn(ROLE, sys.executable, "-c", code, directory, str(owner.pid), str(owner.started), env=env)


def keep(directory: Path, owner: Process) -> None:
    """Wait for the end of the owner, then stop the cluster. It ends us itself when it is stopped by somebody else."""
    from jupyter_slurm.embedded.cluster import EmbeddedCluster  # which imports this module

    try:
        descriptor = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        pass
    else:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        # The id could have gone to another process before we had hold of it.
        if owner.alive():
            poll.poll()
    EmbeddedCluster(directory=directory).stop()


def main() -> None:
    """Keep the cluster, the process id and the start time that the arguments name."""
    keep(Path(sys.argv[1]), Process(int(sys.argv[2]), 0, int(sys.argv[3])))
