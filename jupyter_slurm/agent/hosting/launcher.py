"""Search for an agent, and its start at the right place.

Any number of clients may come at once: one of them starts an agent, the others wait for it. If two start an agent all
the same, the lock of :mod:`jupyter_slurm.agent.hosting.leader_election` lets one of them lead.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import select
import site
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from jupyter_slurm.agent.hosting.discovery import (
    is_stale,
    open_private,
    place_to_start,
    read_record,
    search_locations,
)
from jupyter_slurm.agent.hosting.endpoint import Endpoint, endpoint_at
from jupyter_slurm.agent.hosting.log_file import log_path, open_log
from jupyter_slurm.domain.environment_variables import is_inside_job, is_secret, submission_environment
from jupyter_slurm.errors import AgentUnreachable, SlurmError

if TYPE_CHECKING:
    from jupyter_slurm.config import Settings

__all__ = ["choose_hosting", "clean_environment", "find", "find_or_start", "log_tail", "start_early", "wait_ended"]

Hosting = Literal["daemon", "server", "inprocess"]

_START_TIMEOUT_S = 60.0

_early_start: threading.Thread | None = None

# Credentials of other programs: the agent does not need them, and a process that lives for days should not hold them.
_CREDENTIAL = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE_KEY|COOKIE|JWT|_PAT$", re.I
)


def find(settings: Settings) -> Endpoint | None:
    """Return the endpoint of the agent of this user and machine, or None.

    Raises
    ------
    AgentRefused
        The directory in the settings cannot be trusted.
    """
    return next((found for place in search_locations(settings) if (found := endpoint_at(place))), None)


def find_or_start(settings: Settings) -> Endpoint:
    """Return the endpoint of an agent; start one if there is none.

    Raises
    ------
    AgentUnreachable
        No agent could be started; the message has the end of its log.
    """
    if _early_start is not None and _early_start is not threading.current_thread():
        _early_start.join()
    found = find(settings)
    if found is not None:
        return found
    hosting = choose_hosting(settings, os.environ)
    with _only_starter(settings):
        found = find(settings)
        if found is not None:
            return found
        if hosting == "daemon":
            _spawn(settings)
        else:
            _serve_here(settings, hosting)
        return _await_endpoint(settings)


def start_early(settings: Settings) -> None:
    """Begin to start an agent if there is none, while the caller prepares its first request.

    :func:`find_or_start` waits for this start. If it fails, that function tries again, and says why.
    """
    global _early_start
    if find(settings) is None and choose_hosting(settings, os.environ) == "daemon":
        _early_start = threading.Thread(target=_start_quietly, args=(settings,), name="agent start", daemon=True)
        _early_start.start()


def _start_quietly(settings: Settings) -> None:
    with contextlib.suppress(SlurmError, OSError):
        find_or_start(settings)


def wait_ended(endpoint: Endpoint, timeout: float = 5.0) -> bool:
    """Wait until no agent answers; False if one still does after ``patience`` seconds."""
    deadline = time.monotonic() + timeout
    while endpoint.answers():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def choose_hosting(settings: Settings, environ: Mapping[str, str]) -> Hosting:
    """Return where an agent should live.

    Inside a Slurm job and under JupyterHub, a separate process would be ended with the job or the server, or outlive
    its user's allotment. In these cases the agent lives in the Jupyter server, or else in the kernel or command that
    needs it.
    """
    is_guest = is_inside_job(environ) or any(name.startswith("JUPYTERHUB_") for name in environ)
    wanted = settings.agent_host
    hosting: Hosting = ("server" if is_guest else "daemon") if wanted == "auto" else wanted  # type: ignore[assignment]
    return "inprocess" if hosting == "server" and _server_loop() is None else hosting


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an agent: without secrets, and without variables that Slurm set for an enclosing job.

    The agent runs this very package, even if it is not installed. So its parent directory is put on PYTHONPATH, and
    relative entries of PYTHONPATH are made absolute, because the agent lives in another directory.
    """
    inside = {**environ, "SLURM_JOB_ID": environ.get("SLURM_JOB_ID", "0")}
    kept = {
        name: value
        for name, value in submission_environment(inside).items()
        if not is_secret(name) and not _CREDENTIAL.search(name)
    }
    folders = [os.path.abspath(entry) for entry in kept.pop("PYTHONPATH", "").split(os.pathsep) if entry]
    package_folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if package_folder not in (*site.getsitepackages(), site.getusersitepackages()):
        folders.insert(0, package_folder)
    return {**kept, "PYTHONPATH": os.pathsep.join(folders)} if folders else kept


