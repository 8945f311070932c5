"""Folders staged for one job, and their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from jupyter_slurm.services.jobdir.job_json_model import FolderRecord, StageRecord

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["SentFolder", "StagedFolders"]


class SentFolder(NamedTuple):
    """Outcome of sending a folder: files and bytes that were sent, files that were the same, and warnings."""

    files: int
    bytes: int
    unchanged: int
    warnings: list[str]


@dataclass(frozen=True)
class StagedFolders:
    """Staging of a job.

    Attributes
    ----------
    folders : list of FolderRecord
        Sources and destinations.
    checksum, delete : bool
        Options of the synchronisation.
    local : str or None
        Folder on the node's local disk, where the job runs in a copy.
    seal : str
        Seal of this machine, which verifies these folders later.
    is_announced : bool
        Whether Slurm's signal before the time limit is for the runner, which then copies back new files.
    """

    folders: list[FolderRecord]
    checksum: bool
    delete: bool
    local: str | None
    seal: str
    is_announced: bool = False

    @property
    def work_dir(self) -> str:
        """Return the working directory of the job."""
        return self.folders[0].dest

    def record(self) -> StageRecord:
        """Return the form for the record."""
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
        """Return the staging of a job of this kind: servers, and jobs that survive a kill, run on a shared folder."""
        is_local = self.local and requested["kind"] in ("python", "script") and not requested.get("resume")
        return replace(self, local=self.local if is_local else None, is_announced="signal" not in chosen)
