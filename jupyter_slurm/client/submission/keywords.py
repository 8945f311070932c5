"""Keywords of a magic line with a meaning of their own: ``stage=`` and ``resume``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from jupyter_slurm.domain.magic_line.parser import MagicLine
from jupyter_slurm.domain.staging_rules import parse_stage, parse_sync
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["parse_restarts", "parse_stage_words"]


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
            raise UsageError("sync= has no effect without stage=.", hint="Add stage=DIR.")
        return None
    folders: list[api.StageFolder] = [
        {"source": os.path.abspath(os.path.expanduser(folder.source)), "dest": folder.dest}
        for folder in parse_stage(said)
    ]
    ways = parse_sync(keywords.get("sync") or "") if keywords.get("sync") else {}
    return cast("api.Stage", {"folders": folders, **ways})


_DEFAULT_RESTARTS = 20  # default of `resume`
_MAX_RESTARTS = 1000


def parse_restarts(parsed: MagicLine) -> int | None:
    """Return the maximum number of restarts of a job; None without `resume`.

    Raises
    ------
    UsageError
        The value is not a valid number.
    """
    if "resume" not in parsed.keywords:
        return None
    text = parsed.keywords["resume"] or str(_DEFAULT_RESTARTS)
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MAX_RESTARTS):
        hint = f"Use 1 to {_MAX_RESTARTS}, for example resume={_DEFAULT_RESTARTS} (the default of `resume`)."
        raise UsageError(f"resume={text} is not a valid number of restarts.", hint=hint)
    return int(text)
