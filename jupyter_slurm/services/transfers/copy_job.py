"""Copy within a cluster by a job (``runner/lifecycle/copy_within.py``)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import posixpath
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from jupyter_slurm.domain.scripts.script import job_script
from jupyter_slurm.domain.staging_rules import names as first_names
from jupyter_slurm.errors import CommandError, JobFailed, JobNotFound, SlurmError
from jupyter_slurm.services.jobs.serialize import job_dict
from jupyter_slurm.services.slurm.client import decode_output, printable
from jupyter_slurm.services.transfers.carriers import Work, split_names
from jupyter_slurm.services.transfers.sides import Group, Moved
from jupyter_slurm.services.transfers.transfer import Transfer

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.clusters.cluster import Cluster
    from jupyter_slurm.services.jobs.job import TrackedJob
    from jupyter_slurm.services.submission.request import SubmissionRequest
    from jupyter_slurm.services.transfers.cluster_side import ClusterSide

__all__ = ["JobWithinCluster", "cancel_job"]

_PYTHON: Final = "python3"  # of any node: it only starts the runner
_INTERVAL_S: Final = 2.0  # seconds between two looks at the number of copied bytes
_MAX_OUTPUT_BYTES: Final = 2000
_CONTINUES: Final = "What has arrived is kept; the same command continues it."


class JobWithinCluster:
    """Carrier that copies by a job of the cluster.

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    side : ClusterSide
        Its files, as the login node sees them.
    transfer : Transfer
        Gets the job, and a text while the job waits.
    asked : mapping
        Options of sbatch, context and origin of the submission.
    """

    def __init__(self, cluster: Cluster, side: ClusterSide, transfer: Transfer, asked: api.TransferWantedJob) -> None:
        self._cluster, self._side, self._transfer, self._asked = cluster, side, transfer, asked

    async def end_remains(self, group: Group) -> None:
        """Wait for the job of an earlier run, whose files are used."""
        partial = posixpath.dirname(group.received)
        for entry in self._cluster.tracker.active():
            if entry.record is not None and entry.record.copies_to == partial:
                self._transfer.job_key = entry.key
                await self._follow(entry, self._transfer.note_bytes)

    async def copy(self, works: Sequence[Work], moved: Moved) -> None:
        """Submit the job, and wait for its end; see :class:`Carrier`."""
        needed = [work for work in works if work.entries]
        if not needed:
            return
        key = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(8)}"
        self._transfer.job_key = key
        await self._cluster.submit(self._request(key, needed))
        entry = self._cluster.tracker.find(key)
        if entry is None:
            raise JobNotFound(f"The copy job {key} is not known.", hint="Run the same command again.")
        sent = sum(work.total for work in works) - sum(entry.size for work in needed for entry in work.entries.values())
        await self._follow(entry, lambda count: moved(sent + count))
        self._check_end(entry, await self._last_output(entry))
        for work in needed:
            await self._check_received(work)

    def _request(self, key: str, works: Sequence[Work]) -> SubmissionRequest:
        cluster = self._cluster
        argv = [_PYTHON, "-u", cluster.submitter.runner_path("lifecycle/copy_within.py")]
        options = [*cluster.location.storage.get("copy_options", ()), *(self._asked.get("options") or ())]
        request: dict[str, object] = {
            **self._asked,
            "key": key,
            "kind": "script",
            "text": job_script([*argv, cluster.tracker.folder.job(key).path]),
            "script_name": "copy",
            "args": [],
            "python": None,
            "label": None,
            "options": options,
            "copies_to": posixpath.dirname(works[0].group.received),
            "files": {"copies.json": json.dumps([_folder(work) for work in works]).encode("ascii")},
        }
        return cast("SubmissionRequest", request)

    async def _follow(self, entry: TrackedJob, moved: Moved) -> None:
        """Wait for the end of the job; meanwhile note its state and the number of copied bytes."""
        transfer = self._transfer
        with self._cluster.tracker.listening(entry) as changed:
            while not entry.is_finished:
                changed.clear()
                job = job_dict(entry)
                transfer.job, transfer.waits = job["id"], None
                if entry.state.is_running:
                    moved(await self._copied(entry))
                else:
                    transfer.waits = printable(job["reason_text"] or job["state"])
                transfer.changed(transfer)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_INTERVAL_S):
                        await changed.wait()
        transfer.waits = None

    async def _copied(self, entry: TrackedJob) -> int:
        """Return the number of bytes that the job has copied; 0: unknown."""
        if entry.folder is not None:
            with contextlib.suppress(SlurmError, FileNotFoundError, ValueError):
                return max(0, int(await self._side.transport.read_owned(entry.folder.file("copied"), 0, 20)))
        return 0

    async def _last_output(self, entry: TrackedJob) -> str:
        """Return the last lines that the job has written."""
        path = entry.path("stderr") or entry.path("stdout")
        if path is None:
            return ""
        with contextlib.suppress(SlurmError, FileNotFoundError, ValueError):
            size = (await self._side.transport.stat(path)).size
            raw = await self._side.transport.read(path, max(0, size - _MAX_OUTPUT_BYTES), _MAX_OUTPUT_BYTES)
            return " ".join(printable(decode_output(raw)).split())[-500:]
        return ""

    def _check_end(self, entry: TrackedJob, output: str) -> None:
        if entry.state.name == "COMPLETED":
            return
        job = job_dict(entry)
        said = " ".join(part for part in (job["reason_text"], output) if part)
        hint = job["next_step"] or "Check the paths, their permissions and your quota: `%slurm room`."
        if entry.state.name == "CANCELLED":
            said, hint = "It was cancelled.", _CONTINUES
        elif entry.state.name == "TIMEOUT":
            hint = f"{_CONTINUES} Give it more time with --time."
        raise JobFailed(f"The copy job {job['id']} ended before all files were copied. {said}".rstrip(), hint=hint)

    async def _check_received(self, work: Work) -> None:
        """Check that the login node sees all files: its file system may show those of a node later."""
        received = await self._side.list_files(work.group.received, list(work.group.names))
        if missing := [path for path in work.entries if path not in received]:
            raise CommandError(
                f"The login node does not see all files of the copy job {self._transfer.job}: {first_names(missing)}.",
                hint="Check that the nodes and the login node have the same directory. If so, run the same command "
                "again in a minute.",
            )


async def cancel_job(cluster: Cluster, transfer: Transfer) -> None:
    """Cancel the job of a stopped transfer, if it has one that is not over."""
    entry = cluster.tracker.find(transfer.job_key) if transfer.job_key else None
    if entry is not None and entry.key is not None and not entry.is_finished:
        await cluster.actions.cancel(entry.key)


def _folder(work: Work) -> Mapping[str, object]:
    directories, files = split_names(work.entries, work.whole)
    names = {"whole": list(work.whole), "directories": directories, "files": files}
    return {"folder": work.group.folder, "received": work.group.received, **names}
