"""Replicas of real clusters, each described by one file ``tests/sites/NAME.toml``.

A replica is the site as its profile (``jupyter_slurm/sites/NAME.toml``) describes it: a real Slurm with its partitions
and rules, hosts with their own network and a real sshd, its storage, its container runtime, its route for users.
"""

from replicas.described import SITES, Site
from replicas.replica import Replica

__all__ = ["SITES", "Replica", "Site"]
