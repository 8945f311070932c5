"""Start of a step's kernel in a container: ``python -u contained.py JOBDIR FOLDER [argv]``, started by the keeper.

FOLDER contains the kernel's connection file and sockets. The container has it at the same path, together with the job
directories, the runner, the home and the working directory. The arguments after FOLDER are the command in the
container. ``environment`` in job.json names the image. A signal to this process reaches the kernel, and the end of this
process ends the container. ``served.json`` has the progress of fetching an image.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import os
import runpy
import sys

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("kernel/contained.py")] + "loader.py")["load"]


def main() -> int:
    """Run the command in the container. Without a container, report the reason."""
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
        sys.stderr.write(f"The container did not start: {error} (node {node})\n")
        return int(contain.FAILED)


if __name__ == "__main__":
    sys.exit(main())
