"""``python -m jupyter_slurm.embedded``: the same as ``jupyter slurm embedded``."""

from __future__ import annotations

import argparse
import sys

from jupyter_slurm.cli.embedded import add_actions, run
from jupyter_slurm.errors import SlurmError


def main() -> int:
    """Run one action; an error is its message and what to do next, not a stack."""
    parser = argparse.ArgumentParser(prog="python -m jupyter_slurm.embedded", description=__doc__)
    add_actions(parser)
    try:
        return run(parser.parse_args())
    except SlurmError as error:
        print(f"{error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
