"""``python -m jupyter_slurm.embedded``: equivalent to ``jupyter slurm embedded``."""

from __future__ import annotations

import sys

from jupyter_slurm.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["embedded", *sys.argv[1:]]))
