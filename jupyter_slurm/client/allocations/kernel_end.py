"""Allocations at the end of this kernel: released with it, or kept for the next kernel of its notebook.

A restart of the kernel keeps them. A front end says in its request whether a kernel shuts down or restarts.
"""

from __future__ import annotations

import atexit
import contextlib
import sys

from jupyter_slurm.client.clusters.clients import notebook
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.render import allocation_card
from jupyter_slurm.errors import SlurmError

__all__ = ["ending_with_kernel", "is_for_this_notebook", "keep_open", "release_at_exit", "take_up"]

_REQUEST_TIMEOUT_S = 3.0  # seconds for the request of a kernel that ends; the agent continues alone
_KEEP_TIMEOUT_S = 15.0  # seconds for the request of a kernel that is used
_released_at_exit: list[Job] = []


def release_at_exit(allocation: Job) -> None:
    """Release an allocation when this kernel shuts down; keep it for the notebook when the kernel restarts."""
    if not _released_at_exit:
        atexit.register(_release_or_keep)
    _released_at_exit.append(allocation)


def ending_with_kernel() -> list[str]:
    """Return the names of the open allocations that end with this kernel."""
    return [_name(one) for one in _released_at_exit if allocation_card.is_open(one.data)]


def keep_open(path: str) -> list[str]:
    """Keep the open allocations of this kernel for the next kernel of a notebook; return their names.

    Parameters
    ----------
    path : str
        Path of the notebook.

    Raises
    ------
    SlurmError
        An allocation is not kept.
    """
    kept = []
    for allocation in [one for one in _released_at_exit if allocation_card.is_open(one.data)]:
        _request(allocation, keep=True, path=path)
        _released_at_exit.remove(allocation)
        kept.append(_name(allocation))
    return kept


def is_for_this_notebook(allocation: Job) -> bool:
    """Return whether an allocation was kept for the notebook of this kernel."""
    path = notebook()
    return bool(path) and allocation._data.get("kept_for") == path


def take_up(allocation: Job) -> bool:
    """Have an allocation that was kept for this notebook end with this kernel; return whether it does now."""
    if not is_for_this_notebook(allocation):
        return False
    with contextlib.suppress(SlurmError):  # it can be used, and stays kept
        _request(allocation, keep=False, path=None)
        release_at_exit(allocation)
        return True
    return False


def _request(allocation: Job, *, keep: bool, path: str | None, timeout: float = _KEEP_TIMEOUT_S) -> None:
    asked = {"keep": keep, "notebook": path}
    allocation._data = allocation._cluster.client.post(allocation._path("keep"), json=asked, timeout=timeout)


def _name(allocation: Job) -> str:
    return str(allocation._data.get("label") or allocation.id)


def _is_restart() -> bool:
    """Return whether this kernel ends because its front end restarts it.

    ipykernel has the answer to the request for the shutdown, which tells (Jupyter messaging, ``shutdown_reply``).
    """
    get_ipython = getattr(sys.modules.get("IPython.core.getipython"), "get_ipython", lambda: None)
    answer = getattr(getattr(get_ipython(), "kernel", None), "_shutdown_message", None) or {}
    return answer.get("content", {}).get("restart") is True


def _release_or_keep() -> None:
    """Release the allocations that end with this kernel, or keep them. If that fails, the lease ends the allocation."""
    path = notebook() if _is_restart() else None
    for allocation in _released_at_exit:
        with contextlib.suppress(SlurmError):
            if allocation._data.get("finished"):
                continue
            if path:  # unknown without a notebook: nobody would find the allocation again
                _request(allocation, keep=True, path=path, timeout=_REQUEST_TIMEOUT_S)
            else:
                client = allocation._cluster.client
                client.post(allocation._path("cancel"), json={"signal": None}, timeout=_REQUEST_TIMEOUT_S)
