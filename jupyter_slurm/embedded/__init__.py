"""A real Slurm cluster on one machine, for the demo and the tests.

Real ``slurmctld``, ``slurmd``, ``munged`` and, where asked for, ``slurmdbd`` with MariaDB run from one private
directory, as an ordinary user or as root. ``jupyter slurm embedded start|status|stop`` is the command line;
:class:`EmbeddedCluster` is the same for Python.
"""

from __future__ import annotations

from jupyter_slurm.embedded.cluster import EmbeddedCluster
from jupyter_slurm.embedded.description import Description, load_description

__all__ = ["Description", "EmbeddedCluster", "load_description"]
