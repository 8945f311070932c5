"""One cluster as the agent serves it: submissions, jobs, output, commands."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import getpass
import hashlib
import itertools
import logging
import posixpath
import secrets as random_bytes
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from jupyter_slurm.config import Settings
from jupyter_slurm.domain import tables
from jupyter_slurm.domain.commands import COMMANDS, check_ends
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.errors import (
    CommandError,
    JobNotFound,
    ParseError,
    SlurmError,
    SubmissionUnknown,
    TransportError,
    UsageError,
)
from jupyter_slurm.services import output, submission
from jupyter_slurm.services.about import cluster_id, shipped
from jupyter_slurm.services.bus import Bus
from jupyter_slurm.services.entry import Entry
from jupyter_slurm.services.jobdir import FORMAT, ClusterFolder, dump, is_key
from jupyter_slurm.services.settling import Settler
from jupyter_slurm.services.slurm import (
    SlurmClient,
    base_environment,
    cluster_name,
    next_step,
    printable,
    text_of,
)
from jupyter_slurm.services.store import Store
from jupyter_slurm.services.tracking import Tracker
from jupyter_slurm.services.visibility import doubt_about
from jupyter_slurm.services.watcher import Watcher
from jupyter_slurm.transport.base import Context, Once, Transport

__all__ = ["Cluster"]

log = logging.getLogger(__name__)

_SIGNS_EVERY = 0.5
_SIGNS_UNWATCHED = 10
_SUBMISSIONS_AT_ONCE = 4


class Cluster:
    """One Slurm and this user's jobs on it.

    Parameters
    ----------
    slurm_conf, path : str or None
        SLURM_CONF and PATH of the front door that named it.
    """

    def __init__(
        self,
        slurm_conf: str | None,
        path: str | None,
        *,
        transport: Transport,
        settings: Settings,
        store: Store,
        bus: Bus,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.id, self.name = cluster_id(slurm_conf), ""
        self.slurm_conf, self.path = slurm_conf, path
        self._settings, self._transport, self._clock = settings, transport, clock
        self.folder = ClusterFolder(posixpath.join(settings.job_root, self.id))
        self.client = SlurmClient(transport, base_environment(slurm_conf, path), settings.command_timeout)
        self.tracker = Tracker(self.id, self.client, self.folder, store, bus, clock)
        self.watcher = Watcher(
            self.tracker.look,
            needed=lambda: any(entry.id is not None for entry in self.tracker.active()),
            waited_for=self.tracker.is_listened_to,
            shortest=settings.poll_shortest,
            longest=settings.poll_longest,
            told=lambda: bus.publish("cluster", self.as_dict()),
        )
        self.settler = Settler(self.tracker, self.client, self.watcher, settings.submit_timeout)
        self._bus = bus
        self._is_prepared = False
        self._hosts: list[str] | None = None
        self._gate = asyncio.Semaphore(_SUBMISSIONS_AT_ONCE)
        self._locks: dict[str, asyncio.Lock] = {}
        self._signs: asyncio.Task[None] | None = None

    # -- life

    async def start(self) -> None:
        """Know again what was known, and begin to watch."""
        for entry in await self.tracker.load():
            self.settler.begin(entry)
        self.watcher.start()
        self._signs = asyncio.create_task(self._watch_signs(), name="signs")
        if self.tracker.active():
            self.watcher.wake()

    async def stop(self) -> None:
        """End the watching; jobs and executions of sbatch go on."""
        await self.settler.stop()
        await self.watcher.stop()
        await self.tracker.stop()
        if self._signs is not None:
            self._signs.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._signs

    async def identify(self) -> None:
        """Learn the cluster's own name; while it does not answer, the id stands for it."""
        if self.name:
            return
        try:
            self.name = cluster_name(await self.client.configuration(), "")
        except SlurmError as error:
            log.info("cluster %s has no name yet: %s", self.id, error.message)

    def as_dict(self) -> dict[str, Any]:
        """Return the cluster as the API tells it."""
        return {
            "id": self.id,
            "name": self.name or self.id,
            "slurm_conf": self.slurm_conf,
            "folder": self.folder.path,
            "active": len(self.tracker.active()),
            "poll": self.watcher.status(),
        }

    # -- submission

    async def submit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Submit a job, or show what would be submitted.

        Raises
        ------
        UsageError, SubmitRefused
            Nothing was submitted.
        """
        if not is_key(asked["key"]):
            raise UsageError(f"{asked['key']!r} is not a submission key")
        async with self._locks.setdefault(asked["key"], asyncio.Lock()), self._gate:
            try:
                return await self._submit(asked)
            finally:
                self._locks.pop(asked["key"], None)

    async def _submit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        known = self.tracker.find(asked["key"])
        if known is not None and (known.id is not None or known.is_finished):
            return known.as_dict()
        runner = self._runner_path("cell.py")
        context = self.client.submission_context(asked.get("context") or {})
        table = await self.client.options("sbatch")
        version = await self.client.version()
        plan = submission.make_plan(self.folder, runner, table, asked, context, self._clock(), version)
        warnings = await self._doubts(asked.get("python")) if asked["kind"] == "python" else []
        if asked.get("dry_run"):
            return {
                "argv": plan.argv,
                "script": printable(plan.script.decode("utf-8", "surrogateescape")),
                "warnings": warnings,
            }
        await self._prepare()
        entry = known or Entry(self.id, folder=plan.folder, record=plan.record, submit_time=self._clock())
        if known is None:
            entry.warnings = warnings
            once = await self._begin(plan, context)
            self.tracker.add(entry)
            answer = await submission.answer_of(once, plan, self._settings.submit_timeout)
        else:
            await self.settler.take_back(known)
            try:
                answer = await submission.execute(self._transport, plan, context, 1, self._settings.submit_timeout)
            except TransportError:  # sbatch could not be started: nothing was submitted
                self.tracker.drop(entry)
                await self._transport.remove(plan.folder.path)
                raise
        if answer is not None and answer.job is not None:
            await self.settler.accept(entry, answer.job, answer.remarks)
        elif answer is not None and answer.is_clear:
            self.tracker.drop(entry)
            await self._transport.remove(plan.folder.path)
            raise submission.refusal(answer, plan.argv)
        else:
            self.settler.begin(entry, plan, context)
        return entry.as_dict()

    async def _begin(self, plan: submission.Plan, context: Context) -> Once:
        try:
            return await submission.begin(self._transport, plan, context)
        except FileExistsError:
            if "job.json" in await self._transport.list_dir(plan.folder.path):
                raise SubmissionUnknown(
                    f"another agent submits {plan.folder.key}",
                    hint="It is found with jupyter_slurm.jobs() in a moment.",
                ) from None
            # An older version died while it made this folder: before it had written job.json, so before it ran sbatch.
            await self._transport.remove(plan.folder.path)
            return await submission.begin(self._transport, plan, context)

    async def _prepare(self) -> None:
        """Put the cluster's folder and the runner in place, once."""
        if self._is_prepared:
            return
        await self._transport.make_dir(self.folder.events)
        await self._transport.write(self._runner_path("cell.py"), shipped("cell.py"))
        about = {"format": FORMAT, "id": self.id, "name": self.name, "slurm_conf": self.slurm_conf, "path": self.path}
        await self._transport.write(posixpath.join(self.folder.path, "cluster.json"), dump(about))
        self._is_prepared = True

    def _runner_path(self, name: str) -> str:
        """Return where a file of the runner lies: its content is in its name, so that versions do not meet."""
        digest = hashlib.sha256(shipped(name)).hexdigest()[:8]
        return posixpath.join(self.folder.path, f"runner-{digest}-{name}")

    async def _doubts(self, python: str | None) -> list[str]:
        """Say what speaks against a Python on the nodes; never a reason not to submit."""
        if not python:
            return []
        try:
            if self._hosts is None:
                self._hosts = [node.hostname or node.name for node in await self.client.nodes()]
            mounts = text_of(await self._transport.read("/proc/self/mounts"))
        except (SlurmError, FileNotFoundError):
            return []
        doubt = doubt_about(python, self._hosts, socket.gethostname(), mounts)
        return [doubt] if doubt else []

    # -- jobs

    async def jobs(self, *, active: bool) -> list[dict[str, Any]]:
        """Return the jobs of this user, newest first; as fresh as the shortest interval allows."""
        with contextlib.suppress(SlurmError):
            await self.watcher.fresh()
        entries = self.tracker.active() if active else self.tracker.everybody()
        return [e.as_dict() for e in sorted(entries, key=lambda e: e.submit_time or 0.0, reverse=True)]

    async def job(self, reference: str) -> dict[str, Any]:
        """Return one job, or one task of an array (``12_3``)."""
        entry = await self.entry(reference)
        return entry.of_task(_task_of(reference, entry)).as_dict()

    async def entry(self, reference: str) -> Entry:
        """Return a job by key or Slurm id; a job that is not known yet is asked for.

        Raises
        ------
        JobNotFound
            This user has no such job.
        """
        entry = self.tracker.find(reference)
        if entry is not None:
            await self._describe_once(entry)
            return entry
        try:
            job = JobId(JobId.parse(reference).job)
        except SlurmError:
            raise JobNotFound(
                f"there is no job {printable(reference)}", hint="`jupyter_slurm.jobs()` lists yours."
            ) from None
        records = await self.client.describe(job) or await self._remembered(job)
        mine = [record for record in records if not record.user or record.user == getpass.getuser()]
        if not mine:
            raise JobNotFound(
                f"you have no job {job}" + (" (it belongs to somebody else)" if records else ""),
                hint="`%squeue --me` shows the queue, `%sacct` what is over.",
            )
        entry = Entry(self.id, id=job, state=mine[0].state, described=True)
        entry.see(mine, self._clock())
        self.tracker.add(entry)
        self.watcher.wake()
        return entry

    async def _describe_once(self, entry: Entry) -> None:
        """Learn name and output of a job that the poller found: not its business, but that of who asks for it."""
        if entry.folder is not None or entry.id is None or entry.described:
            return
        with contextlib.suppress(SlurmError):
            records = await self.client.describe(entry.id)
            entry.described = True
            entry.see(records, self._clock())

    async def _remembered(self, job: JobId) -> list[Any]:
        try:
            return await self.client.history([job], 0)
        except CommandError:
            return []

    async def cancel(self, reference: str, signal: str | None = None) -> dict[str, Any]:
        """Cancel a job or send it a signal; what then became of it is asked for at once."""
        entry = await self.entry(reference)
        if entry.id is None:
            self.settler.give_up(entry)
            return entry.as_dict()
        if not entry.is_finished:
            target = reference if reference != entry.key else str(entry.id)
            await self.client.ask(["scancel", *(["--signal", signal] if signal else []), target])
            if self.client.singles.is_ready():  # in a loop over many jobs the next look at the queue tells
                await self.tracker.see(entry, await self.client.describe(entry.id))
            self.watcher.wake()
        return entry.as_dict()

    async def script(self, reference: str) -> bytes:
        """Return the batch script of a job, byte for byte."""
        entry = await self.entry(reference)
        if entry.folder is not None and entry.record is not None:
            return await self._transport.read(entry.folder.file(entry.record["script"]))
        return await self.client.ask(["scontrol", "write", "batch_script", str(entry.id), "-"])

    # -- output

    async def output(self, reference: str, stream: str, offset: int, limit: int | None) -> tuple[bytes, int]:
        """Return a part of a job's output and its whole size in bytes; a negative offset counts from the end."""
        entry = await self.entry(reference)
        path = entry.of_task(_task_of(reference, entry)).paths()[stream]
        return await output.read_output(self._transport, path, offset, limit, finished=entry.is_finished)

    async def stream(self, reference: str, offsets: dict[str, int]) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield what a job prints and becomes, until it is over."""
        entry = await self.entry(reference)
        task = _task_of(reference, entry)
        positions = {name: offsets.get(name, 0) for name in output.STREAMS}
        with self.tracker.listening(entry) as changed:
            self.watcher.wake()
            follow = output.follow(
                self._transport,
                lambda: entry.of_task(task),
                positions,
                changed,
            )
            async for event in follow:
                yield event

    # -- commands

    async def command(self, argv: list[str], *, table: bool, context: Mapping[str, Any]) -> dict[str, Any]:
        """Run a Slurm command as a person typed it; with ``table``, as a table where the command has one."""
        if not argv or argv[0] not in COMMANDS:
            raise UsageError(f"{argv[0] if argv else ''!r} is not a Slurm command that is passed through")
        if any("\0" in word for word in argv):
            raise UsageError("a NUL byte cannot be part of a command line", hint="Take it out.")
        check_ends(argv)
        mark = random_bytes.token_hex(8)
        env = context.get("env") or {}
        table = table and not any(env.get(name) for name in tables.FORMAT_VARIABLES.get(argv[0], ()))
        framed = tables.tabular_argv(argv[0], argv[1:], mark) if table else None
        done = await self.client.passthrough(framed or argv, context, parsed=framed is not None)
        if argv[0] == "scancel":
            self.watcher.wake()
        try:
            parsed = tables.parse_table(argv[0], done.stdout, mark) if framed and done.exit_code == 0 else None
        except ParseError:  # a text of somebody's broke the table: then it is shown as the command prints it
            return await self.command(argv, table=False, context=context)
        return {
            "exit_code": done.exit_code,
            "stdout": base64.b64encode(b"" if parsed else done.stdout).decode("ascii"),
            "stderr": base64.b64encode(done.stderr).decode("ascii"),
            "hint": next_step(argv[0], text_of(done.stderr)) if done.exit_code else "",
            "table": {
                "columns": parsed.columns,
                "rows": [[printable(cell) for cell in row] for row in parsed.rows],
            }
            if parsed
            else None,
        }

    async def options(self, command: str) -> dict[str, Any]:
        """Return the options of a submitting command as this Slurm has them."""
        if command not in ("sbatch", "salloc", "srun"):
            raise UsageError(f"{command!r} is not one of sbatch, salloc, srun")
        table = await self.client.options(command)
        version = await self.client.version()
        return {"command": command, "version": list(version or ()), "options": table.as_list()}

    async def _watch_signs(self) -> None:
        """Look at the events folder while Python cells run: often when somebody watches, seldom when nobody does."""
        for turn in itertools.count():
            await asyncio.sleep(_SIGNS_EVERY)
            interested = self._bus.listeners > 0 or self.tracker.is_listened_to()
            if not interested and turn % _SIGNS_UNWATCHED:
                continue
            if any(entry.kind == "python" for entry in self.tracker.active()):
                try:
                    await self.tracker.read_signs()
                except (SlurmError, OSError):
                    log.exception("the events folder of %s could not be worked off", self.id)


def _task_of(reference: str, entry: Entry) -> int | None:
    if reference == entry.key:
        return None
    try:
        return JobId.parse(reference).task
    except SlurmError:
        return None
