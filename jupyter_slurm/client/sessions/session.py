"""Sessions as objects of the user: Jupyter or another server in a job, on a local port."""

from __future__ import annotations

import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from jupyter_slurm.client.clusters.cluster import Cluster, current, is_chosen
from jupyter_slurm.client.clusters.other_clusters import find_anywhere, other_clusters
from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.jobs.failure import failure
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.jobs.job_list import JobList
from jupyter_slurm.client.login.call import answering
from jupyter_slurm.client.render.job_card import output_path
from jupyter_slurm.client.render.session_card import (
    end_note,
    is_session_open,
    session_history,
    session_path,
    session_state,
)
from jupyter_slurm.client.render.table import Table
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import ConfigError, SlurmError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Session", "SessionList", "session", "sessions", "sessions_elsewhere"]

_SERVING_STATES = (
    "ready",
    "reconnecting",
    "unreachable",
)  # states in which the server of the session answers on the node
_WAIT_STEP_S = 0.2


class Session(Job):
    """A Jupyter or another server that a job runs, on a local port.

    Returned by ``%slurm launch``, :func:`jupyter_slurm.sessions` and :func:`jupyter_slurm.session`. In addition to the
    attributes of every :class:`Job`:
    """

    @property
    def name(self) -> str | None:
        """Return the name, given by ``name=`` or :meth:`rename`."""
        return self.data.get("label")

    @property
    def state(self) -> str:
        """Return the state: submitted, pending, starting, ready, reconnecting, unreachable or ending.

        A finished session has the state of its job, as in all tables: CANCELLED, TIMEOUT, …
        """
        return session_state(self.data) or str(self.data["state"])

    @property
    def url(self) -> str | None:
        """Return the local URL without its token: :meth:`open` logs in. None until the session is ready."""
        url: str | None = self._session["url"]
        return url

    @property
    def browser_url(self) -> str | None:
        """Return the local URL for a browser: its host name, KEY.localhost, keeps cookies of other programs away."""
        return self._session.get("browser_url") or self.url

    @property
    def path(self) -> str:
        """Return the permanent path, also below the Jupyter server through which the session was launched."""
        return str(self._session["path"])

    @property
    def server(self) -> str | None:
        """Return the Jupyter application with its version, or the name of the served command."""
        server: str | None = self._session["server"]
        return server

    @property
    def _session(self) -> api.Session:
        told = self.data["session"]
        assert told is not None  # set for every session
        return told

    @property
    def steps(self) -> list[tuple[str, float]]:
        """Return the steps and their times (seconds since the epoch): submitted, pending, starting, ready, ended."""
        return [(step["state"], step["time"]) for step in self._session["steps"]]

    def history(self) -> str:
        """Return the steps in a line, with their durations, and the served command unless it is Jupyter."""
        return printable(session_history(self.data))

    def trouble(self) -> str:
        """Return why the session is unreachable now, or another problem; empty if there is none."""
        message = self._session["message"]
        said = [f"{self.state}: {message}"] if message else []
        said += [f"Warning: {text}" for text in self.data.get("warnings") or ()]
        return "" if self.is_finished else "\n".join(printable(f"{self.title}: {text}") for text in said)

    def near_end(self) -> str:
        """Return a warning that the time limit is near; empty otherwise."""
        said = end_note(self.data)
        return printable(f"{self.title}: {said}") if said else ""

    def open(self, *, browser: bool = True) -> Session:
        """Forward the session to this machine and, with ``browser``, open it logged in; no history gets the token.

        Raises
        ------
        JobError
            The session is not ready, or finished.
        TunnelError
            No route to the session exists.
        """
        page = self.page()
        if browser and not webbrowser.open(f"file://{quote(page)}" if page else str(self.browser_url)):
            hint = f"Open this file in your browser: {page}." if page else f"Open {self.browser_url} in your browser."
            if path := session_path(self._session):
                hint = f"Open {path} at the URL of this Jupyter server."
            raise UsageError("No browser could be started on this computer.", hint=hint)
        return self

    def page(self) -> str | None:
        """Forward the session to this machine and return the path of a private file that opens it logged in.

        A server other than Jupyter has no login by jupyter_slurm: the result is None, and :attr:`url` suffices.
        """
        client, path = self._cluster.client, self._cluster.path("sessions", self._reference, "open")
        told = answering(client, self._cluster.name, lambda: client.post(path, timeout=None))
        self._data = cast("api.Job", {name: value for name, value in told.items() if name != "page"})
        if self._follower is not None:
            self._follower.apply_job(self._data)
        page: str | None = told["page"]
        return page

    def stop(self) -> Session:
        """End the session with all its processes, and wait for its end: at most a minute."""
        self._data = self._cluster.client.post(self._cluster.path("sessions", self._reference, "stop"))
        if self._follower is not None:
            self._follower.apply_job(self._data)
        return self

    def rename(self, name: str) -> Session:
        """Rename the session."""
        path = self._cluster.path("sessions", self._reference, "rename")
        self._data = self._cluster.client.post(path, json={"name": name})
        return self

    def log(self, lines: int = 20) -> str:
        """Return the last lines of the log of its server."""
        return self.tail(lines, "stderr")

    def wait_ready(
        self, timeout: float | None = None, *, notify: Callable[[api.Job], None] = lambda data: None
    ) -> Session:
        """Wait until the session can be opened.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default without end.
        notify : callable, optional
            Called repeatedly with the API object of the session.

        Raises
        ------
        JobFailed
            The session ended before; with the last lines of its log.
        TunnelError
            The session is ready, but no route to it exists.
        TimeoutError
            The timeout is over; the session continues.
        WaitInterrupted
            The wait was interrupted; the session continues.
        """
        deadline, follower = None if timeout is None else time.monotonic() + timeout, self._follow()
        changed = threading.Event()

        def heard(stream: str, data: bytes) -> None:
            changed.set()

        follower.listen(heard)
        try:
            while not follower.ended.is_set() and session_state(follower.data) not in _SERVING_STATES:
                notify(follower.data)
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(f"{self.title} is not ready after {timeout:g} s: {self.state}.")
                changed.wait(_WAIT_STEP_S)
                changed.clear()
        except KeyboardInterrupt:
            raise WaitInterrupted(f"Stopped waiting. {self.title} keeps running; .stop() ends it.") from None
        finally:
            follower.unlisten(heard)
        if follower.error is not None:
            raise follower.error
        self._data = {**follower.data}
        notify(self._data)
        if follower.ended.is_set():
            text, stream = self._written.log(ranks=None)
            error = failure(self._data, text, output_path(self._data, stream or "stderr"))
            raise self._without_shown_log(error, follower, echo=False)
        if not is_session_open(self._data):
            self.page()  # ready without a route, as far as the agent can connect without a prompt
        return self

    def _row(self, ssh_hosts: Mapping[str, str] | None) -> list[str]:
        told, session = self._data, self._data["session"]
        assert session is not None
        address = session["url"]
        if session["app"] == "ssh" and address:
            name = told.get("label") if ssh_hosts is None else ssh_hosts.get(str(told["key"]))
            address = f"ssh {name}" if name else "on the computer that started it"
        values = (told.get("label"), session["state"], told.get("id"), told.get("nodes"), address)
        return [str(value or "") for value in values]

    def raise_for_state(self) -> Job:
        """Raise JobFailed if the session is finished without success; a stopped session is a success."""
        return self if self._data.get("state") == "CANCELLED" else super().raise_for_state()

    def resubmit(self, **options: Any) -> Job:
        """Refuse: the user runs the launching line again.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError(f"{self.title} cannot be resubmitted.", hint="Launch another session.")


class SessionList(JobList[Session]):
    """List of sessions, shown as a table of their states and addresses."""

    def table(self, ssh_hosts: Mapping[str, str] | None = None) -> Table:
        """Return the sessions as a table, with the cluster if they are on several.

        Parameters
        ----------
        ssh_hosts : mapping, optional
            Hosts for ssh of this computer: key of the job to name. None: each has the name of its session.
        """
        names, rows = ["NAME", "STATE", "JOBID", "NODES", "ADDRESS"], [session._row(ssh_hosts) for session in self]
        if len({session.cluster for session in self}) > 1:
            names, rows = ["CLUSTER", *names], [[one.cluster, *row] for one, row in zip(self, rows, strict=True)]
        return Table(names, rows)


def sessions(*, active: bool = True) -> SessionList:
    """Return your sessions on this cluster, the latest first; ``active``: only unfinished ones.

    On a computer without Slurm where no cluster was chosen, those of all clusters with a connection are returned. One
    that does not answer is named on standard error.

    Raises
    ------
    ConfigError
        This computer has no Slurm, no cluster was chosen, and none has a connection.
    SlurmError
        No cluster answers.
    """
    try:
        return _sessions_of([current()], active=active)
    except ConfigError:
        if is_chosen() or not (clusters := other_clusters()):
            raise
    found, silent = _sessions_of_each(clusters, active=active)
    if len(silent) == len(clusters):
        raise next(iter(silent.values()))
    _name_missing(silent)
    return SessionList(sorted(found, key=lambda one: one._data.get("submit_time") or 0.0, reverse=True))


def sessions_elsewhere() -> SessionList:
    """Return the active sessions of the clusters with a connection that :func:`sessions` leaves out.

    None are left out if a cluster was chosen, or if this computer has no Slurm. A cluster that does not answer is named
    on standard error.
    """
    try:
        clusters = [] if is_chosen() else other_clusters(current())
    except ConfigError:
        clusters = []
    found, silent = _sessions_of_each(clusters, active=True)
    _name_missing(silent)
    return SessionList(found)


def _sessions_of_each(clusters: Iterable[Cluster], *, active: bool) -> tuple[list[Session], dict[str, SlurmError]]:
    """Return the sessions of the clusters that answer, and the errors of the others by name."""
    found, silent = list[Session](), dict[str, SlurmError]()
    for cluster in clusters:
        try:
            found += _sessions_of([cluster], active=active)
        except SlurmError as error:
            silent[cluster.name] = error
    return found, silent


def _name_missing(silent: Mapping[str, SlurmError]) -> None:
    for name, trouble in silent.items():
        sys.stderr.write(printable(f"Warning: the sessions of {name} are missing: {trouble.message}") + "\n")


def _sessions_of(clusters: Iterable[Cluster], *, active: bool) -> SessionList:
    params = {"state": "active" if active else "all"}
    return SessionList(
        Session(cluster, data)
        for cluster in clusters
        for data in cluster.client.get(cluster.path("sessions"), params=params)
    )


def session(name: str) -> Session:
    """Return a session by its name, its Slurm id or its key.

    If the cluster in use has no session of that name, and no cluster was chosen with ``%slurm use`` or ``--cluster``,
    the other clusters with a connection are searched.

    Raises
    ------
    JobNotFound
        No such session exists; the hint names another cluster that has it.
    UsageError
        Several other clusters have a session of that name.
    """

    def find(cluster: Cluster) -> Session:
        return Session(cluster, cluster.client.get(cluster.path("sessions", str(name))))

    return find_anywhere(find, f"session {name}", is_number=str(name)[:1].isdigit())
