"""Python cells that run once for each task of their job: what starts them, and how their ranks ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_slurm.errors import TransportError, UsageError
from jupyter_slurm.services.jobdir.untrusted import read_left
from jupyter_slurm.services.jobs.job import Entry
from jupyter_slurm.transport.base import Transport

__all__ = ["check_components", "check_contained", "ranks_of", "read_ranks", "runner"]

_MOST = 1_000_000


def runner(cell: str, asked: Mapping[str, Any], *, is_contained: bool = False, is_local: bool = False) -> str:
    """Return the path of what the batch script starts: the runner for cells, or what lies beside it and starts that."""
    own = "session-serve.py" if asked["kind"] == "session" else "cell-run.py"
    plain = "container-run.py" if is_contained else own
    if is_local:
        return cell.removesuffix(own) + "lifecycle-stage.py"
    chosen = "lifecycle-resume.py" if asked.get("resume") else "ranks-launch.py" if asked.get("launcher") else plain
    return cell.removesuffix(own) + chosen


def check_contained(asked: Mapping[str, Any]) -> None:
    """Refuse what is not done in containers.

    Raises
    ------
    UsageError
        It was asked for.
    """
    if asked.get("launcher") == "mpi":
        raise UsageError(
            "launcher=mpi does not reach into the image that env= names: its MPI would have to be that of the cluster.",
            hint="launcher=srun or torchrun does; a `#!` script without env= can say `srun --mpi=… apptainer exec …`.",
        )


def check_components(asked: Mapping[str, Any]) -> None:
    """Refuse a launcher for a heterogeneous job: it would start ranks in the first component only.

    Raises
    ------
    UsageError
        There is one.
    """
    if name := asked.get("launcher"):
        raise UsageError(
            f"launcher={name} is for a job of one piece: the ranks of a heterogeneous one would be those of its first "
            "component only.",
            hint="Leave out the components, or write a `#!` script that says `srun --het-group=0,1 …`.",
        )


async def read_ranks(transport: Transport, entry: Entry) -> dict[str, Any] | None:
    """Return which rank of a cell failed first, as its runner left it (``runner/ranks/launch.py``); None where none
    did.
    """
    if entry.ranks or entry.folder is None or entry.state.name == "COMPLETED":
        return entry.ranks
    if not (entry.record or {}).get("launcher") or entry.is_array:
        return None
    try:
        return ranks_of(await read_left(transport, entry.folder.end_marker(None), _MOST))
    except (FileNotFoundError, TransportError, ValueError, RecursionError):
        return None


def ranks_of(marker: Any) -> dict[str, Any] | None:
    """Return what an end marker says of the ranks; None where that is nothing, or nothing that we know."""
    try:
        told = marker["ranks"]
        first = {"rank": int(told["first"]["rank"]), "node": str(told["first"]["node"])}
        first["exit_code"] = int(told["first"]["exit_code"])
        return {"first": first, "also": int(told["also"]), "ended": int(told["ended"])}
    except (ValueError, KeyError, TypeError):
        return None
