"""Connection of ssh to a node, as its ProxyCommand: find or start the job, then carry bytes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

from jupyter_slurm.cli.editors.hosts import EditorHost, load_host, write_host_key
from jupyter_slurm.cli.editors.ssh_files import locked, report
from jupyter_slurm.domain.magic_line.parser import MagicLine, parse_line_magic
from jupyter_slurm.errors import JobNotFound, SlurmError, SubmitRefused, TunnelError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.client.sessions.session import Session
    from jupyter_slurm.domain import api_types as api

__all__ = ["WORDS", "connect_host", "parse_words"]

WORDS: dict[str, bool | None] = {
    "editor": True,
    "env": True,
    "idle": True,
    "image": True,
    "keep": False,
    "modules": True,
    "name": True,
    "noopen": False,
}
"""The keywords of ``code``, and whether each takes a value."""

_SERVER = ["sshd", "{host}:{port}"]  # the name of the server in lists
_PIECE_BYTES = 256 << 10
_CONNECT_TIMEOUT_S = 20.0
_END_TIMEOUT_S = 15.0  # seconds until the end of a job is known
_END_STEP_S = 0.5


def parse_words(cluster: Cluster, line: str) -> MagicLine:
    """Return the keywords, the options of sbatch and the folder of a line."""
    from jupyter_slurm.client.clusters.option_tables import option_table
    from jupyter_slurm.client.sessions.launch import check_options

    parsed = parse_line_magic(line, option_table(cluster, "sbatch"), WORDS)
    check_options(parsed)
    return parsed


def connect_host(name: str) -> int:
    """Connect standard input and output to sshd of the host's job, and return the exit code."""
    sent, received = _take_streams()
    host = load_host(name)
    from jupyter_slurm.client.sessions.launch import resolve_cluster

    cluster = resolve_cluster(host.cluster)
    parsed = parse_words(cluster, host.line)
    with locked(host.place):  # of several connections, one starts the job
        session = _running(cluster, host)
        is_new = session is None
        session = session or _launch(cluster, host, parsed)
    if not _await(host, session, is_cancelled_alone=is_new and "keep" not in parsed.keywords):
        return 130
    way: api.SessionWay = cluster.client.get(f"/v1/sessions/{session.data['key']}/way")
    if "host_key" not in way:
        raise UsageError(
            f"Session {host.name} runs another server.", hint="Stop it, or run `jupyter slurm code name=NAME`."
        )
    write_host_key(host, way["host_key"])
    try:
        server = socket.create_connection(("127.0.0.1", way["port"]), _CONNECT_TIMEOUT_S)
    except OSError as error:
        raise TunnelError(f"The tunnel to {host.name} is closed: {error}.", hint="Connect again.") from error
    if text := _end(cluster, session, is_sudden=_carry(server, sent, received)):
        report(text)
    return 0


def _take_streams() -> tuple[int, int]:
    """Return the descriptors of ssh; what is printed goes to standard error, and questions are put to the terminal."""
    sent, received = os.dup(0), os.dup(1)
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        terminal = os.open(os.devnull, os.O_RDONLY)
    os.dup2(terminal, 0)
    os.dup2(2, 1)
    os.close(terminal)
    return sent, received


def _running(cluster: Cluster, host: EditorHost) -> Session | None:
    """Return the running job that this computer has started for a host."""
    from jupyter_slurm.client.sessions.session import Session

    told = _find(cluster, host.job) if host.job else None
    if told is None:
        return None
    if host.unanswered_job(cluster.name):  # the connection that submitted it was ended
        host.write_job(host.job)
    return None if told["finished"] else Session(cluster, told)


def _find(cluster: Cluster, reference: str) -> api.Job | None:
    try:
        told: api.Job = cluster.client.get(cluster.path("sessions", reference))
    except JobNotFound:
        return None
    return told


