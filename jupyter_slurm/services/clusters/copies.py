"""Copies of folders on a cluster (services/staging/manager.py), of which the last job has gone."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_slurm.domain.staging import BASE
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.jobs.job import Entry
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.staging.manager import Staging

__all__ = ["Copies"]

log = logging.getLogger(__name__)


class Copies:
    """Those of one cluster.

    Parameters
    ----------
    tracker, staging
        Of the cluster.
    """

    def __init__(self, tracker: Tracker, staging: Staging) -> None:
        self._tracker, self._staging = tracker, staging

    async def remove(self, gone: Iterable[Entry], kept: Iterable[Entry], before: float, *, dry_run: bool) -> list[str]:
        """Remove copies that jobs which are gone had to themselves; never a folder that somebody has named.

        One that has what is not here stays: what a filter leaves out, for one, as checkpoints are, or what both sides
        have changed.

        Parameters
        ----------
        gone, kept : iterable of Entry
            Jobs, whose results have come back where they are gone.
        before : float
            Seconds since the epoch: a copy that was synchronised later stays.
        dry_run : bool
            Only say which.

        Returns
        -------
        list of str
            Their paths.
        """
        try:
            candidates = {folder["dest"]: folder for entry in gone for folder in await self._own(entry)}
        except SlurmError as error:  # a variable of the profile, for one, may not be set there any more
            log.warning("copies of folders stay: %s", error.message)
            return []
        for dest in {folder["dest"] for entry in kept for folder in _folders(entry)}:
            candidates.pop(dest, None)
        removed = [folder for _, folder in sorted(candidates.items())]
        return [folder["dest"] for folder in removed if await self._is_removed(folder, before, dry_run=dry_run)]

    async def _own(self, entry: Entry) -> list[dict[str, Any]]:
        is_ours = await self._staging.is_of_here(entry)
        return [folder for folder in _folders(entry) if is_ours and await self._staging.has_own_copy(folder)]

    async def _is_removed(self, folder: Mapping[str, Any], before: float, *, dry_run: bool) -> bool:
        transport, dest = self._tracker.client.transport, str(folder["dest"])
        try:
            async with self._staging.alone(dest):
                if (await transport.stat(posixpath.join(dest, BASE))).mtime >= before:
                    return False
                if await (await self._staging.pair(folder)).has_more():
                    log.info("%s stays: it has files that are not here", dest)
                    return False
                if not dry_run:
                    await transport.remove(dest)
        except FileNotFoundError:
            return False  # it is gone, or was never one
        except SlurmError as error:
            log.warning("%s stays: %s", dest, error.message)
            return False
        return True


def _folders(entry: Entry) -> list[dict[str, Any]]:
    stage = (entry.record or {}).get("stage") or {}
    return list(stage.get("folders") or ())
