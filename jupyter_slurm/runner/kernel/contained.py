"""Run the kernel of a step in a container: ``python -u contained.py JOBDIR FOLDER [argv]``, started by the keeper.

FOLDER is that of the kernel's connection file and sockets; the container has it at its own place, as it has the job
directories with the runner, the home and the working directory. What is behind FOLDER is run in the container; the
image is that of ``environment`` in job.json. A signal to this process reaches the kernel, and its end is the end of the
container. How far an image is that has to be fetched stands in ``served.json``.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import os
import runpy
import sys

# The files of the runner are no package: each is read by its path.
load = runpy.run_path(__file__[: -len("kernel/contained.py")] + "loader.py")["load"]


def main() -> int:
    """Run the command in the container; where there was none, say why."""
    folder, sockets, argv = sys.argv[1], sys.argv[2], sys.argv[3:]
    contain = load("container.run")
    place = load("cell.run").JobDirectory(folder)
    described = place.job["environment"]

    def report(text: str) -> None:
        sys.stderr.write(f"container: {described['image']}: {text}\n")
        place.stage(text)

    try:
        shared = [os.path.dirname(folder), sockets]
        return int(contain.start(described, argv, shared, report, is_python=True, hold=os.path.join(sockets, "held")))
    except contain.RuntimeRefused as error:
        node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        sys.stderr.write(f"There is no container: {error} (node {node})\n")
        return int(contain.FAILED)


if __name__ == "__main__":
    sys.exit(main())
