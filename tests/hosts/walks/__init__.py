"""Walks through the guides: for each cluster the commands of its page's last table, and what each must show.

The tests of ``tests/sites/test_walks.py`` run them on the replica of the cluster.
"""

from walks.walk import Step, Walk

__all__ = ["Step", "Walk"]
