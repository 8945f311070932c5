"""Origin of a submission: the git commit of the notebook's folder, determined when no caller waits any more.

A repository may be malicious. No program of its configuration runs (hooks, fsmonitor, filters), nothing is fetched, and
no lock or index is written. Repositories of other users are refused by git itself (``safe.directory``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from dataclasses import replace

from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.jobdir.job_json_model import GitRecord
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.transport.base import Completed, Context, Transport
from jupyter_slurm.transport.local.transport import LocalTransport

__all__ = ["GitOrigins", "read_git_origin"]

_START_DELAY_S = 0.5  # seconds: a user who submits many jobs in a row does not wait, and one lookup serves all
_GIT_TIMEOUT_S = 10.0
_FILTER = re.compile(r"filter\.(.+)\.(?:clean|smudge|process|required)", re.DOTALL)
_CAREFUL = (
    *("-c", "core.fsmonitor="),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "safe.bareRepository=explicit"),
    *("-c", "protocol.allow=never"),
    *("-c", "core.attributesFile=/dev/null"),
    *("-c", "core.excludesFile=/dev/null"),
    "--no-optional-locks",
)
# A protocol that a repository allows by name overrides a setting for all protocols, but not the variable.
_SETTINGS = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


class GitOrigins:
    """Record the commit of the notebook's folder with each job.

    Parameters
    ----------
    tracker : Tracker
        Has the records.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._waiting: dict[str, list[TrackedJob]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def note(self, entry: TrackedJob, folder: str) -> None:
        """Determine the origin of a job in the background; jobs of one folder share the answer."""
        waiting = self._waiting.setdefault(folder, [])
        waiting.append(entry)
        if len(waiting) == 1:
            task = asyncio.create_task(self._delayed_read(folder), name="origin")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Stop without the missing origins."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _delayed_read(self, folder: str) -> None:
        await asyncio.sleep(_START_DELAY_S)
        entries = self._waiting.pop(folder)
        if not await asyncio.to_thread(_is_in_repository, folder):
            return
        here = LocalTransport(workers=1)  # the notebook's machine, for any cluster
        try:
            found = await read_git_origin(here, folder)
        finally:
            here.close()
        for entry in entries if found else ():
            await self._write(entry, found)

    async def _write(self, entry: TrackedJob, origin: GitRecord | None) -> None:
        tracker = self._tracker
        if entry.record is None or tracker.entries.get(entry.key or "") is not entry:
            return  # sbatch refused the job
        entry.record = replace(entry.record, git=origin)
        if await tracker.save(entry) and entry.is_finished and entry.key is not None:
            tracker.store.remember(tracker.name, entry.key, entry.record)


def _is_in_repository(folder: str) -> bool:
    """Return whether git could find a repository: for most folders this saves a process."""
    while not os.path.lexists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return False
        folder = above
    return True


async def read_git_origin(transport: Transport, folder: str) -> GitRecord | None:
    """Return commit, branch and whether tracked files differ; None if git gives no answer.

    Parameters
    ----------
    transport : Transport
        Transport to the machine of the folder.
    folder : str
        Any folder of a repository.
    """
    names = await _git(transport, folder, "config", "--list", "--name-only", "-z")
    if names is None:
        return None
    filters = {found[1] for name in names.split("\0") if (found := _FILTER.fullmatch(name))}
    off = [f"filter.{name}.{key}" for name in sorted(filters) for key in ("clean=", "process=", "required=false")]
    asked = ("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=all")
    told = None
    if not any("=" in name for name in filters):  # such a filter cannot be disabled
        told = await _git(transport, folder, *(word for one in off for word in ("-c", one)), *asked)
    if told is None:
        commit = await _git(transport, folder, "rev-parse", "--verify", "HEAD")
        return GitRecord(commit=commit.strip()) if commit else None
    lines = told.splitlines()
    heads = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch.") and " " in line[2:])
    commit = heads.get("branch.oid", "(initial)")
    if commit == "(initial)":
        return None
    branch = heads.get("branch.head")
    return GitRecord(
        commit=commit,
        branch=None if branch == "(detached)" else branch,
        dirty=any(not line.startswith("#") for line in lines),
    )


async def _git(transport: Transport, folder: str, *words: str) -> str | None:
    """Return the output of git; None after a failure."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    context = Context(cwd=folder, env={**env, **_SETTINGS})
    done: Completed | None = None
    with contextlib.suppress(SlurmError, OSError):
        done = await transport.run(["git", *_CAREFUL, *words], context=context, timeout=_GIT_TIMEOUT_S)
    return done.stdout.decode("utf-8", "replace") if done is not None and done.exit_code == 0 else None
