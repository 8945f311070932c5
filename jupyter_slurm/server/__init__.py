"""Jupyter server extension: the agent's API behind Jupyter's authentication and authorisation."""

from __future__ import annotations

__all__ = ["extension_points"]


def extension_points() -> list[dict[str, str | type]]:
    """Return the result of Jupyter's ``_jupyter_server_extension_points`` hook."""
    from jupyter_slurm.server.extension import SlurmExtension  # imports the Jupyter server

    return [{"module": "jupyter_slurm.server.extension", "app": SlurmExtension}]
