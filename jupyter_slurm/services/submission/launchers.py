"""Launchers of Python cells that run once for each task of their job, and the ends of their ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jupyter_slurm.errors import OptionError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.services.submission.request import SubmissionRequest

__all__ = ["check_components", "check_contained", "lead", "runner", "with_resume"]


def runner(cell: str, requested: SubmissionRequest, *, is_contained: bool = False, is_local: bool = False) -> str:
    """Return the path of the batch script's program: the runner for cells, or a helper that starts it."""
    own = "session-serve.py" if requested["kind"] == "session" else "cell-run.py"
    plain = "container-run.py" if is_contained else own
    if is_local:
        return cell.removesuffix(own) + "lifecycle-stage.py"
    chosen = (
        "lifecycle-resume.py" if requested.get("resume") else "ranks-launch.py" if requested.get("launcher") else plain
    )
    return cell.removesuffix(own) + chosen


def check_contained(requested: SubmissionRequest, runtime: str | None) -> None:
    """Refuse requests that containers do not support.

    Parameters
    ----------
    requested : SubmissionRequest
        Request for the job.
    runtime : str or None
        Container runtime; None: the node chooses it, and refuses the request itself.

    Raises
    ------
    UsageError
        The request is not supported.
    """
    if (launcher := requested.get("launcher")) and runtime == "pyxis":
        raise UsageError(
            f"launcher={launcher} does not work with Pyxis.",
            hint="Use another runtime, or a script without env= that runs `srun --container-image=…`.",
        )
    if requested.get("launcher") == "mpi" and runtime in ("docker", "podman"):
        raise UsageError(
            f"launcher=mpi does not work with {runtime}, whose containers have no connection to srun.",
            hint="Use an image of Apptainer or Charliecloud, launcher=srun or launcher=torchrun.",
        )


def check_components(requested: SubmissionRequest) -> None:
    """Refuse a launcher for a heterogeneous job, because it would start ranks only in the first component.

    Raises
    ------
    UsageError
        A launcher was requested.
    """
    if name := requested.get("launcher"):
        raise UsageError(
            f"launcher={name} does not work with a heterogeneous job, because only its first "
            "component would have ranks.",
            hint="Leave out the components, or write a `#!` script that runs `srun --het-group=0,1 …`.",
        )


_MAX_WARNING_S = 120  # seconds before the time limit, at most; Slurm may send the signal a minute earlier
_MIN_WARNING_S = 10


def with_resume(chosen: Mapping[str, str | None], time_limit: int | None, added: Sequence[str]) -> list[str]:
    """Return options to add if the user gave none.

    Parameters
    ----------
    chosen : mapping
        Effective options, by long name.
    time_limit : int or None
        Requested seconds.
    added : sequence of str
        Options added before.

    Raises
    ------
    OptionError
        The options are incompatible with ``resume``.
    """
    if "no-requeue" in chosen:
        raise OptionError(
            "`resume` requeues the job, which --no-requeue forbids.",
            hint="Leave one of them out.",
            option="no-requeue",
        )
    options = {
        "requeue": "--requeue",
        "open-mode": "--open-mode=append",
        "signal": f"--signal=B:USR1@{lead(time_limit)}",
    }
    return [word for name, word in options.items() if name not in chosen and word not in added]


def lead(time_limit: int | None) -> int:
    """Return the seconds between the warning to the cell and the time limit: a small part of the limit."""
    return _MAX_WARNING_S if time_limit is None else max(_MIN_WARNING_S, min(_MAX_WARNING_S, time_limit // 4))
