"""Module ``jupyter_slurm_job`` for a cell and its programs: continuation of a job after its earlier run was ended.

Each run of a job with ``resume`` is warned before its end (preemption, time limit), if Slurm announces the end::

    from jupyter_slurm_job import checkpoint_dir, interrupted

    saved = checkpoint_dir() / "epoch"
    for epoch in range(int(saved.read_text()) if saved.exists() else 0, 100):
        ...
        (checkpoint_dir() / "new").write_text(str(epoch + 1))
        (checkpoint_dir() / "new").replace(saved)  # atomic: the file is always complete
        if interrupted():
            break

Python 3.8+, standard library only. Without ``resume`` nothing interrupts the job, and the directory exists.
"""

from __future__ import annotations

import os
import pathlib
import time

__all__ = ["checkpoint_dir", "interrupted"]

_CHECK_INTERVAL_S = 0.5  # seconds between two checks: a training loop may call after every batch
_checked_at = 0.0
_is_interrupted = False


def interrupted() -> bool:
    """Return whether this run of the job is about to be ended: save the state, and let the cell end.

    A cell that gets True and ends without an error is requeued and runs again from its first line. A cell that never
    calls this function is ended by Slurm, and runs again too.

    Returns
    -------
    bool
        True from the warning on, in all processes of the job; always False in a job without ``resume``.
    """
    global _checked_at, _is_interrupted
    folder = os.environ.get("JUPYTER_SLURM_RESUME_DIR")
    now = time.monotonic()
    if not _is_interrupted and folder and now - _checked_at >= _CHECK_INTERVAL_S:
        _checked_at = now
        run = os.environ.get("SLURM_RESTART_COUNT") or "0"
        try:
            # List the folder instead of testing the file: NFS caches that a file does not exist, but not the listing.
            _is_interrupted = f"warned.{run}" in os.listdir(folder)
            if _is_interrupted:
                os.close(os.open(os.path.join(folder, f"told.{run}"), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        except OSError:
            pass  # a full or remote disk must not end a training
    return _is_interrupted


def checkpoint_dir() -> pathlib.Path:
    """Return a directory for this job, array task or step alone. Its content is kept across requeues.

    The tasks of a step share it. With several tasks, let rank 0 write, or put the rank into file names.

    The directory is removed with the job directory, days after the job's end.
    """
    folder = os.environ.get("JUPYTER_SLURM_CHECKPOINT_DIR")
    if not folder:
        raise RuntimeError("not within a job of jupyter_slurm: JUPYTER_SLURM_CHECKPOINT_DIR is not set")
    path = pathlib.Path(folder)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
