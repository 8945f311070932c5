"""Which cluster a folder belongs to, and which files of the runner go into it."""

from __future__ import annotations

import hashlib
import json

__all__ = ["cluster_id", "parse_cluster_file"]


def cluster_id(slurm_conf: str | None) -> str:
    """Return the id of a Slurm of this machine: by its configuration file, so that two can stand side by side."""
    if not slurm_conf:
        return "local"
    return "local-" + hashlib.sha256(slurm_conf.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def parse_cluster_file(raw: bytes) -> tuple[str | None, str | None] | None:
    """Return SLURM_CONF and PATH from a cluster.json; None when it is not one."""
    try:
        about = json.loads(raw)
        return about["slurm_conf"], about["path"]
    except (ValueError, KeyError, TypeError):
        return None
