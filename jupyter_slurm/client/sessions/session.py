"""Sessions, as a person has them: a Jupyter, or another server, in a job, on a port of this machine."""

from __future__ import annotations

import re
import shutil
import threading
import time
import webbrowser
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from jupyter_slurm.client.clusters.cluster import Cluster, chosen, current, named
from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.jobs.failure import failure
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.jobs.job_list import JobList
from jupyter_slurm.client.jobs.request import say_doubts
from jupyter_slurm.client.jobs.upload import hand_over
from jupyter_slurm.client.login.call import answering
from jupyter_slurm.client.render.job_card import duration
from jupyter_slurm.client.render.session_card import (
    end_note,
    is_ready,
    path_here,
    server_prefix,
    session_history,
    session_state,
)
from jupyter_slurm.client.render.table import Table
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.client.settings import settings
from jupyter_slurm.client.submission.resume import restarts_of
from jupyter_slurm.client.submission.staging import stage_of
from jupyter_slurm.client.submission.submit import Submission, python_named
from jupyter_slurm.domain.magic_line.parser import MagicLine, tokenize
from jupyter_slurm.domain.slurm_values import parse_time_limit
from jupyter_slurm.errors import ConfigError, OptionError, UsageError

__all__ = [
    "WORDS",
    "Session",
    "SessionList",
    "environment_named",
    "idle_time",
    "launch",
    "named_in",
    "session",
    "sessions",
    "there",
]

WORDS: dict[str, bool | None] = {
    "dir": True,
    "env": True,
    "idle": True,
    "image": True,
    "jupyter": True,
    "name": True,
    "noopen": False,
    "open": False,
    "port": True,
    "python": True,
    "resume": None,
    "stage": True,
    "sync": True,
}
"""Our words of ``launch``, and whether each takes a value; None: it may."""

_OF_A_LAUNCH = ("key", "options", "python", "default_python", "env", "origin", "context", "resume", "stage")
_NOT_HERE = {
    "test-only": "`sbatch --test-only …` says when and where it could start.",
    "wait": "It waits until the session is ready, and the session goes on.",
    "wrap": "A command that serves comes after --, with {port} where it takes one.",
    **dict.fromkeys(("help", "usage", "version"), "`jupyter slurm launch --help` explains it."),
}
_FILES = (".sif", ".simg", ".img", ".sqfs")  # that are images: no registry has one of such a name
_SHORTEST = 60  # seconds: what is looked at seldom cannot end sooner
_THERE = ("ready", "reconnecting", "unreachable")  # its Jupyter answers, on the node
_UNITS = {"m": 60, "h": 3600, "d": 86_400}
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
    def _session(self) -> Mapping[str, Any]:
        told: Mapping[str, Any] = self.data["session"]
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
        self._data = {name: value for name, value in told.items() if name != "page"}
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
        self, timeout: float | None = None, *, told: Callable[[Mapping[str, Any]], None] = lambda data: None
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
        self._data = dict(follower.data)
        told(self._data)
        if follower.ended.is_set():
            text, stream = self._written.log(ranks=None)
            raise failure(self._data, text, self._data.get(stream or "stderr"))
        if not is_ready(self._data):
            self.page()  # as far as the agent can get without asking anybody, it is not reached
        return self

    def _row(self) -> list[str]:
        told, session = self._data, self._data["session"]
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


def named_in(line: str) -> tuple[str | None, str]:
    """Return the cluster that the first word behind ``launch`` names, if it does, and the rest of the line."""
    first = next(iter(tokenize(line)), None)
    if first is None or first.text.startswith("-") or "=" in first.text or first.text in WORDS:
        return None, line
    return first.text, line[first.end :]


def there(name: str | None) -> Cluster:
    """Return the cluster of a name, logged in; the choice of this process stays."""
    if name is None or name == chosen():
        return current()
    own = ""
    if chosen() == "local" and shutil.which("squeue"):  # a laptop has no Slurm that could be meant
        here = current()
        own = here.client.get(here.path())["name"]
        if name in (here.name, own):
            return here
    try:
        return named(name)
    except ConfigError as error:
        if own not in ("", "local"):
            error.hint = f"The Slurm of this machine is called {own}, and need not be named. {error.hint}"
        raise


