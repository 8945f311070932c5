"""Folders that are staged for one job, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyter_slurm.services.jobdir.job_json import FolderRecord, StageRecord

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["StagedFolders"]


@dataclass(frozen=True)
class StagedFolders:
    """What is staged for a job.

    Attributes
    ----------
    folders : list of FolderRecord
        From where, and to where.
    checksum, delete : bool
        How they are synchronised.
    local : str or None
        A place on the node's own disk, where it runs in a copy.
    seal : str
        Of this machine, by which it knows these folders again.
    is_announced : bool
        Whether the signal that Slurm sends before the time limit is for the runner, which copies back what is new.
    """

    folders: list[FolderRecord]
    checksum: bool
    delete: bool
    local: str | None
    seal: str
    is_announced: bool = False

    @property
    def work_dir(self) -> str:
        """Where the job runs."""
        return self.folders[0].dest

    def record(self) -> StageRecord:
        """Return what is recorded."""
        local, announced = (self.local, self.is_announced) if self.local else (None, None)
        return StageRecord(
            folders=self.folders,
            checksum=self.checksum,
            delete=self.delete,
            seal=self.seal,
            local=local,
            announced=announced,
        )

    def for_job(self, requested: api.Submission, chosen: Mapping[str, str | None]) -> StagedFolders:
        """Return it for a job of this kind: what serves, or is to go on after a kill, stays where all nodes see it."""
        is_local = self.local and requested["kind"] in ("python", "script") and not requested.get("resume")
        return replace(self, local=self.local if is_local else None, is_announced="signal" not in chosen)
