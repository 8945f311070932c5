"""OpenSSH link: through a master that the user has open, or through an own master that outlives this process.

Sources: ssh(1), ssh_config(5), ControlMaster; PROTOCOL.mux.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import paramiko

from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.link.persistent import PersistentLink
from jupyter_slurm.transport.ssh.prompts import Asker, Prompter
from jupyter_slurm.transport.ssh.protocols import Hop, LinkLost
from jupyter_slurm.transport.ssh.via_openssh.control_socket import (
    ControlChannel,
    ControlSocket,
    DialledChannel,
    has_ended,
)
from jupyter_slurm.transport.ssh.via_openssh.heartbeat import Heartbeat
from jupyter_slurm.transport.ssh.via_openssh.hops import Hops, dial, hop_paths, hop_target, own_socket_path
from jupyter_slurm.transport.ssh.via_openssh.login import OpenSshLogin
from jupyter_slurm.transport.ssh.via_openssh.login_target import LoginTarget, MasterSockets
from jupyter_slurm.transport.ssh.via_openssh.private_folder import lock_file, make_private

__all__ = ["ControlMaster", "OpenSshLink", "end_own_masters"]

_ANSWER_TIMEOUT_S: Final = 10.0  # seconds for an existing master, and the host behind it, to answer
_IDLE_TIMEOUT_S: Final = 3600.0  # seconds after which an unused master ends
_MAX_LOG_BYTES: Final = 1 << 20  # bytes
_DENIED_CODE: Final = 1
_SESSION_CLOSE_S: Final = 2.0  # seconds until a closed session makes room
_OPEN_FAILED: Final = re.compile(r"open failed: ([a-z ]+): (.*)")
_CODES: Final = {"administratively prohibited": 1, "connect failed": 2, "unknown channel type": 3}  # RFC 4254, 5.1


class ControlMaster:
    """A running, logged-in ``ssh`` as a connection.

    Parameters
    ----------
    target : LoginTarget
        Destination of a login if no master is found.
    route : sequence of HostConfig
        The hosts of the route.
    asker : Asker
        Asks the user.
    folder : str
        Private directory on a local disk for the control sockets of own masters.
    max_age : float or None
        Seconds after which a login ends.
    on_line : callable
        Called with OpenSSH's output during the login.
    """

    def __init__(
        self,
        target: LoginTarget,
        route: Sequence[HostConfig],
        asker: Asker,
        folder: str,
        max_age: float | None = None,
        on_line: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._target, self._route, self._asker, self._max_age = target, tuple(route), asker, max_age
        self._own_socket, self._on_line = own_socket_path(target, route, folder), on_line
        self._path, self._process = "", 0
        self._is_closed = self._is_abandoned = False
        self._hops = Hops(target, route, folder, lambda to, hosts: ControlMaster(to, hosts, asker, folder, max_age))
        self._login: OpenSshLogin | None = None
        self._watch: ControlSocket | None = None
        self._pulse: Heartbeat | None = None
        self._channels: set[ControlChannel] = set()
        self._room_at = -_SESSION_CLOSE_S
        self.since = time.time()

    # Connection -----------------------------------------------------------------------------------------------------

    @property
    def last(self) -> ControlMaster:
        """Return itself, the wire of its channels."""
        return self

    @property
    def path(self) -> str:
        """Return the path of the control socket."""
        return self._path

    @property
    def is_own(self) -> bool:
        """Return whether the master is one of jupyter_slurm, not the user's."""
        return self._path == self._own_socket

    @property
    def is_alive(self) -> bool:
        """Return whether the master lives. A master whose host is gone still looks alive."""
        return self._watch is not None and not self._is_closed and not has_ended(self._watch.socket, 0)

    def is_active(self) -> bool:
        """See :attr:`is_alive`."""
        return self.is_alive

    def join(self, timeout: float | None) -> None:
        """Wait for the command's end."""
        if self._watch is not None and not self._is_closed:
            has_ended(self._watch.socket, timeout)

    def open(self) -> None:
        """Find a logged-in master, else log in.

        Raises
        ------
        SlurmError
            Connecting failed; LinkLost if a new attempt may succeed.
        """
        self._reach()
        if self._is_abandoned:  # before the login could be closed
            self.close()
        elif self._is_closed:
            self.leave()

    def _reach(self) -> None:
        theirs = self._route[-1].control_path
        if theirs and theirs.lower() != "none" and self._find(theirs):
            return
        make_private(os.path.dirname(self._own_socket))
        with lock_file(f"{self._own_socket}.lock", self._has_ended):  # two processes must not start two masters
            if self._has_ended():
                return  # the caller of close does not wait
            with contextlib.suppress(FileNotFoundError):  # the master may end at this moment
                if self._find(self._own_socket):
                    self.since = os.stat(self._own_socket).st_mtime  # end of the login: not changed later
                    if self._max_age is None or time.time() - self.since < self._max_age:
                        return
            self._unfind()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._own_socket)
            idle = _IDLE_TIMEOUT_S if self._max_age is None else min(_IDLE_TIMEOUT_S, self._max_age)
            hops = hop_paths(self._target, self._route, os.path.dirname(self._own_socket))
            sockets = MasterSockets(self._own_socket, idle, hops)
            self._login = login = OpenSshLogin(self._target, self._route, self._asker, sockets, self._on_line)
            if self._has_ended():
                login.close()
            login.run()
            if not self._find(self._own_socket):
                raise LinkLost(f"The connection to {self._route[-1].label} broke.", host=self._route[-1].name)
            self.since = time.time()

    def close(self) -> None:
        """Give up the master: an own master ends, the user's is left alone."""
        self._is_abandoned = True
        if self._login is not None:
            self._login.close()
        self._hops.close(keep=False)
        if self.is_own:
            self._end()
        self.leave()

    def leave(self) -> None:
        """Release the master; the login stays."""
        if self._watch is not None:  # first: a thread that finds this connection closed must not end the master
            self._watch.close()
        self._is_closed = True
        self._hops.close(keep=True)
        if self._login is not None:
            self._login.close()
        self._stop_pulse()
        for channel in tuple(self._channels):
            channel.close()

    def probe(self) -> None:
        """Check by an echo session whether the master and its host answer.

        If that session would exceed the limit, OpenSSH's own checks suffice, which own masters make every 5 s.
        """
        self._tidy()
        try:
            with contextlib.closing(ControlSocket(self._path, _ANSWER_TIMEOUT_S)) as control:
                control.process()
            if (pulse := self._pulse) is not None:
                pulse.beat()
        except (OSError, EOFError):
            if self.is_alive and self._pulse is not None and self._pulse.has_ended:
                self._start_pulse()  # only the session was ended on the host
                return
            self.close()
            raise

    def open_session(self, timeout: float) -> ControlChannel:
        """Return a session for one command. Whether the limit allows it is known when the command starts."""
        session = _Session(self, ControlSocket(self._path, timeout), timeout)
        self._add_channel(session)
        return session

    def dial(self, host: str, port: int, timeout: float) -> DialledChannel:
        """Return a stream to a port of a host, as seen from the target."""
        said = self._log_size()
        stream = DialledChannel(ControlSocket(self._path, timeout), self, self.forget)
        self._add_channel(stream)
        try:
            return dial(stream, host, port)
        except paramiko.ChannelException as error:
            raise self._reason(said) or error from None

    def hop(self, number: int) -> Hop:
        """Return a jump host. If jupyter_slurm did not start this master, that may need a login."""
        return self._hops.get(number)

    def _add_channel(self, channel: ControlChannel) -> None:
        """Record a channel, which ends with this connection."""
        self._channels.add(channel)
        if self._is_closed:  # perhaps closed meanwhile
            channel.close()

    def forget(self, channel: ControlChannel) -> None:
        """Forget a closed channel."""
        self._channels.discard(channel)
        self._room_at = time.monotonic()

    def free_session(self) -> bool:
        """Close a session that is not for commands; False: there is none, and none was closed recently."""
        if self._pulse is not None:
            self._stop_pulse()
            self._room_at = time.monotonic()
        return time.monotonic() - self._room_at < _SESSION_CLOSE_S

    # Internal -------------------------------------------------------------------------------------------------------

    def _log_size(self) -> int:
        return os.stat(f"{self._own_socket}.log").st_size if self.is_own else 0

    def _reason(self, since: int) -> paramiko.ChannelException | None:
        """Look up why a port cannot be reached: a master writes the reason only to its log."""
        if not self.is_own:
            return None
        with open(f"{self._own_socket}.log", "rb") as file:
            file.seek(since)
            found = set(_OPEN_FAILED.findall(file.read(1 << 16).decode("utf-8", "replace")))
        if len(found) != 1:  # several at once are indistinguishable
            return None
        kind, text = found.pop()
        return paramiko.ChannelException(_CODES.get(kind, 2), text.strip())

    def _find(self, path: str) -> bool:
        """Use the master on a socket, if it answers."""
        try:
            self._watch = ControlSocket(path, _ANSWER_TIMEOUT_S)
        except (OSError, EOFError):
            return False
        self._path = path
        try:
            with contextlib.closing(ControlSocket(path, _ANSWER_TIMEOUT_S)) as control:
                self._process = control.process()
            self._start_pulse()  # any answer proves that the host is alive
        except (OSError, EOFError, paramiko.SSHException):
            self._unfind()
            return False
        return True

    def _unfind(self) -> None:
        """Release the found master; an own master ends."""
        if self.is_own:
            self._end()
        self._stop_pulse()
        if self._watch is not None:
            self._watch.close()
        self._watch, self._path = None, ""

    def _start_pulse(self) -> None:
        self._stop_pulse()
        session = ControlChannel(ControlSocket(self._path, _ANSWER_TIMEOUT_S), self, self.forget)
        try:
            self._pulse = Heartbeat(session)
            self._add_channel(session)
        except paramiko.ChannelException as error:
            session.close()
            self._pulse = None
            if error.code == _DENIED_CODE:  # by the user: ControlMaster ask
                raise
        except BaseException:
            session.close()
            raise

    def _stop_pulse(self) -> None:
        pulse, self._pulse = self._pulse, None
        if pulse is not None:
            pulse.close()

    def _end(self) -> None:
        """End an own master, by force if necessary."""
        watch = self._watch
        if watch is None or has_ended(watch.socket, 0):
            return
        with (
            contextlib.suppress(OSError, EOFError),
            contextlib.closing(ControlSocket(self._own_socket, 1.0)) as control,
        ):
            control.terminate()
        if not has_ended(watch.socket, 1.0) and self._process:
            with contextlib.suppress(OSError):
                # safe: while this connection is open, the process ID is not reused
                os.kill(self._process, signal.SIGKILL)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._own_socket)

    def _has_ended(self) -> bool:
        return self._is_closed

    def _tidy(self) -> None:
        """Truncate the own master's log, which grows with each session."""
        if self.is_own:
            with contextlib.suppress(OSError):
                if os.stat(f"{self._own_socket}.log").st_size > _MAX_LOG_BYTES:
                    os.truncate(f"{self._own_socket}.log", 0)