def log_tail(settings: Settings, lines: int = 20) -> str:
    """Return the last lines of the daemon's log on this host; empty if there is none."""
    try:
        with open(open_private(log_path(settings), os.O_RDONLY), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 65536))
            return b"\n".join(file.read().splitlines()[-lines:]).decode("utf-8", "replace")
    except OSError:
        return ""


@contextlib.contextmanager
def _only_starter(settings: Settings) -> Iterator[None]:
    """Let one client at a time start an agent; clients that waited then find one."""
    place = place_to_start(settings)
    fd = open_private(place.start_lock, os.O_RDWR | os.O_CREAT)
    deadline = time.monotonic() + _START_TIMEOUT_S
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if endpoint_at(place) is not None or time.monotonic() > deadline:
                    break
                time.sleep(0.02)
        yield
    finally:
        os.close(fd)


def _spawn(settings: Settings) -> None:
    """Start a daemon and wait for its first word."""
    values = {name: getattr(settings, name) for name in settings.trait_names(config=True)}
    try:
        _, log = open_log(settings, f"{time.strftime('%Y-%m-%d %H:%M:%S')} an agent is started\n".encode())
    except OSError as error:
        raise AgentUnreachable(
            f"The log of the agent cannot be written: {error}",
            hint="Remove files of other users, or set c.JupyterSlurm.state_dir to another directory.",
        ) from error
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "jupyter_slurm.agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd="/",
            env=clean_environment(os.environ),
            umask=0o077,
            start_new_session=True,  # an interrupt at this terminal must not reach the agent
        )
    except OSError as error:
        raise AgentUnreachable(
            f"{sys.executable} cannot be started: {error}",
            hint="Check that the Python of Jupyter still exists, and restart Jupyter.",
        ) from error
    finally:
        os.close(log)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(values).encode())
            process.stdin.close()
        readable, _, _ = select.select([process.stdout], [], [], _START_TIMEOUT_S)
        word = process.stdout.readline().strip() if readable else b""
    if word not in (b"ready", b"busy"):
        raise _failure(settings, "The agent could not be started.")


def _failure(settings: Settings, message: str) -> AgentUnreachable:
    tail = log_tail(settings)
    return AgentUnreachable(
        message + (f" The end of its log:\n{tail}" if tail else ""),
        hint=f"See the log {log_path(settings)}. To run the agent inside this process, set "
        "c.JupyterSlurm.agent_host = 'inprocess'.",
        log=tail,
    )


def _serve_here(settings: Settings, hosting: str) -> None:
    from jupyter_slurm.agent.hosting import agent_host as hosts

    loop = hosts.server_loop()
    if hosting == "server" and loop is not None:
        asyncio.run_coroutine_threadsafe(hosts.serve_in_loop(settings), loop).result(_START_TIMEOUT_S)
    else:
        hosts.serve_in_thread(settings)


def _server_loop() -> asyncio.AbstractEventLoop | None:
    hosts = sys.modules.get("jupyter_slurm.agent.hosting.agent_host")
    loop: asyncio.AbstractEventLoop | None = hosts.server_loop() if hosts else None
    return loop


def _await_endpoint(settings: Settings) -> Endpoint:
    """Return the endpoint of the leading agent; an agent that has just taken the lock may need a moment."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        found = find(settings)
        if found is not None:
            return found
        if time.monotonic() > deadline:
            raise _failure(settings, _silent_process(settings))
        time.sleep(0.05)


def _silent_process(settings: Settings) -> str:
    for place in search_locations(settings):
        record = read_record(place)
        if record is not None and not is_stale(record):
            return f"The agent (pid {record.get('pid')}) does not answer."
    return "An agent holds the lock and does not answer."
