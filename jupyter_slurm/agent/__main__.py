"""``python -m jupyter_slurm.agent``: the agent as a separate process."""

from __future__ import annotations

import sys

from jupyter_slurm.agent.hosting.daemon import main

if __name__ == "__main__":
    sys.exit(main())
