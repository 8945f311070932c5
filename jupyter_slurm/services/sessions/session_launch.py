"""Sessions: a Jupyter or another server in a job, with the tunnel to it.

The durable state is the job (``kind`` session) and the runner's files in the job directory.
:mod:`jupyter_slurm.services.tunnels.local_tunnels` stores the tunnel. So any agent can restore a session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from jupyter_slurm.errors import JobError, JobNotFound, SlurmError, TransportError, UsageError
from jupyter_slurm.retry_delays import RetryDelays
from jupyter_slurm.services.jobdir.job_json_model import GrantRecord
from jupyter_slurm.services.jobs.failures import contained
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.serialize import job_dict
from jupyter_slurm.services.jobs.session_server import SessionServer, SessionStart, read_served, read_token
from jupyter_slurm.services.jobs.session_state import not_a_session, route_to_api, session_dict
from jupyter_slurm.services.results.output import why_lost
from jupyter_slurm.services.sessions.login_pages import LoginPages
from jupyter_slurm.services.sessions.protocols import SessionCluster
from jupyter_slurm.services.sessions.session_jobs import NAME, app_of, is_current_run, is_session, name_of
from jupyter_slurm.services.slurm.client import printable
from jupyter_slurm.services.tunnels.local_tunnels import Tunnels, owner

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.submission.request import SubmissionRequest

__all__ = ["Sessions"]

log = logging.getLogger(__name__)

_OF_A_LAUNCH = ("name", "on", "app_values")
_FRESH_DELAYS_S = 0.025, 1.0  # seconds between two checks whether a Jupyter answers: on this machine, over SSH
_CHECK_DELAYS_S = (0.5, 2.0)  # seconds between two checks whether a cancelled session is over: first, and longest
_SHUTDOWN_TIMEOUT_S = 60.0  # seconds for all of them
_RESERVED_LOOKUPS = 3  # immediate queries about one job that are left to other callers
_RETRY_DELAYS_S = (2.0, 60.0)  # seconds between two attempts to connect: first, and longest

_NO_PORT = (
    "Free the port, then use `jupyter slurm open {0}`. Or use `jupyter slurm stop {0}`, and launch the session again "
    "with another port=, or without. `jupyter slurm tunnel --list` shows tunnels that you can close."
)


class Sessions:
    """Sessions of all clusters.

    Parameters
    ----------
    cluster : callable
        Returns a cluster by ID; raises if not connected.
    tunnels : Tunnels
        Opens the local ports.
    folder : str
        Folder of the login pages, readable only by the user.
    """

    def __init__(self, cluster: Callable[[str], SessionCluster], tunnels: Tunnels, folder: str) -> None:
        self._cluster, self._tunnels, self._pages = cluster, tunnels, LoginPages(folder)
        self._launching: set[tuple[str, str, str]] = set()  # cluster, name, key
        self._published: dict[str, api.Session | None] = {}  # last published state of each active session
        self._next_attempts: dict[str, float] = {}  # monotonic seconds, by session
        self._delays = defaultdict[str, RetryDelays](lambda: RetryDelays(*_RETRY_DELAYS_S))
        self._reaching: dict[str, asyncio.Task[None]] = {}
        self._approaching: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Remove the login pages of a killed agent."""
        self._pages.sweep()

    async def stop(self) -> None:
        """Stop without ending the sessions; remove all pages: without an agent, other users can take the ports they
        post to.
        """
        self._pages.clear()
        tasks = [*self._reaching.values(), *self._approaching.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- requests of the user

    async def launch(self, name: str, requested: api.Launch) -> api.Job | api.Preview:
        """Submit the job of a session, once for each key; ``dry_run``: only show the submission.

        Raises
        ------
        UsageError
            The name is taken, the Python has no Jupyter, or the command lacks {port}: nothing was submitted.
        SubmitRefused
            sbatch refused the job.
        """
        cluster, key = self._cluster(name), requested["key"]
        from jupyter_slurm.services.sessions.command import check_command, folders_of, stem_of, with_app
        from jupyter_slurm.services.sessions.session_request import OF_A_SESSION, check_on, session_part, start_on

        served = with_app(requested)
        command = served.get("command")
        check_command(command)
        doubts = await check_on(cluster, requested) if requested.get("on") else []
        with self._named(cluster, key, requested.get("name"), requested.get("app") or stem_of(command)) as chosen:
            session = session_part(cluster, requested, served)
            body = {n: value for n, value in requested.items() if n not in (*_OF_A_LAUNCH, *OF_A_SESSION)}
            body |= {"kind": "session", "text": "", "label": chosen, "session": session}
            body["folders"] = folders_of(requested)
            told: api.Job | api.Preview
            if requested.get("on"):
                told = await start_on(cluster, requested, session, chosen)
            else:
                told = await cluster.submit(cast("SubmissionRequest", body))
        warnings = [*(told.get("warnings") or ()), *doubts, *_port_warnings(session.get("port"))]
        return cast("api.Job | api.Preview", {**told, "warnings": warnings})

    def list_to_api(self, name: str, *, active: bool) -> list[api.Job]:
        """Return the sessions of a cluster, newest first."""
        entries = [entry for entry in self._cluster(name).tracker.entries.values() if is_session(entry)]
        meant = [entry for entry in entries if not (active and entry.is_finished)]
        return [job_dict(entry) for entry in sorted(meant, key=lambda e: e.submit_time or 0.0, reverse=True)]

    async def session_to_api(self, name: str, reference: str) -> api.Job:
        """Return a session by name, Slurm ID or key; of several with the same name, the latest.

        Raises
        ------
        JobNotFound
            There is no such session.
        """
        return job_dict(await self._find(self._cluster(name), reference))

    async def open(self, name: str, reference: str) -> api.OpenSessionResponse:
        """Open a tunnel to a session, and write a login page if the session is a Jupyter.

        Raises
        ------
        JobError
            The session is not ready, or over.
        TunnelError
            There is no route to the session.
        """
        cluster = self._cluster(name)
        entry = await self._find(cluster, reference)
        if entry.is_finished or not entry.state.is_running or not await self._check_listener(cluster, entry):
            session = session_dict(entry)
            state = session["state"] if session else ""
            hint = "Launch a new session." if entry.is_finished else "Try again when it is ready."
            raise JobError(f"Session {name_of(entry)} is not ready: {state}.", hint=hint, state=state)
        await self._reach(cluster, entry, is_requested=True)
        session, page = session_dict(entry), None
        if (
            session is not None
            and entry.record is not None
            and entry.record.session is not None
            and entry.record.session.has_token
            and (url := session["url"])
        ):
            page = await self._write_page(cluster, entry, url, session.get("browser_url") or url)
        return {**job_dict(entry), "page": page}

    async def session_route(self, clusters: Iterable[SessionCluster], key: str) -> api.SessionWay:
        """Return the local address and the token of a session, without a request to any other host.

        Raises
        ------
        JobNotFound
            None of these clusters has the session.
        JobError
            The session is not ready, or over.
        """
        for cluster in clusters:
            entry = cluster.tracker.entries.get(key)
            if entry is not None and is_session(entry):
                return await route_to_api(cluster.client.transport, entry)
        raise JobNotFound(
            "There is no session at this address.",
            hint="List your sessions with `jupyter slurm sessions --all`. If their cluster is not "
            "connected, use `jupyter slurm connect CLUSTER` first.",
        )

    async def end(self, name: str, reference: str) -> api.Job:
        """End a session with its processes; return after its end, or after a minute."""
        cluster = self._cluster(name)
        entry = await self._find(cluster, reference)
        await cluster.actions.cancel(str(entry.key))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_TIMEOUT_S):
                await self._until_over(cluster, entry)
        if entry.is_finished:
            self._tunnels.end_with(cluster.id, str(entry.key))
        return job_dict(entry)

    async def rename(self, name: str, reference: str, wanted: str) -> api.Job:
        """Rename a session.

        Raises
        ------
        UsageError
            Another session has the name.
        """
        cluster = self._cluster(name)
        entry = await self._find(cluster, reference)
        with self._named(cluster, str(entry.key), wanted) as chosen:
            if entry.record is not None:
                entry.record = replace(entry.record, label=chosen)
            if await cluster.tracker.save(entry):
                with contextlib.suppress(TransportError):  # informs agents on other machines
                    await cluster.client.transport.write(f"{cluster.tracker.folder.events}/{entry.key}.renamed", b"")
        cluster.tracker.publish(entry)
        return job_dict(entry)

    @staticmethod
    async def _until_over(cluster: SessionCluster, entry: TrackedJob) -> None:
        """Wait for the end of a session; query Slurm about this job alone if the rate limit allows."""
        delays = RetryDelays(*_CHECK_DELAYS_S)
        while not entry.is_finished:
            with cluster.tracker.listening(entry) as changed, contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delays.next()):
                    await changed.wait()  # another query may have seen the end
            cluster.poller.wake()
            if entry.id is not None and not entry.is_finished and cluster.client.singles.is_ready(_RESERVED_LOOKUPS):
                with contextlib.suppress(SlurmError):
                    await cluster.tracker.update_from_slurm(entry, await cluster.client.describe(entry.id))

    # -- background work

    async def tend(self, cluster: SessionCluster) -> None:
        """Open the tunnels of ready sessions, and publish changes."""
        for entry in filter(is_session, list(cluster.tracker.entries.values())):
            with contained(entry):
                await self._tend_session(cluster, entry, str(entry.key))

    async def _tend_session(self, cluster: SessionCluster, entry: TrackedJob, key: str) -> None:
        if entry.is_finished:
            self._published.pop(key, None)
            self._next_attempts.pop(key, None)
            self._delays.pop(key, None)
            self._pages.remove(key)
            self._tunnels.leave(cluster.id, key)
            return
        if entry.session.server is not None and not is_current_run(entry, entry.session.server):
            entry.session.former_port, entry.session.server = entry.session.server.port, None  # it may change
        if entry.session.server is not None and entry.session.server.is_stale:
            await self._read_warnings(cluster, entry, entry.session.server)
        if entry.state.is_running and self._is_check_due(cluster, key):
            await self._check_listener(cluster, entry)
            self._connect(cluster, entry)
        now = session_dict(entry)
        if self._published.get(key) != now:
            self._published[key] = now
            cluster.tracker.publish(entry)

    async def _find(self, cluster: SessionCluster, reference: str) -> TrackedJob:
        named = [e for e in cluster.tracker.entries.values() if is_session(e) and name_of(e) == reference]
        if named:
            return max(named, key=lambda e: (not e.is_finished, e.submit_time or 0.0))
        with contextlib.suppress(JobNotFound):
            entry = await cluster.jobs.find(reference)
            if is_session(entry):
                return entry
        raise JobNotFound(
            f"There is no session {printable(reference)}.",
            hint="List the running sessions with `jupyter slurm sessions`.",
        )

    def _is_check_due(self, cluster: SessionCluster, key: str) -> bool:
        if time.monotonic() < self._next_attempts.get(key, 0.0) or key in self._reaching:
            return False
        self._next_attempts[key] = time.monotonic() + _FRESH_DELAYS_S[cluster.location.is_remote]
        return True

    async def _check_listener(self, cluster: SessionCluster, entry: TrackedJob) -> bool:
        """Read the address of the server; return whether it listens."""
        if entry.session.server is None and entry.folder is not None:
            found = await read_served(cluster.client.transport, entry.folder)
            if isinstance(found, SessionStart):
                entry.session.stage = found.stage
                if found.nodes and entry.record is not None and is_current_run(entry, found):
                    granted = replace(entry.record.granted or GrantRecord(), nodes=found.nodes)
                    entry.record = replace(entry.record, granted=granted)
            elif is_current_run(entry, found):
                entry.session.server, entry.session.stage = found, ""
            if entry.session.server is not None:
                entry.session.server.lost = partial(why_lost, cluster.id, cluster.describe_connection)
            if entry.session.server is not None and entry.record is not None:
                before = entry.session.former_port or (entry.record.granted.port if entry.record.granted else None)
                self._tunnels.redirect(cluster.id, str(entry.key), before, entry.session.server.port)
                if entry.record.granted != entry.session.server.granted:  # else another agent has written the record
                    entry.record = replace(entry.record, granted=entry.session.server.granted)
                    cluster.tracker.schedule_save(entry)
        return entry.session.server is not None

    @staticmethod
    async def _read_warnings(cluster: SessionCluster, entry: TrackedJob, served: SessionServer) -> None:
        served.is_stale = False
        found = await read_served(cluster.client.transport, entry.folder) if entry.folder is not None else ""
        if isinstance(found, SessionServer) and found.warnings != served.warnings:
            served.warnings = found.warnings
            cluster.tracker.publish(entry)

    def _connect(self, cluster: SessionCluster, entry: TrackedJob) -> None:
        """Open the tunnel of a session in the background; try again if the tunnel failed and the connection is back.

        If the session does not listen yet, only find a route to its node.
        """
        served, key = entry.session.server, str(entry.key)
        if served is None:
            if key not in self._approaching:
                _start_task(self._approaching, key, self._tunnels.approach(cluster.id, entry))
        elif served.tunnel is None or (served.tunnel.is_broken and not served.lost()):
            _start_task(self._reaching, key, self._schedule_connect(cluster, entry))

    async def _schedule_connect(self, cluster: SessionCluster, entry: TrackedJob) -> None:
        key = str(entry.key)
        try:
            await self._reach(cluster, entry)
            self._next_attempts.pop(key, None)
            self._delays.pop(key, None)
        except (SlurmError, OSError) as error:
            log.info("session %s is not reached: %s", entry.key, error)
            self._next_attempts[key] = time.monotonic() + self._delays[key].next()
        cluster.tracker.publish(entry)

    async def _reach(self, cluster: SessionCluster, entry: TrackedJob, *, is_requested: bool = False) -> None:
        """Open a tunnel to a session, the former one if possible; ``asked``: a user waits for it."""
        served, wanted = entry.session.server, entry.record.session if entry.record else None
        if served is None:
            return
        goal: api.TunnelWanted = {"job": entry.key, "port": served.port, "local_port": wanted.port if wanted else None}
        try:
            served.tunnel = await self._tunnels.reach(cluster.id, goal, is_requested=is_requested)
            served.error = None
        except SlurmError as error:
            if error.details.get("why") == "taken":  # the message names the user of the port
                error.hint = _NO_PORT.format(name_of(entry))
            served.error = error
            raise

    async def _write_page(self, cluster: SessionCluster, entry: TrackedJob, url: str, browser_url: str) -> str:
        """Write the login page: the token is in no command line and no history."""
        if entry.folder is None:
            raise not_a_session(entry)
        from jupyter_slurm.services.sessions.apps import APPS

        token, app = await read_token(cluster.client.transport, entry.folder), APPS.get(app_of(entry))
        return self._pages.write(str(entry.key), url, browser_url, token, form=app.login if app else "login")

    @contextlib.contextmanager
    def _named(self, cluster: SessionCluster, key: str, name: str | None, stem: str = "") -> Iterator[str]:
        """Reserve a name while a session is created; by default the first free name of its kind.

        Raises
        ------
        UsageError
            The name is not valid, or another session has it.
        """
        others = [e for e in cluster.tracker.entries.values() if is_session(e) and not e.is_finished and e.key != key]
        taken = {name_of(e) for e in others}
        taken |= {one for where, one, by in self._launching if where == cluster.id and by != key}
        if name is not None and not NAME.fullmatch(name):
            raise UsageError(
                f"{printable(name)!r} is not a valid session name.",
                hint="Use a letter, then letters, digits, dots, dashes and underscores, for example name=training.",
            )
        if name in taken:
            raise UsageError(
                f"There is a session {name} already.",
                hint=f"Open it with `jupyter slurm open {name}`, end it with `jupyter slurm stop {name}`, or "
                "choose another name with name=.",
            )
        chosen = name or next(one for n in range(1, 10_000) if (one := f"{stem}-{n}") not in taken)
        self._launching.add(reserved := (cluster.id, chosen, key))
        try:
            yield chosen
        finally:
            self._launching.discard(reserved)


def _start_task(tasks: dict[str, asyncio.Task[None]], key: str, work: Coroutine[Any, Any, None]) -> None:
    """Run a task for a session in the background, and keep a reference to it."""
    task = tasks[key] = asyncio.create_task(work, name=f"session {key}")
    task.add_done_callback(lambda _: tasks.pop(key, None))


def _port_warnings(port: int | None) -> list[str]:
    """Warn that a local port is taken; it may be free when the session is ready."""
    by = owner(port) if port is not None else ""
    said = f"Port {port} on this computer is in use{by}. Free it before the session starts."
    return [said] if by else []
