"""A connection looked at while it is made, and what its server and the login shell there are like."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import paramiko

from jupyter_slurm.domain.findings import Finding
from jupyter_slurm.errors import SlurmError, TransportError
from jupyter_slurm.transport.ssh.base import LinkLost, Session
from jupyter_slurm.transport.ssh.chain import Gate
from jupyter_slurm.transport.ssh.kept import KeptLink
from jupyter_slurm.transport.ssh.known_hosts import judge
from jupyter_slurm.transport.ssh.prompts import printable
from jupyter_slurm.transport.ssh.ssh_config import Host

__all__ = ["Hop", "ShellLook", "Walk", "count_sessions", "has_sftp", "look_at_shell"]

_CHANNEL: Final = 30.0  # seconds
_PATIENCE: Final = 10.0
_NOISE: Final = 1 << 20  # bytes


class Walk:
    """Watch how a way is walked, and tell of each step: the host is reached, it is the right one, it lets us in.

    Parameters
    ----------
    way : sequence of Host
        The hosts.
    new_gate : callable
        Given what hears how a host was entered, returns who decides; its calls are passed on.
    tell : callable
        Is given what was found; from another thread.
    clock : callable, optional
        Seconds.

    Attributes
    ----------
    hops : list of Hop
        The hosts that have let us in so far.
    """

    def __init__(
        self,
        way: Sequence[Host],
        new_gate: Callable[[Callable[[Host, tuple[str, ...]], None]], Gate],
        tell: Callable[[Finding], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._way, self._tell, self._clock = tuple(way), tell, clock
        self._hop, self._step, self._since = 0, "reached", clock()
        self._opened: dict[Host, tuple[str, ...]] = {}
        self._inner = new_gate(self._opened.__setitem__)
        self.gate = Gate(self._verify, self._login, self._inner.key_types)
        self.hops: list[Hop] = []

    def failure(self, error: SlurmError) -> Finding:
        """Return what it means that the walk ended with an error."""
        host, todo = self._way[min(self._hop, len(self._way) - 1)], error.hint
        if isinstance(error.__cause__, socket.gaierror):
            todo = (
                "Is the name right (`host` in the profile, HostName in ~/.ssh/config)? Is this machine on line, and in "
                "the VPN where the site wants that?"
            )
        return Finding("failed", f"{host.name}, {self._step}", error.message, todo)

    def _verify(self, host: Host, key: paramiko.PKey) -> None:
        self._ok(host, f"{host.label} answers after {self._clock() - self._since:.2f} s")
        self._step = "host key"
        certificate = getattr(key, "public_blob", None)
        before = judge(host, certificate.key_blob if certificate is not None else key.asbytes())
        self._inner.verify(host, key)
        where = f"{before.entry.file}, line {before.entry.line}" if before.entry else "known_hosts from now on"
        self._ok(host, f"known ({where}): {before.key_type} {before.fingerprint}")
        self._step = "log-in"

    def _login(self, host: Host, transport: paramiko.Transport) -> None:
        self._inner.login(host, transport)
        hop = Hop(host, self._opened.get(host, ()), transport)
        how = f" by {' and '.join(hop.accepted)}" if hop.accepted else ""
        self._ok(host, f"{host.user} is let in{how} ({printable(transport.remote_version, 100)})")
        if self._hop < len(self._way):
            self.hops.append(hop)
        self._hop, self._step, self._since = self._hop + 1, "reached", self._clock()

    def _ok(self, host: Host, said: str) -> None:
        if self._hop < len(self._way):  # a connection that breaks later and is made again is another matter
            self._tell(Finding("ok", f"{host.name}, {self._step}", said))


@dataclass(frozen=True)
class Hop:
    """A host of a way that has let us in.

    Attributes
    ----------
    host : Host
    tried : tuple of str
        What it was shown, and what became of it: ``key PATH: accepted`` …
    transport : paramiko.Transport
        The connection to it.
    """

    host: Host
    tried: tuple[str, ...]
    transport: paramiko.Transport

    @property
    def accepted(self) -> list[str]:
        """What it accepted: ``key PATH``, ``certificate PATH``, ``password`` …"""
        return [line.removesuffix(": accepted") for line in self.tried if line.endswith(": accepted")]

    @property
    def refused_keys(self) -> bool:
        """Whether it takes keys, and took none of the person's."""
        shown = [line for line in self.tried if line.startswith(("key ", "certificate "))]
        return any(": refused" in line for line in shown) and not any(line.endswith(": accepted") for line in shown)

    def run(self, script: str, timeout: float = 30.0) -> tuple[int, str]:
        """Run text in ``/bin/sh`` there, whatever the login shell; return the exit code and what was printed. Blocks.

        Raises
        ------
        TransportError
            No command runs there, or it does not end in time.
        """
        out = b""
        try:
            with contextlib.closing(self.transport.open_session(timeout=timeout)) as channel:
                channel.settimeout(timeout)
                channel.set_combine_stderr(True)
                channel.exec_command("exec /bin/sh -s")
                channel.sendall(script.encode("utf-8", "surrogateescape"))
                channel.shutdown_write()
                while len(out) < _NOISE and (data := channel.recv(1 << 16)):
                    out += data
                code = channel.recv_exit_status() if channel.status_event.wait(timeout) else -1
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise TransportError(f"no command runs on {self.host.label}: {printable(str(error), 300)}") from error
        return code, printable(out, 4000).strip()


