"""Sessions, as a person has them: a Jupyter, or another server, in a job, on a port of this machine."""

from __future__ import annotations

import threading
import time
import webbrowser
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from jupyter_slurm.client.clusters.cluster import current
from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.jobs.failure import failure
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.jobs.job_list import JobList
from jupyter_slurm.client.login.call import answering
from jupyter_slurm.client.render.job_card import duration, output_path
from jupyter_slurm.client.render.session_card import (
    end_note,
    is_ready,
    path_here,
    session_history,
    session_state,
)
from jupyter_slurm.client.render.table import Table
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Session", "SessionList", "session", "sessions"]

_THERE = ("ready", "reconnecting", "unreachable")  # its Jupyter answers, on the node
_STEP = 0.2


class Session(Job):
    """A Jupyter, or another server, that a job runs, on a port of this machine.

    It comes from ``%slurm launch``, :func:`jupyter_slurm.sessions` and :func:`jupyter_slurm.session`. Beside what every
    :class:`Job` has:
    """

    @property
    def name(self) -> str | None:
        """Its name: what ``name=`` gave it, or :meth:`rename`."""
        return self.data.get("label")

    @property
    def state(self) -> str:
        """How far it is: submitted, pending, starting, ready, reconnecting, unreachable, ending, ended."""
        return str(self._session["state"])

    @property
    def url(self) -> str | None:
        """Where it is here, without its token: :meth:`open` logs in. None while it is not ready."""
        url: str | None = self._session["url"]
        return url

    @property
    def path(self) -> str:
        """Its path for life: also the one under which the Jupyter server that it was launched through shows it."""
        return str(self._session["path"])

    @property
    def server(self) -> str | None:
        """Which Jupyter it is, with its version, or the name of the command that serves."""
        server: str | None = self._session["server"]
        return server

    @property
    def _session(self) -> api.Session:
        told = self.data["session"]
        assert told is not None  # as of every job of this kind
        return told

    @property
    def steps(self) -> list[tuple[str, float]]:
        """How far it has come, and when (seconds since the epoch): submitted, pending, starting, ready, ended."""
        return [(step["state"], step["time"]) for step in self._session["steps"]]

    def history(self) -> str:
        """Return its steps in a line, with how long each took, and the command that serves where it is no Jupyter."""
        return printable(session_history(self.data))

    def trouble(self) -> str:
        """Return why it is not to be had just now, and what is wrong with it; empty: nothing is."""
        message = self._session["message"]
        said = [f"{self.state}: {message}"] if message else []
        said += [f"Warning: {text}" for text in self.data.get("warnings") or ()]
        return "" if self.is_finished else "\n".join(printable(f"{self.title}: {text}") for text in said)

    def near_end(self) -> str:
        """Return a warning that its time limit is near; empty while it is not."""
        said = end_note(self.data, duration)
        return printable(f"{self.title}: {said}") if said else ""

    def open(self, *, browser: bool = True) -> Session:
        """Bring it here and, with ``browser``, show it: logged in, and the token is in no history.

        Raises
        ------
        JobError
            It is not ready, or over.
        TunnelError
            No way leads there.
        """
        page = self.page()
        if browser and not webbrowser.open(f"file://{quote(page)}" if page else str(self.url)):
            hint = f"Open this file in yours: {page}" if page else f"Open {self.url} in yours."
            if path := path_here(self._session):
                hint = f"Open {path} on the address of this Jupyter server."
            raise UsageError("No browser could be started here.", hint=hint)
        return self

    def page(self) -> str | None:
        """Bring it here and return the path of a file, for you alone, that opens it logged in.

        What is no Jupyter has no log-in of ours: None, and :attr:`url` is all.
        """
        client, path = self._cluster.client, self._cluster.path("sessions", self._reference, "open")
        told = answering(client, self._cluster.name, lambda: client.post(path, timeout=None))
        self._data = cast("api.Job", {name: value for name, value in told.items() if name != "page"})
        if self._follower is not None:
            self._follower.know(self._data)
        page: str | None = told["page"]
        return page

    def stop(self) -> Session:
        """End it, with all that runs in it, and wait until it is over: a minute at the longest."""
        self._data = self._cluster.client.post(self._cluster.path("sessions", self._reference, "stop"))
        if self._follower is not None:
            self._follower.know(self._data)
        return self

    def rename(self, name: str) -> Session:
        """Give it another name."""
        path = self._cluster.path("sessions", self._reference, "rename")
        self._data = self._cluster.client.post(path, json={"name": name})
        return self

    def log(self, lines: int = 20) -> str:
        """Return the last lines of what its Jupyter, or its command, says."""
        return self.tail(lines, "stderr")

    def wait_ready(
        self, timeout: float | None = None, *, told: Callable[[api.Job], None] = lambda data: None
    ) -> Session:
        """Wait until it can be opened.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default without end.
        told : callable, optional
            Is given what is known of it, again and again.

        Raises
        ------
        JobFailed
            It ended before; with the last lines of its log.
        TunnelError
            It is ready, and no way leads there.
        TimeoutError
            The time is over; it goes on.
        WaitInterrupted
            The wait was interrupted; it goes on.
        """
        deadline, follower = None if timeout is None else time.monotonic() + timeout, self._follow()
        changed = threading.Event()

        def heard(stream: str, data: bytes) -> None:
            changed.set()

        follower.listen(heard)
        try:
            while not follower.ended.is_set() and session_state(follower.data) not in _THERE:
                told(follower.data)
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(f"{self.title} is not ready after {timeout:g} s: {self.state}.")
                changed.wait(_STEP)
                changed.clear()
        except KeyboardInterrupt:
            raise WaitInterrupted(f"Stopped waiting. {self.title} goes on; .stop() ends it.") from None
        finally:
            follower.unlisten(heard)
        if follower.error is not None:
            raise follower.error
        self._data = {**follower.data}
        told(self._data)
        if follower.ended.is_set():
            text, stream = self._written.log(ranks=None)
            raise failure(self._data, text, output_path(self._data, stream or "stderr"))
        if not is_ready(self._data):
            self.page()  # as far as the agent can get without asking anybody, it is not reached
        return self

    def _row(self) -> list[str]:
        told, session = self._data, self._data["session"]
        assert session is not None
        values = (told.get("label"), session["state"], told.get("id"), told.get("nodes"), session["url"])
        return [str(value or "") for value in values]

    def raise_for_state(self) -> Job:
        """Raise JobFailed if it is over and did not end well; stopped is well."""
        return self if self._data.get("state") == "CANCELLED" else super().raise_for_state()

    def resubmit(self, **options: Any) -> Job:
        """Refuse: the line that launched it launches another one.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError(f"{self.title} is not submitted again from here.", hint="Launch another one.")


class SessionList(JobList[Session]):
    """Sessions, as a table of how far they are, and where."""

    def table(self) -> Table:
        """Return what is known of each."""
        return Table(["NAME", "STATE", "JOBID", "NODES", "URL"], [session._row() for session in self])


def sessions(*, active: bool = True) -> SessionList:
    """Return your sessions on this cluster, the latest first; ``active``: only those that are not over."""
    cluster = current()
    found = cluster.client.get(cluster.path("sessions"), params={"state": "active" if active else "all"})
    return SessionList(Session(cluster, data) for data in found)


def session(name: str) -> Session:
    """Return a session by its name, its Slurm id or its key.

    Raises
    ------
    JobNotFound
        There is none.
    """
    cluster = current()
    return Session(cluster, cluster.client.get(cluster.path("sessions", str(name))))
