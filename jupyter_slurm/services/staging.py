"""Folders that travel with a job: to where its nodes see them before it is submitted, and what it left back after.

The order: what differs is listed, a choice is made (domain/staging.py), that is transferred, and both sides are noted
as alike in a file of the folder there. All of it may break off anywhere and is done again: rsync goes on where it was.
What is still to come back is known from the record of the job (``stage`` without ``back``), so also by the next agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import posixpath
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

from jupyter_slurm.domain import staging
from jupyter_slurm.domain.staging import Choice, Sign
from jupyter_slurm.errors import CommandError, SlurmError, TransportError, UsageError
from jupyter_slurm.services.entry import Entry
from jupyter_slurm.services.folders import Tree, check_source, room_here
from jupyter_slurm.services.slurm import printable, text_of
from jupyter_slurm.services.tracking import Tracker
from jupyter_slurm.services.where import Where
from jupyter_slurm.transport.base import Completed, Sent
from jupyter_slurm.transport.rsync import Rsync, check_rsync

__all__ = ["Staged", "Staging"]

log = logging.getLogger(__name__)

_TRIES = 5  # after a link that broke, before a submission is given up
_PAUSE = 2.0, 300.0  # seconds before results are looked for again; the longest
_LOOK = 0.5  # seconds between two looks whether Slurm has told the end, too
_TOLD = 20  # names of files that are kept in the record
_LARGEST = 256 << 20  # bytes of what is noted of a folder
_VANISHED = 24
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_VALUES = 'for name; do printf "%s\\0" "$(printenv -- "$name")"; done'
_OLD = 'cd -- "$1" && find . -type f -mmin "+$2" -print | head -n 1000'
_GONE = 'cd -- "$1" && xargs -0 rm -f --'
_STEP = 0.02  # of all, after which it is told how far results are
_SOON = 1 / 8  # of the time after which files are erased


@dataclass(frozen=True)
class Staged:
    """What is staged for a job.

    Attributes
    ----------
    folders : list of dict
        ``source``, ``dest``, ``inode``.
    checksum, delete : bool
        How they are synchronised.
    local : str or None
        A place on the node's own disk, where it runs in a copy.
    is_announced : bool
        Whether the signal that Slurm sends before the time limit is for the runner, which copies back what is new.
    """

    folders: list[dict[str, Any]]
    checksum: bool
    delete: bool
    local: str | None
    is_announced: bool = False

    @property
    def work_dir(self) -> str:
        """Where the job runs."""
        return str(self.folders[0]["dest"])

    def record(self) -> dict[str, Any]:
        """Return what is recorded."""
        record = {"folders": self.folders, "checksum": self.checksum, "delete": self.delete, "back": None}
        return {**record, "host": socket.gethostname(), **self._of_the_node()}

    def _of_the_node(self) -> dict[str, Any]:
        return {"local": self.local, "announced": self.is_announced} if self.local else {}

    def of(self, asked: Mapping[str, Any], chosen: Mapping[str, str | None]) -> Staged:
        """Return it for a job of this kind: what serves, or is to go on after a kill, stays where all nodes see it."""
        is_local = self.local and asked["kind"] in ("python", "script") and not asked.get("resume")
        return replace(self, local=self.local if is_local else None, is_announced="signal" not in chosen)


class Staging:
    """Folders of one cluster's jobs.

    Parameters
    ----------
    tracker : Tracker
        Of the cluster.
    where : Where
        Its place.
    """

    def __init__(self, tracker: Tracker, where: Where) -> None:
        self._tracker, self._where = tracker, where
        self._transport = tracker.client.transport
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._bringing: dict[str, asyncio.Task[None]] = {}
        tracker.on_end.append(self.bring_soon)

    # -- before

    async def prepare(self, asked: Mapping[str, Any]) -> Staged | None:
        """Work out what ``stage`` of a submission means; None where nothing is staged.

        Raises
        ------
        UsageError
            It cannot be.
        CommandMissing
            rsync is missing on one side.
        """
        stage = asked.get("stage")
        if not stage:
            return None
        folders = []
        for folder in stage["folders"]:
            source = await asyncio.to_thread(check_source, folder["source"])
            dest = await self._dest(source.path, folder.get("dest"))
            if not self._where.is_far:
                source.check_apart(dest)
            folders.append({"source": source.path, "dest": dest, "inode": source.inode})
        if len({folder["dest"] for folder in folders}) < len(folders):
            raise UsageError("Two folders of stage= have one destination.", hint="Name another one: stage=DIR:DEST.")
        await check_rsync(self._transport, self._where.host)
        local = self._where.storage.get("local")
        return Staged(folders, bool(stage.get("checksum")), bool(stage.get("delete")), local)

    async def _dest(self, source: str, said: str | None) -> str:
        name = posixpath.basename(source) or "root"
        digest = hashlib.sha256(f"{socket.gethostname()}\0{source}".encode("utf-8", "surrogateescape")).hexdigest()[:8]
        shared = self._where.storage.get("shared") or posixpath.join(self._where.folder, "stage")
        dest = await self._expanded(said or posixpath.join(shared, f"{name}-{digest}"))
        if not posixpath.isabs(dest):
            raise UsageError(
                f"{printable(dest)} is no folder of {self._where.host}.",
                hint="A destination of stage= begins with /, ~/ or a variable of the cluster.",
            )
        return posixpath.normpath(dest)

    async def _expanded(self, path: str) -> str:
        """Put in the home and the variables of the cluster."""
        if path.startswith("~/"):
            path = posixpath.join(self._where.home, path[2:])
        names = [first or second for first, second in _VARIABLE.findall(path)]
        if not names:
            return path
        done = await self._transport.run(["/bin/sh", "-c", _VALUES, "sh", *names])
        values = dict(zip(names, text_of(done.stdout).split("\0"), strict=False))
        if missing := [name for name in names if not values.get(name)]:
            raise UsageError(
                f"{path}: {missing[0]} is not set on {self._where.host}.",
                hint="Say `login_shell = true` under [shell] in the profile, if a start-up file sets it; or name the "
                "folder itself: stage=DIR:/…, or `shared` under [storage].",
            )
        return _VARIABLE.sub(lambda found: values[found[1] or found[2]], path)

    async def push(self, entry: Entry, sent: Sent) -> None:
        """Bring the folders of a job there; ``sent`` is told how far that is.

        Raises
        ------
        SlurmError
            It failed: nothing is to be submitted.
        """
        stage = (entry.record or {}).get("stage")
        if not stage or (entry.part and entry.part["of"] != entry.key):
            return
        for folder in stage["folders"]:
            async with self._lock(folder["dest"]):
                entry.warnings += await self._push(folder, stage, sent)

    async def _push(self, folder: Mapping[str, Any], stage: Mapping[str, Any], sent: Sent) -> list[str]:
        source, dest = folder["source"], folder["dest"]
        await self._transport.make_dir(dest)
        tree = await asyncio.to_thread(Tree.read, source)
        base = await self._base(folder)
        if stage["delete"]:
            await self._remove_gone(dest, [path for path in base if path not in tree.files])
            base = {path: sign for path, sign in base.items() if path in tree.files}
        choice, listed = await self._choose(folder, {} if stage["checksum"] else base, stage, is_pull=False)
        if choice.taken:
            await self._check_room(dest, choice.total)
            await self._again(folder, choice, sent)
        skipped = listed - {change.path for change in choice.taken}
        await self._note(folder, {**base, **{path: sign for path, sign in tree.files.items() if path not in skipped}})
        warnings = (
            []
            if not tree.leading_out
            else [f"Links that lead out of {source} did not travel: {printable(staging.names(tree.leading_out))}."]
        )
        return [*warnings, *await self._expiring(dest)]

    async def _again(self, folder: Mapping[str, Any], choice: Choice, sent: Sent) -> None:
        """Transfer, again after each break; what has arrived is not sent twice."""
        for left in reversed(range(_TRIES)):
            try:
                await self._transfer(folder, choice, sent, is_pull=False)
                break
            except TransportError as error:
                if not left:
                    raise TransportError(
                        f"{folder['source']} did not arrive on {self._where.host}: {error.message}",
                        hint="Nothing was submitted. Run this again: what has arrived is not sent twice.",
                    ) from error
                await asyncio.sleep(_PAUSE[0])

    async def _check_room(self, dest: str, wanted: int) -> None:
        done = await self._transport.run(["df", "-Pk", "--", dest])
        fields = text_of(done.stdout).splitlines()[-1].split() if done.exit_code == 0 and done.stdout else []
        free = int(fields[3]) << 10 if len(fields) > 5 and fields[3].isdecimal() else None
        if free is not None and wanted > free:
            raise UsageError(
                f"{_size(wanted)} are to go to {dest}, and {_size(free)} are free there: nothing was submitted.",
                hint="Make room there, name another place (stage=DIR:DEST), or leave files out: a line `- NAME` each "
                "in .rsync-filter of the folder.",
            )

    async def _remove_gone(self, dest: str, gone: list[str]) -> None:
        names = "".join(f"./{path}\0" for path in gone if staging.is_inside(path))
        if names:
            await self._ask("remove", _GONE, dest, stdin=names.encode("utf-8", "surrogateescape"))

    async def _expiring(self, dest: str) -> list[str]:
        """Say which files the site is about to erase."""
        if not (expires := self._where.storage.get("expires")):
            return []
        minutes = int(staging.seconds_of(expires) * (1 - _SOON) / 60)
        found = text_of((await self._ask("look at", _OLD, dest, f"{minutes}")).stdout).splitlines()
        if not found:
            return []
        many = f"{len(found)}{' or more' if len(found) == 1000 else ''} file{'' if len(found) == 1 else 's'}"
        return [
            f"{many} in {dest} are about to expire: {self._where.id} erases what was not changed for {expires}. For "
            f"example {printable(found[0].removeprefix('./'))}; a `touch` here has a file travel anew."
        ]

    # -- after

    def resume(self) -> None:
        """Bring back what an agent before this one has not."""
        for entry in list(self._tracker.entries.values()):
            self.bring_soon(entry)

    @property
    def held(self) -> int:
        """How many jobs have results that are still to come back, or will have."""
        waiting = [entry for entry in self._tracker.active() if (entry.record or {}).get("stage")]
        return len(waiting) + len(self._bringing)

    async def stop(self) -> None:
        """Break off; the next agent goes on."""
        for task in [*self._bringing.values()]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def bring_soon(self, entry: Entry) -> None:
        """Bring back what a job has left, if it is over and that was not done."""
        key = entry.key
        if key is None or key in self._bringing or not entry.is_owed:
            return
        task = self._bringing[key] = asyncio.create_task(self._bring_all(entry), name=f"results of {key}")
        task.add_done_callback(lambda _: self._bringing.pop(key, None))

    async def _bring_all(self, entry: Entry) -> None:
        """Bring it back, however long the link is down."""
        stage, pause = (entry.record or {})["stage"], _PAUSE[0]
        if not await asyncio.to_thread(is_of_here, stage):
            entry.is_staged_elsewhere = True
            return
        if stage.get("local"):
            await self._node_is_left(entry)
        while True:
            try:
                back = await self._bring(entry, stage)
                break
            except TransportError as error:
                log.info("the results of %s are not there yet: %s", entry.key, error.message)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _PAUSE[1])
            except SlurmError as error:
                back = {"files": 0, "bytes": 0, "left": [], "error": str(error)}
                break
            except Exception as error:
                log.exception("the results of %s", entry.key)
                back = {"files": 0, "bytes": 0, "left": [], "error": f"{type(error).__name__}: {error}"}
                break
            finally:
                entry.bringing = None
        stage["back"] = {**back, "time": self._tracker.clock(), "restarts": entry.restarts}
        if await self._tracker.save(entry) and entry.folder and entry.record:
            self._tracker.store.remember(self._tracker.name, entry.folder.key, entry.record)
        self._tracker.tell(entry)

    async def _node_is_left(self, entry: Entry) -> None:
        """Wait until Slurm has told the end, too: until then the runner may copy back what lies on the node."""
        with self._tracker.listening(entry) as changed:
            while entry.unverified:
                changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await changed.wait()

    async def _bring(self, entry: Entry, stage: Mapping[str, Any]) -> dict[str, Any]:
        files, size, left, errors = 0, 0, list[str](), list[str]()

        def sent(done: int, total: int) -> None:
            is_news = entry.bringing is None or done - entry.bringing[0] >= total * _STEP
            entry.bringing = (done, total) if is_news else entry.bringing
            if is_news:
                self._tracker.tell(entry)

        for folder in stage["folders"]:
            async with self._lock(folder["dest"]):
                base = await self._base(folder)
                choice, _ = await self._choose(folder, base, stage, is_pull=True)
                if choice.taken:
                    try:
                        room_here(folder["source"], choice.total)
                        await self._transfer(folder, choice, sent, is_pull=True)
                    except (CommandError, UsageError) as error:
                        errors.append(error.message)
                        continue
                    await self._note(folder, {**base, **{change.path: change.sign for change in choice.taken}})
                files, size, left = files + choice.files, size + choice.total, left + choice.left
        return {"files": files, "bytes": size, "left": left[:_TOLD], "error": " ".join(errors) or None}

    # -- either way

    async def _choose(
        self, folder: Mapping[str, Any], base: Mapping[str, Sign], stage: Mapping[str, Any], *, is_pull: bool
    ) -> tuple[Choice, set[str]]:
        """List what differs; return what of it travels, and all of it."""
        options = [*staging.COMPARED, *(["--checksum"] if stage["checksum"] and not is_pull else [])]
        run = Rsync(self._transport, folder["source"], folder["dest"])
        done = _checked(await run.run(options, is_pull=is_pull), folder, is_pull=is_pull)
        tree, changes = Tree(folder["source"]), staging.parse_listing(done.stdout)
        choice = await asyncio.to_thread(staging.chosen, changes, base, tree.sign_of, is_pull=is_pull)
        return choice, {change.path for change in changes}

    async def _transfer(self, folder: Mapping[str, Any], choice: Choice, sent: Sent, *, is_pull: bool) -> None:
        total = max(choice.total, 1)
        names = "".join(f"./{change.path}\0" for change in choice.taken).encode("utf-8", "surrogateescape")
        loop = asyncio.get_running_loop()

        def moved(done: int) -> None:
            loop.call_soon_threadsafe(sent, min(done, total - 1), total)

        sent(0, total)
        run = Rsync(self._transport, folder["source"], folder["dest"], moved=moved)
        _checked(await run.run(staging.TRANSFERRED, is_pull=is_pull, stdin=names), folder, is_pull=is_pull)
        sent(total, total)

    async def _base(self, folder: Mapping[str, Any]) -> dict[str, Sign]:
        """Return how both sides were when they were alike last; nothing where that was another folder of ours."""
        path = posixpath.join(folder["dest"], staging.BASE)
        try:
            noted = json.loads(await self._transport.read(path, 0, _LARGEST))
            if (noted["source"], noted["inode"]) != (folder["source"], folder["inode"]):
                return {}
            return {str(path): Sign(int(sign[0]), int(sign[1])) for path, sign in noted["files"].items()}
        except (FileNotFoundError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            return {}

    async def _note(self, folder: Mapping[str, Any], files: Mapping[str, Sign]) -> None:
        noted = {"format": 1, "source": folder["source"], "inode": folder["inode"], "files": files}
        await self._transport.write(posixpath.join(folder["dest"], staging.BASE), json.dumps(noted).encode())

    async def _ask(self, what: str, script: str, *args: str, stdin: bytes = b"") -> Completed:
        done = await self._transport.run(["/bin/sh", "-c", script, "sh", *args], stdin=stdin, timeout=None)
        if done.exit_code:
            raise CommandError(f"cannot {what} {args[0]}: {printable(text_of(done.stderr))[:500]}")
        return done

    def _lock(self, dest: str) -> asyncio.Lock:
        return self._locks.setdefault(dest, asyncio.Lock())


def is_of_here(stage: Mapping[str, Any]) -> bool:
    """Tell whether the folders of a job are those of this machine; its cluster has agents elsewhere, too."""
    if stage.get("host") == socket.gethostname():
        return True
    try:  # a home that several login nodes share
        return all(os.stat(folder["source"]).st_ino == folder["inode"] for folder in stage["folders"])
    except OSError:
        return False


def _checked(done: Completed, folder: Mapping[str, Any], *, is_pull: bool) -> Completed:
    if done.exit_code in (0, _VANISHED):
        return done
    said = [line for line in printable(text_of(done.stderr)).splitlines() if line.strip()]
    shown = "\n".join(line for line in said if not line.startswith("rsync error: some files")) or f"{done.exit_code}"
    ends = (folder["dest"], folder["source"]) if is_pull else (folder["source"], folder["dest"])
    hint = (
        "What is there lies in the folder of the cluster."
        if is_pull
        else ("Nothing was submitted. A line `- NAME` in .rsync-filter of the folder leaves a file out.")
    )
    raise CommandError(f"rsync from {ends[0]} to {ends[1]} failed: {shown[:1000]}", hint=hint)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