def _launch(cluster: Cluster, host: EditorHost, parsed: MagicLine) -> Session:
    """Submit the job of a host. Its key is stored before: ssh may end this process at any moment."""
    from jupyter_slurm.client.clusters.cluster_names import shown_name
    from jupyter_slurm.client.jobs.request import new_key
    from jupyter_slurm.client.sessions.launch import launch

    words = {name: value for name, value in parsed.keywords.items() if name in ("env", "idle", "image")}
    name = _free_name(cluster, host)
    request = parsed._replace(keywords={**words, "name": name}, args=_SERVER, rest=[])
    report(f"{name}: submitting a job on {shown_name(cluster)}: {shlex.join(parsed.options)}".removesuffix(": "))
    asked = host.unanswered_job(cluster.name)
    key = asked or new_key()
    host.write_job(key, cluster.name)
    try:
        session = launch(cluster, request, ssh=(host.public_key, host.name), key=key)
    except (UsageError, SubmitRefused):
        if not asked:  # nothing was submitted
            host.write_job("")
        raise
    host.write_job(key)
    return session


def _free_name(cluster: Cluster, host: EditorHost) -> str:
    """Return the name of the job: that of the host, or one of this computer alone if another session has that name."""
    other = _find(cluster, host.name)
    if other is None or other["finished"]:
        return host.name
    name = f"{host.name[:55]}-{hashlib.sha256(host.public_key.encode()).hexdigest()[:6]}"
    report(
        f"Another session has the name {host.name}, for example that of another computer. "
        f"The job of this computer is the session {name}. `ssh {host.name}` connects to it."
    )
    return name


def _await(host: EditorHost, session: Session, *, is_cancelled_alone: bool) -> bool:
    """Wait until the job serves; return whether it does. Ctrl-C cancels a pending job of this connection."""
    from jupyter_slurm.client.interrupts import WaitInterrupted

    states: list[str] = []

    def show(data: api.Job) -> None:
        told = data["session"]
        assert told is not None
        text = told["state"] + (
            f": {data['reason_text']}" if told["state"] == "pending" and data["reason_text"] else ""
        )
        if text not in states[-1:] and told["state"] != "ready":
            states.append(text)
            report(f"{session.title}: {text}")

    try:
        session.wait_ready(notify=show)
    except WaitInterrupted:
        if is_cancelled_alone and session.data["session"] and session.state in ("submitted", "pending"):
            session.cancel()
            host.write_job("")  # sbatch may hang for long: the next connection submits another job
            report(f"{session.title} was cancelled.")
        else:
            report(f"{session.title} continues. Cancel it with `jupyter slurm stop {session.name}`.")
        return False
    return True


def _carry(server: socket.socket, sent: int, received: int) -> bool:
    """Carry bytes in both directions; return whether the server ended the connection, not ssh."""
    is_over = threading.Event()
    server.settimeout(None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of ssh at its end, also if the job has ended
    with contextlib.suppress(OSError):
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(sent, _PIECE_BYTES):
                server.sendall(data)
        is_over.set()
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)
            time.sleep(_END_TIMEOUT_S)
            server.shutdown(socket.SHUT_RDWR)  # a silent network must not keep this process

    threading.Thread(target=send, name="to-node", daemon=True).start()
    try:
        with server:
            while data := server.recv(_PIECE_BYTES):
                view = memoryview(data)
                while view:
                    view = view[os.write(received, view) :]
    except BrokenPipeError:
        return False  # ssh has ended
    except OSError:
        pass
    is_first = not is_over.is_set()
    os.close(received)
    return is_first


def _end(cluster: Cluster, session: Session, *, is_sudden: bool) -> str:
    """Describe the end of the job; empty if it continues. ``is_sudden``: the job is probably ending."""
    deadline = time.monotonic() + (_END_TIMEOUT_S if is_sudden else 0.0)
    path = cluster.path("sessions", str(session.data["key"]))
    with contextlib.suppress(SlurmError):
        told: api.Job = cluster.client.get(path)
        while not told["finished"] and time.monotonic() < deadline:
            time.sleep(_END_STEP_S)
            told = cluster.client.get(path)
        if told["finished"]:
            why = "it was not used" if told["state"] == "COMPLETED" else told["state"]
            return f"{session.title} has ended: {why}. The next connection starts another job."
    return f"The connection to {session.title} ended. The job may continue." if is_sudden else ""