@dataclass(frozen=True)
class ShellLook:
    """What a login shell did with one plain command.

    Attributes
    ----------
    answered : bool
        Whether it ran it in time.
    shell : str
        The program.
    seconds : float
        How long it took, start-up files included.
    noise : str
        What was printed that the command had not said.
    """

    answered: bool
    shell: str
    seconds: float
    noise: str


async def look_at_shell(link: KeptLink, timeout: float = 15.0) -> ShellLook:
    """Run one plain command by the login shell, as ``ssh HOST echo …`` does.

    Raises
    ------
    TransportError
        The connection broke, or the server allows no session.
    """
    with contextlib.closing(await _open(link)) as channel:
        return await link.threads.call(lambda: _look(link, channel, timeout))


def _look(link: KeptLink, channel: Session, timeout: float) -> ShellLook:
    mark, out, err = secrets.token_hex(16).encode(), b"", b""
    begun = time.monotonic()
    with _told_apart(link):
        channel.exec_command(f"echo {mark.decode()} $SHELL {mark.decode()}")  # all shells read this alike
        while out.count(mark) < 2 and len(out) < _NOISE and time.monotonic() < begun + timeout:
            channel.settimeout(max(0.01, begun + timeout - time.monotonic()))
            try:
                data = channel.recv(1 << 16)
            except socket.timeout:  # noqa: UP041 - paramiko's name for it
                break
            if not data:
                break
            out += data
        seconds = time.monotonic() - begun
        while channel.recv_stderr_ready():
            err += channel.recv_stderr(1 << 16)
    before, _, rest = out.partition(mark)
    answered = mark in rest
    shell = printable(rest.partition(mark)[0]).strip() if answered else ""
    return ShellLook(answered, shell, seconds, printable(before + err, 2000).strip())


async def has_sftp(link: KeptLink) -> bool:
    """Whether the server has the SFTP subsystem.

    Raises
    ------
    TransportError
        The connection broke, or the server allows no session.
    """

    def work() -> bool:
        try:
            with _told_apart(link):
                channel.invoke_subsystem("sftp")
        except LinkLost:
            if link.is_alive:
                return False
            raise
        return True

    with contextlib.closing(await _open(link)) as channel:
        there = await link.threads.call(work)
    # Its process ends in its own time, and the session with it: whoever comes next must not be refused.
    with contextlib.closing(await _open(link)):
        pass
    await link.ask()
    return there


async def count_sessions(link: KeptLink, most: int = 8) -> int:
    """Return how many sessions the server allows at once on a connection on which there is none; ``most``: or more.

    Raises
    ------
    LinkLost
        The connection broke.
    """
    channels: list[Session] = []

    def fill() -> None:
        with link.told_apart():
            channels[-1].exec_command("exec cat")

    try:
        while len(channels) < most:
            channels.append(await link.open_session(_CHANNEL))
            if link.refuses_late:
                await link.threads.call(fill)
    except paramiko.ChannelException:
        count = len(channels) - link.refuses_late  # the last one is there, and was refused
    else:
        count = len(channels)
    finally:
        for channel in channels:
            channel.close()
    await link.ask()  # until then those that were closed may still count
    return count


async def _open(link: KeptLink) -> Session:
    """Open a session; one that was just closed may still count for a moment."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return await link.open_session(_CHANNEL)
        except paramiko.ChannelException as error:
            if time.monotonic() > deadline:
                raise _full(link, error) from error
            await asyncio.sleep(0.1)


def _full(link: KeptLink, error: paramiko.ChannelException) -> TransportError:
    return TransportError(
        f"{link.name} allows no further session: {error}",
        hint="Does a command before it not end? MaxSessions of its sshd is low.",
    )


@contextlib.contextmanager
def _told_apart(link: KeptLink) -> Iterator[None]:
    try:
        yield
    except paramiko.ChannelException as error:
        raise _full(link, error) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise LinkLost(f"the connection to {link.name} broke", host=link.name) from error
