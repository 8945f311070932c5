"""Task of a step in a container: ``python -u contained_step.py JOBDIR [args]``, for Python in the container.

``step.py`` calls :func:`enter` on the node. A command or a script runs in the container itself. Apptainer, Singularity
and Charliecloud hand standard input on to a process for cells. Docker and Podman use it themselves, so that a named
pipe in the job directory carries the requests.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_directory import JobDirectory
    from jupyter_slurm.runner.job_document import StepRequest

# The runner is not a package: its files are loaded by path.
loader = runpy.run_path(__file__[: -len("allocation/contained_step.py")] + "loader.py")
load, path_of = loader["load"], loader["path_of"]

_REQUESTS = "JUPYTER_SLURM_REQUESTS"  # path of the pipe with the requests; other runtimes have standard input


def enter(place: JobDirectory, asked: StepRequest, args: list[str]) -> int:
    """Run the program of a step in a container. Without a container, report the reason."""
    contain, kind, folder = load("container.run"), place.job["kind"], place.folder
    described, is_python = place.job["environment"], kind in ("python", "process", "session")
    argv = [asked.get("python") or "python3", "-u", path_of("allocation.contained_step"), folder] if is_python else []

    def report(text: str) -> None:
        sys.stderr.write(f"container: {described['image']}: {text}\n")
        sys.stderr.flush()
        if kind == "session":
            place.stage(f"image: {text}")

    os.environ.pop(_REQUESTS, None)
    try:
        return int(
            contain.start(
                described,
                [*argv, *args],
                contain.folders(place.job, folder),
                report,
                is_python=is_python,
                hold=os.path.join(folder, "held"),
                requests=_REQUESTS if kind == "process" else "",
            )
        )
    except contain.RuntimeRefused as error:
        node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        sys.stderr.write(f"container: {error} (node {node})\n")
        if kind == "session":
            place.end(contain.FAILED, session={"why": f"{error} (node {node})", "hint": contain.HINT})
        return int(contain.FAILED)


def main() -> int:
    """Run the Python of the step, in the container."""
    folder, args = sys.argv[1], sys.argv[2:]
    cell, step = load("cell.run"), load("allocation.step")
    if path := os.environ.pop(_REQUESTS, ""):
        requests = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        os.dup2(requests, 0)
        os.close(requests)
    return int(step.run_python(step, cell, cell.JobDirectory(folder), args))


if __name__ == "__main__":
    sys.exit(main())
