"""Process of the keeper: it waits for the end of another process, then stops the cluster.

:mod:`jupyter_slurm.embedded.owner_watch` starts it by a ``-c`` line that names :func:`main`.
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

from jupyter_slurm.embedded.cluster import EmbeddedCluster
from jupyter_slurm.embedded.machine.processes import Process


def keep(directory: Path, owner: Process) -> None:
    """Wait for the end of the owner, then stop the cluster. If another process stops the cluster, it also ends the
    keeper.
    """
    try:
        descriptor = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        pass
    else:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        # Before it was opened, the ID could have passed to another process.
        if owner.alive():
            poll.poll()
    EmbeddedCluster(directory=directory).stop()


def main() -> None:
    """Keep the cluster for the process ID and start time in the arguments."""
    keep(Path(sys.argv[1]), Process(int(sys.argv[2]), 0, int(sys.argv[3])))