class _Session(ControlChannel):
    """A session for a command. It displaces sessions of other kinds, and waits for one just closed."""

    def __init__(self, master: ControlMaster, control: ControlSocket, timeout: float) -> None:
        super().__init__(control, master, master.forget)
        self._master, self._max_wait = master, timeout

    def _open(self, count: int, act: Callable[[list[socket.socket]], None]) -> None:
        deadline = time.monotonic() + _SESSION_CLOSE_S
        while True:
            try:
                super()._open(count, act)
                return
            except paramiko.ChannelException:
                if not self._master.free_session() or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)
            self.renew(ControlSocket(self._master.path, self._max_wait))


class OpenSshLink(PersistentLink):
    """A connection through the hosts of a route, by the system's ``ssh``.

    Parameters
    ----------
    target : LoginTarget
        The destination as typed after ``ssh``.
    route : sequence of HostConfig
        Its hosts, the target last.
    prompter : Prompter
        Asks the user.
    folder : str
        Private directory on a local disk, with a short name.
    max_age : float, optional
        Seconds after which a login ends, also a login of an earlier process.
    on_line : callable, optional
        Called with OpenSSH's output during the login, in another thread.
    **options
        As for :class:`PersistentLink`.
    """

    has_late_refusal = True

    def __init__(
        self,
        target: LoginTarget,
        route: Sequence[HostConfig],
        prompter: Prompter,
        folder: str,
        *,
        max_age: float | None = None,
        on_line: Callable[[str], None] = lambda text: None,
        **options: Any,
    ) -> None:
        super().__init__([host.name for host in route], **options)
        self._on_line = on_line
        self._target, self._route, self._folder, self._max_age = target, tuple(route), folder, max_age
        self._prompter = prompter

    def new_connection(self) -> ControlMaster:
        """Return a master that is not yet open."""
        asker = Asker(self._prompter, asyncio.get_running_loop())
        return ControlMaster(self._target, self._route, asker, self._folder, self._max_age, self._on_line)


def end_own_masters(target: LoginTarget, route: Sequence[HostConfig], folder: str) -> None:
    """End the masters that an earlier process left, if any."""
    hops = [(hop_target(target, route, number), route[: number + 1]) for number in range(len(route) - 1)]
    for path in (own_socket_path(to, hosts, folder) for to, hosts in [(target, route), *hops]):
        with (
            contextlib.suppress(OSError, EOFError),
            contextlib.closing(ControlSocket(path, _ANSWER_TIMEOUT_S)) as control,
        ):
            control.terminate()
