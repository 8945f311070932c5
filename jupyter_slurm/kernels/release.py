"""Release of a kernel's allocation by a background process: the cluster may be slow or silent."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from subprocess import DEVNULL, run

__all__ = ["schedule_release"]


def schedule_release(connection_file: str, env: Mapping[str, str] | None = None, *, after: float = 0.0) -> None:
    """Release an allocation later, unless another proxy takes it over before.

    Parameters
    ----------
    connection_file : str
        Connection file of the kernel.
    env : mapping, optional
        Environment of the cluster; by default that of this process.
    after : float
        Delay in seconds.
    """
    command = [
        sys.executable,
        "-P",  # without the folder of the notebook in the path: its files may have names of modules
        "-m",
        "jupyter_slurm.kernels",
        "--give-back",
        f"--after={after:g}",
        "-f",
        connection_file,
    ]
    with contextlib.suppress(OSError):
        run(
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            env=env,
            check=False,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            start_new_session=True,
        )
