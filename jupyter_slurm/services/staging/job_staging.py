"""Folders staged with a job: copied to a place visible to its nodes before submission, and results copied back after.

The order: list the differences, choose (domain/staging_rules.py), transfer, and record both sides as equal in a file of
the remote folder. Each stage may fail at any point and is repeated: rsync continues a partial transfer. The record of
the job (``stage`` without ``back``) lists results still to be copied back, so the next agent knows them too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import posixpath
import socket
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from jupyter_slurm.domain.staging_rules import ResultChoice, names
from jupyter_slurm.errors import SlurmError, TransportError, UsageError
from jupyter_slurm.services.jobdir.job_json_model import FolderRecord, ReturnRecord, StageRecord
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import printable
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.staging.cluster_paths import copy_directory
from jupyter_slurm.services.staging.folder_sync import FolderSync
from jupyter_slurm.services.staging.local_folder import FolderTree, check_free_space, check_source
from jupyter_slurm.services.staging.local_path_seal import MachineSeal
from jupyter_slurm.services.staging.shared_transfer import SharedTransfer
from jupyter_slurm.services.staging.staged_folders import SentFolder, StagedFolders
from jupyter_slurm.transport.base import Sent
from jupyter_slurm.transport.rsync import check_rsync

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Staging"]

log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 5  # before a submission with a broken connection is given up, and results whose rsync fails
_PAUSE = 2.0, 300.0  # seconds before the next attempt to copy results: first, and longest
_END_CHECK_INTERVAL_S = 0.5  # seconds between two checks whether Slurm has reported the end, too
_MAX_RECORDED_FILES = 20  # file names kept in the record
_PROGRESS_STEP_SHARE = 0.02  # fraction of all results between two progress reports


class Staging:
    """Folders of one cluster's jobs.

    Parameters
    ----------
    tracker : Tracker
        Tracker of the cluster.
    location : ClusterLocation
        Location of the cluster.
    seals : MachineSeal
        Seals of this machine.
    """

    def __init__(self, tracker: Tracker, location: ClusterLocation, seals: MachineSeal) -> None:
        self._tracker, self._location, self._seals = tracker, location, seals
        self._transport = tracker.client.transport
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._shared_transfers: WeakValueDictionary[tuple[str, str, bool, bool], SharedTransfer[SentFolder]] = (
            WeakValueDictionary()
        )
        self._bringing: dict[str, asyncio.Task[None]] = {}
        tracker.on_end.append(self.schedule_copy_back)

    # -- before the job

    async def prepare(self, requested: api.Submission) -> StagedFolders | None:
        """Resolve ``stage`` of a submission; return None if nothing is staged.

        Raises
        ------
        UsageError
            The folders cannot be staged.
        CommandMissing
            rsync is missing on one side.
        """
        stage = requested.get("stage")
        if not stage:
            return None
        if again := requested.get("again"):
            await self._check_unchanged(again, stage)
        folders = list[FolderRecord]()
        for folder in stage["folders"]:
            source = await asyncio.to_thread(check_source, folder["source"])
            dest = await self._dest(source.path, folder.get("dest"))
            if not self._location.is_remote:
                source.check_apart(dest)
            folders.append(FolderRecord(source=source.path, dest=dest, inode=source.inode))
        if len({folder.dest for folder in folders}) < len(folders):
            raise UsageError(
                "Two folders of stage= have the same destination.",
                hint="Give one of them another destination: stage=DIR:DEST.",
            )
        await check_rsync(self._transport, self._location.host)
        local, seal = (
            self._location.storage.get("local"),
            await asyncio.to_thread(self._seals.seal, self._sealed(folders)),
        )
        return StagedFolders(folders, bool(stage.get("checksum")), bool(stage.get("delete")), local, seal)

    async def _check_unchanged(self, key: str, stage: api.Stage) -> None:
        """Refuse to send a folder that is named only in the record of another job, which lies on the cluster."""
        entry = self._tracker.find(key)
        before = entry.folders if entry else None
        known = {folder.source for folder in before.folders} if before else set()
        wanted = {posixpath.normpath(folder["source"]) for folder in stage["folders"]}
        if before is None or not wanted <= known or not await self._is_local_job(before):
            raise UsageError(
                "The folders of that job were not staged from this computer.",
                hint="Run the cell again, with its stage=.",
            )

    async def is_local(self, entry: TrackedJob) -> bool:
        """Return whether a job has staged folders of this machine."""
        return entry.folders is not None and await self._is_local_job(entry.folders)

    async def _is_local_job(self, stage: StageRecord) -> bool:
        """Return whether the folders of a job belong to this machine; the cluster also has agents on other machines."""
        return await asyncio.to_thread(self._seals.is_on, stage.seal, self._sealed(stage.folders))

    def _sealed(self, folders: Sequence[FolderRecord]) -> list[Any]:
        return [self._location.id, *([folder.source, folder.dest, folder.inode] for folder in folders)]

    async def has_default_copy(self, folder: FolderRecord) -> bool:
        """Return whether a folder of this machine has the default destination, a copy managed by jupyter_slurm."""
        return folder.dest == await self._dest(folder.source, None)

    async def _dest(self, source: str, asked: str | None) -> str:
        # Two laptops of the same name and user may have folders of the same name.
        digest = (await asyncio.to_thread(self._seals.seal, ["copy", socket.gethostname(), source]))[:8]
        return await copy_directory(source, digest, asked, self._location, self._transport)

    async def push(self, entry: TrackedJob, sent: Sent) -> None:
        """Copy the folders of a job to the cluster; ``sent`` receives the progress.

        Raises
        ------
        SlurmError
            The copy failed: the job must not be submitted.
        """
        stage = entry.folders
        if stage is None or (entry.part and entry.part.of != entry.key):
            return
        for folder in stage.folders:
            entry.warnings += (await self.push_folder(await self.folder_sync(folder), stage, sent)).warnings

    async def folder_sync(self, folder: FolderRecord) -> FolderSync:
        """Return a folder of this machine with its copy."""
        owner = await asyncio.to_thread(self._seals.seal, ["transfers", self._location.id])
        return FolderSync(self._transport, folder, owner)

    async def push_folder(self, sync: FolderSync, stage: StageRecord, sent: Sent) -> SentFolder:
        """Copy a folder to the cluster, once for all jobs that request the same before the start.

        Later changes may be missing in the copy: a later request waits for the next transfer.
        """

        async def push(transfer: SharedTransfer[SentFolder], sent: Sent) -> SentFolder:
            async with self.alone(sync.dest):
                transfer.close()
                return await self._push_with_retries(sync, stage, sent)

        wanted = (sync.source, sync.dest, bool(stage.checksum), bool(stage.delete))
        joint = self._shared_transfers.get(wanted)
        if joint is None or not joint.is_open:
            joint = self._shared_transfers[wanted] = SharedTransfer(push)
        return await joint.join(sent)

    async def _push_with_retries(self, sync: FolderSync, stage: StageRecord, sent: Sent) -> SentFolder:
        """Copy a folder to the cluster, again after each broken connection; data is not sent twice."""
        for tried in range(_MAX_ATTEMPTS):
            try:
                if tried:
                    await sync.end_remains()
                return await self._push(sync, stage, sent)
            except TransportError as error:
                broken = error
                await asyncio.sleep(_PAUSE[0])
        raise TransportError(
            f"{sync.source} was not copied to {self._location.host}: {broken.message}",
            hint="Nothing was submitted. Run the cell again: files that were copied are not sent twice.",
        ) from broken

    async def _push(self, sync: FolderSync, stage: StageRecord, sent: Sent) -> SentFolder:
        await self._transport.make_dir(sync.dest)
        tree, base = await asyncio.to_thread(FolderTree.read, sync.source), await sync.base()
        warnings = tree.warnings()
        if stage.delete:
            gone = {path for path in base if path not in tree.files and not tree.leaves_out(path)}
            changed = await sync.remove_deleted({path: base[path] for path in gone})
            base = {path: sign for path, sign in base.items() if path not in gone or path in changed}
            if changed:
                told = printable(names(changed))
                warnings.append(f"Files in {sync.dest} that a job has changed were not deleted: {told}.")
        by_content = bool(stage.checksum)
        choice, listed, equal = await sync.choose(
            {} if by_content else base, tree, is_pull=False, by_content=by_content
        )
        if choice.copied:
            await sync.check_room(choice.total)
            await sync.send(choice, sent, by_content=by_content)
        equal |= {change.path for change in choice.copied}
        # Files that a filter leaves out are not noted as equal: a job may write files of the same names.
        known = {path: sign for path, sign in base.items() if path not in tree.files or path in listed}
        await sync.note({**known, **{path: sign for path, sign in tree.files.items() if path in equal}})
        if expires := self._location.storage.get("expires"):
            warnings += await sync.expiring(expires, self._location.id)
        return SentFolder(choice.files, choice.total, len(equal & tree.files.keys()) - choice.files, warnings)

    # -- after the job

    async def copy_back(self, entry: TrackedJob, accepted: Collection[str] = ()) -> None:
        """Copy back the results of a job, also after an attempt was given up, and wait for the end.

        ``accepted`` are files that run by themselves on this computer, and are to be copied all the same.

        Raises
        ------
        UsageError
            There are no results, or they belong to another machine.
        """
        stage, name = entry.folders, entry.id or entry.key
        if stage is None:
            raise UsageError(f"Job {name} has no staged folder.", hint="Stage a folder with stage=DIR.")
        if not entry.is_finished or entry.key is None:
            raise UsageError(
                f"Job {name} has not ended, so its results are not copied back yet.",
                hint="Wait: results are copied back when the job ends.",
            )
        if not await self._is_local_job(stage):
            raise UsageError(
                f"The results of {name} are copied back to the computer from which it was submitted.",
                hint="Run the command on that computer.",
            )
        if accepted and (running := self._bringing.get(entry.key)):
            await asyncio.shield(running)  # it was started without these files
        if entry.key not in self._bringing:
            _note_return(entry, replace(stage, back=None))
            self.schedule_copy_back(entry, frozenset(accepted))
        if task := self._bringing.get(entry.key):
            await asyncio.shield(task)

    def resume(self) -> None:
        """Copy back the results that an earlier agent has not."""
        for entry in list(self._tracker.entries.values()):
            self.schedule_copy_back(entry)

    @property
    def held(self) -> int:
        """Return the number of jobs with results still to be copied back, now or later."""
        waiting = [entry for entry in self._tracker.active() if entry.folders is not None]
        return len(waiting) + len(self._bringing)

    async def stop(self) -> None:
        """Stop; the next agent continues."""
        for task in [*self._bringing.values()]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def schedule_copy_back(self, entry: TrackedJob, accepted: frozenset[str] = frozenset()) -> None:
        """Copy back the results of a job in the background, if it is over and that was not done."""
        key = entry.key
        if key is None or key in self._bringing or not entry.is_copy_back_due:
            return
        task = self._bringing[key] = asyncio.create_task(self._copy_back_all(entry, accepted), name=f"results of {key}")
        task.add_done_callback(lambda _: self._mark_copied_back(entry, task))

    def _mark_copied_back(self, entry: TrackedJob, task: asyncio.Task[None]) -> None:
        self._bringing.pop(str(entry.key), None)
        if not task.cancelled() and task.exception() is None:
            self.schedule_copy_back(entry)  # it may have been requeued and be over again

    async def _copy_back_all(self, entry: TrackedJob, accepted: frozenset[str]) -> None:
        """Copy back all results, however long the connection is down."""
        stage, restarts, run = entry.folders, entry.restarts, entry.runner
        if stage is None:
            return
        if not await self._is_local_job(stage):
            entry.staging.is_elsewhere = True
            return
        if stage.local:
            await self._wait_node_end(entry)
        try:
            back = await self._copy_back_folders(entry, stage, accepted)
        except Exception as error:
            log.exception("the results of %s", entry.key)
            why = f"{type(error).__name__}: {error}"
            back = ReturnRecord(files=0, bytes=0, left=[], error=why, given_up=True)
        finally:
            entry.staging.progress = None
        if entry.runner is not run:
            return  # Slurm has shown it running again: its results are copied back at its next end
        back = replace(back, time=self._tracker.clock(), restarts=restarts)
        _note_return(entry, replace(entry.folders or stage, back=back))  # the record may have been read again
        if await self._tracker.save(entry) and entry.folder and entry.record:
            self._tracker.store.remember(self._tracker.name, entry.folder.key, entry.record)
        self._tracker.publish(entry)

    async def _wait_node_end(self, entry: TrackedJob) -> None:
        """Wait until Slurm has reported the end, too: before that the runner may still copy files from the node."""
        with self._tracker.listening(entry) as changed:
            while entry.runner.unverified:
                changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_END_CHECK_INTERVAL_S):
                        await changed.wait()

    async def _copy_back_folders(self, entry: TrackedJob, stage: StageRecord, accepted: frozenset[str]) -> ReturnRecord:
        total, errors, is_given_up = ResultChoice(), list[str](), False

        def sent(done: int, total: int) -> None:
            is_news = entry.staging.progress is None or done - entry.staging.progress[0] >= total * _PROGRESS_STEP_SHARE
            entry.staging.progress = (done, total) if is_news else entry.staging.progress
            if is_news:
                self._tracker.publish(entry)

        for folder in stage.folders:
            try:
                total += await self._pull_with_retries(await self.folder_sync(folder), sent, accepted)
            except SlurmError as error:
                errors.append(error.message)
                is_given_up = is_given_up or not error.details.get("is_gone")
        left, held, refused = (names[:_MAX_RECORDED_FILES] for names in (total.omitted, total.held, total.refused))
        return ReturnRecord(
            files=total.files,
            bytes=total.total,
            left=left,
            held=held or None,
            refused=refused or None,
            error=" ".join(errors) or None,
            given_up=is_given_up,
        )

    async def _pull_with_retries(self, sync: FolderSync, sent: Sent, accepted: frozenset[str]) -> ResultChoice:
        """Copy a folder back: repeat while the connection is down, and a few times after other errors."""
        failed, pause = 0, _PAUSE[0]
        while True:
            moved = 0

            def told(done: int, total: int) -> None:
                nonlocal moved
                moved = done
                sent(done, total)

            try:
                async with self.alone(sync.dest):
                    return await self._pull(sync, told, accepted)
            except SlurmError as error:
                is_of_the_link = isinstance(error, TransportError) and (moved or not await self._is_reached())
                failed += not is_of_the_link
                if failed == _MAX_ATTEMPTS or error.details.get("is_gone"):
                    raise
                log.info("what is new in %s is not here yet: %s", sync.dest, error.message)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE[1])

    async def _is_reached(self) -> bool:
        with contextlib.suppress(TransportError):
            return (await self._transport.run(["true"])).exit_code == 0
        return False

    async def _pull(self, sync: FolderSync, sent: Sent, accepted: frozenset[str]) -> ResultChoice:
        await sync.check_both_sides()
        tree, base = await asyncio.to_thread(FolderTree.read, sync.source), await sync.base()
        choice, _, _ = await sync.choose(base, tree, is_pull=True, accepted=accepted)
        if not choice.copied:
            await sync.discard_received()
            return choice
        check_free_space(sync.source, choice.total)
        received = await sync.receive(choice, base, sent)
        copied = {change.path: change.sign for change in received.copied if not change.is_folder}
        await sync.note({**base, **copied})
        return replace(choice, copied=[]) + received

    def alone(self, dest: str) -> asyncio.Lock:
        """Return the lock of a remote folder, which allows one synchronisation at a time."""
        return self._locks.setdefault(dest, asyncio.Lock())


def _note_return(entry: TrackedJob, stage: StageRecord) -> None:
    """Record the outcome of copying back a job's folders."""
    if entry.record is not None:
        entry.record = replace(entry.record, stage=stage)
