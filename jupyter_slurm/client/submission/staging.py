"""Staging of folders: the request of the line, and the results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from jupyter_slurm.domain.staging import parse_words, sync_words
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["stage_of"]


def stage_of(words: Mapping[str, str | None]) -> api.Stage | None:
    """Return the staging that ``stage=`` and ``sync=`` request, as an API object; None without staging.

    Raises
    ------
    UsageError
        The values are not valid.
    """
    said = words.get("stage")
    if said is None:
        if "sync" in words:
            raise UsageError("sync= says how folders travel; none does.", hint="Say stage=DIR, too.")
        return None
    folders: list[api.StageFolder] = [
        {"source": os.path.abspath(os.path.expanduser(folder.source)), "dest": folder.dest}
        for folder in parse_words(said)
    ]
    ways = sync_words(words.get("sync") or "") if words.get("sync") else {}
    return cast("api.Stage", {"folders": folders, **ways})
