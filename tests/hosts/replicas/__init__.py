"""Replicas of real clusters, each described by one file ``tests/sites/NAME.toml``.

A replica is the site as its profile (``jupyter_slurm/sites/NAME.toml``) takes it to be: a real Slurm with its partitions
and rules, hosts with a network of their own and a real sshd, its storage, its container runtime, its way in.
"""

from replicas.described import SITES, Site
from replicas.replica import Replica

__all__ = ["SITES", "Replica", "Site"]