def launch(cluster: Cluster, parsed: MagicLine, *, tell: Callable[[Mapping[str, Any]], None] = say_doubts) -> Session:
    """Have a job run a Jupyter, or the command behind ``--``, once.

    Parameters
    ----------
    cluster : Cluster
        Where.
    parsed : MagicLine
        Options of sbatch and our words.
    tell : callable, optional
        Says the doubts about what was submitted; by default they are printed.

    Raises
    ------
    UsageError, SubmitRefused
        Nothing was submitted.
    """
    words, python = parsed.words, python_named(parsed.words.get("python"), cluster)
    for option in parsed.parsed.options:
        if option.name in _NOT_HERE:
            message = f"--{option.name} has no place here: a session is a job that serves."
            raise OptionError(message, hint=_NOT_HERE[option.name], option=option.name)
    if "jupyter" in words and (words["jupyter"] != "install" or parsed.args):
        said = "beside a command there is no Jupyter" if parsed.args else "what is to be done is called install"
        raise UsageError(
            f"jupyter={words['jupyter'] or ''}: {said}.", hint="jupyter=install, and no command behind --."
        )
    env = environment_named(words.get("env"), words.get("image"))
    is_open = env is not None and "python" not in words
    submission = Submission(
        "session",
        "",
        parsed.options,
        env=env,
        python=None if is_open else python,
        default_python=python,
        resume=restarts_of(parsed),
        stage=stage_of(words),
    )
    with submission.body(cluster) as body:
        asked: dict[str, Any] = {name: body[name] for name in _OF_A_LAUNCH if name in body}
        asked |= {"name": words.get("name"), "idle": idle_time(words.get("idle")), "dir": words.get("dir")}
        asked |= {"port": _port(words.get("port")), "prefix": server_prefix(), "command": parsed.args or None}
        asked["jupyter"] = words.get("jupyter")
        try:
            data = hand_over(cluster, cluster.path("sessions"), asked) if submission.stage else _post(cluster, asked)
        except KeyboardInterrupt:
            raise WaitInterrupted(
                "Interrupted while sbatch was at work: the session may or may not be there. "
                f"`jupyter slurm sessions` lists it, `jupyter slurm stop {asked['name'] or asked['key']}` ends it."
            ) from None
    tell(data)
    return Session(cluster, data, from_start=True)


def _post(cluster: Cluster, asked: Mapping[str, Any]) -> Any:
    return cluster.client.post(cluster.path("sessions"), json=asked, idempotent=True)


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


def environment_named(env: str | None, image: str | None) -> str | None:
    """Return the environment that is meant: an image is one, by its name in a registry or by its path."""
    if image is None:
        return env
    if env is not None:
        raise UsageError("image= and env= each name an environment.", hint="Say one: image=NAME:TAG, or env=NAME.")
    if image.endswith(_FILES) and "/" not in image:
        return f"./{image}"
    is_told = image.startswith(("/", "~", "./", "../")) or "://" in image or image.endswith(_FILES)
    return image if is_told else f"docker://{image}"


def idle_time(text: str | None, *, word: str = "idle") -> float:
    """Return seconds: as ``--time`` is written, or 30m, 2h, 1d; of None, what was set."""
    if text is None:
        return settings().session_idle
    short = re.fullmatch(r"(\d{1,6})([mhd])", text)
    try:
        seconds = int(short[1]) * _UNITS[short[2]] if short else parse_time_limit(text)
    except UsageError:
        seconds = 0
    if seconds is None or seconds < _SHORTEST:
        raise UsageError(
            f"{word}={text}: that has to be a time of at least a minute, and not without end.",
            hint=f"For example {word}=30m, {word}=2h, {word}=1d; a number alone is minutes.",
        )
    return float(seconds)


def _port(text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65_536:
        raise UsageError(f"port={text}: that is no port.", hint="A port is a number from 1 to 65535.")
    return int(text)
