"""Staging of folders: the request of the line, and the results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from jupyter_slurm.domain.staging import parse_stage, parse_sync
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["parse_stage_words"]


def parse_stage_words(keywords: Mapping[str, str | None]) -> api.Stage | None:
    """Return the staging that ``stage=`` and ``sync=`` request, as an API object; None without staging.

    Raises
    ------
    UsageError
        The values are not valid.
    """
    said = keywords.get("stage")
    if said is None:
        if "sync" in keywords:
            raise UsageError("sync= says how folders travel; none does.", hint="Say stage=DIR, too.")
        return None
    folders: list[api.StageFolder] = [
        {"source": os.path.abspath(os.path.expanduser(folder.source)), "dest": folder.dest}
        for folder in parse_stage(said)
    ]
    ways = parse_sync(keywords.get("sync") or "") if keywords.get("sync") else {}
    return cast("api.Stage", {"folders": folders, **ways})
