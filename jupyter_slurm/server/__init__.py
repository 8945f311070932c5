"""The Jupyter server extension: the agent's API behind Jupyter's authentication and authorisation, and nothing else."""

from __future__ import annotations

from typing import Any

__all__ = ["extension_points"]


def extension_points() -> list[dict[str, Any]]:
    """Return what Jupyter's ``_jupyter_server_extension_points`` hook expects."""
    from jupyter_slurm.server.extension import SlurmExtension  # pulls in the Jupyter server

    return [{"module": "jupyter_slurm.server.extension", "app": SlurmExtension}]
