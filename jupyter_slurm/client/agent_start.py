"""Early start of the agent, while a front end imports what its first request needs."""

from __future__ import annotations

import contextlib

from jupyter_slurm.client.settings import settings
from jupyter_slurm.errors import SlurmError

__all__ = ["start_agent_early"]


def start_agent_early() -> None:
    """Begin to start an agent in the background if none runs; the first request reports what is wrong."""
    from jupyter_slurm.agent.hosting.launcher import start_early

    with contextlib.suppress(SlurmError, OSError):
        start_early(settings())
