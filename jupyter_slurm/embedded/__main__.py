"""``python -m jupyter_slurm.embedded``: the same as ``jupyter slurm embedded``, and ``packages`` for ``make``."""
import sys
from pathlib import Path
from jupyter_slurm.embedded import EmbeddedCluster
d = Path(sys.argv[2]) if len(sys.argv) > 2 else None
c = EmbeddedCluster(directory=d)
getattr(c, sys.argv[1])()
print(c.slurm_conf)
