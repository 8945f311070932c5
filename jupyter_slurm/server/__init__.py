"""The Jupyter server extension: the agent's API behind Jupyter's authentication and authorisation, and nothing else."""

from __future__ import annotations

__all__ = ["extension_points"]


def extension_points() -> list[dict[str, str | type]]:
    """Return what Jupyter's ``_jupyter_server_extension_points`` hook expects."""
    from jupyter_slurm.server.extension import SlurmExtension  # pulls in the Jupyter server

    return [{"module": "jupyter_slurm.server.extension", "app": SlurmExtension}]
