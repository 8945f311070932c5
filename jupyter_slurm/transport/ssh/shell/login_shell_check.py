"""Checks of an SSH server, and of the login shell behind it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import paramiko

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.ssh.link.persistent import PersistentLink
from jupyter_slurm.transport.ssh.prompts import printable
from jupyter_slurm.transport.ssh.protocols import LinkLost, Session
from jupyter_slurm.transport.ssh.shell.prelude import PreludeEnd
from jupyter_slurm.transport.ssh.shell.shell import Shell

__all__ = ["ShellSurvey", "check_login_shell", "check_prelude", "count_sessions", "has_sftp", "only_in_terminals"]

_CHANNEL_TIMEOUT_S: Final = 30.0  # seconds
_CHECK_TIMEOUT_S: Final = 10.0
_MAX_NOISE_BYTES: Final = 1 << 20  # bytes


def only_in_terminals(shell: str, what: str) -> str:
    """Return how to keep a login shell from running a part of its start-up files for plain commands.

    Parameters
    ----------
    shell : str
        Path of the shell.
    what : str
        The part: "slow commands".
    """
    name = shell.rpartition("/")[2]
    if name in ("tcsh", "csh"):
        return f"Put `if (! $?prompt) exit` into ~/.cshrc or ~/.tcshrc before {what}, so that only terminals run them."
    if name == "zsh":
        return f"Move {what} from ~/.zshenv to ~/.zshrc, which only terminals run."
    if name == "fish":
        return (
            f"Put {what} between `if status is-interactive` and `end` in ~/.config/fish/config.fish, so that only "
            "terminals run them."
        )
    if name == "bash":
        return f"Put `[[ $- == *i* ]] || return` into ~/.bashrc before {what}, so that only terminals run them."
    return f"Let the start-up files of {name or 'your login shell'} run {what} only in terminals."


@dataclass(frozen=True)
class ShellSurvey:
    """Result of one plain command run by a login shell.

    Attributes
    ----------
    answered : bool
        Whether the shell ran the command in time.
    shell : str
        Path of the shell.
    seconds : float
        Duration, including start-up files.
    noise : str
        Output that is not the command's.
    """

    answered: bool
    shell: str
    seconds: float
    noise: str


async def check_login_shell(link: PersistentLink, timeout: float) -> ShellSurvey:
    """Run one plain command with the login shell, as ``ssh HOST echo …`` does.

    Raises
    ------
    TransportError
        The connection broke, or the server allows no session.
    """
    with contextlib.closing(await _open(link)) as channel:
        return await link.threads.call(lambda: _run_check(link, channel, timeout))


def _run_check(link: PersistentLink, channel: Session, timeout: float) -> ShellSurvey:
    mark, out, err = secrets.token_hex(16).encode(), b"", b""
    begun = time.monotonic()
    with _mapped_errors(link):
        channel.exec_command(f"echo {mark.decode()} $SHELL {mark.decode()}")  # all shells parse this line alike
        while out.count(mark) < 2 and len(out) < _MAX_NOISE_BYTES and time.monotonic() < begun + timeout:
            channel.settimeout(max(0.01, begun + timeout - time.monotonic()))
            try:
                data = channel.recv(1 << 16)
            except socket.timeout:  # noqa: UP041 - paramiko's name for it
                break
            if not data:
                break
            out += data
        seconds = time.monotonic() - begun
        while channel.recv_stderr_ready() and len(err) < _MAX_NOISE_BYTES:
            err += channel.recv_stderr(1 << 16)
    before, _, rest = out.partition(mark)
    answered = mark in rest
    shell = printable(rest.partition(mark)[0]).strip() if answered else ""
    return ShellSurvey(answered, shell, seconds, printable(before + err, 2000).strip())


async def check_prelude(link: PersistentLink, prelude: str, login_shell: bool, timeout: float) -> PreludeEnd:
    """Run the prelude of a profile in its own shell, and return how it ended.

    Raises
    ------
    TransportError
        The prelude ended the shell, the connection broke, or the server allows no session.
    """
    with contextlib.closing(await _open(link)) as channel:
        shell = Shell(channel, prelude, login_shell, timeout)

        def work() -> None:
            with _mapped_errors(link):
                shell.start()

        await link.threads.call(work)
    return shell.prelude_end or PreludeEnd(0, "")


async def has_sftp(link: PersistentLink) -> bool:
    """Return whether the server has the SFTP subsystem.

    Raises
    ------
    TransportError
        The connection broke, or the server allows no session.
    """

    def work() -> bool:
        try:
            with _mapped_errors(link):
                channel.invoke_subsystem("sftp")
        except LinkLost:
            if link.is_alive:
                return False
            raise
        return True

    with contextlib.closing(await _open(link)) as channel:
        there = await link.threads.call(work)
    # Its process ends later, and the session with it: the next caller must not be refused.
    with contextlib.closing(await _open(link)):
        pass
    await link.probe()
    return there


async def count_sessions(link: PersistentLink, limit: int = 8) -> int:
    """Return the number of sessions that the server allows on an empty connection; ``most``: at least as many.

    Raises
    ------
    LinkLost
        The connection broke.
    """
    channels: list[Session] = []

    def fill() -> None:
        with link.mapped_errors():
            channels[-1].exec_command("exec cat")

    try:
        while len(channels) < limit:
            channels.append(await link.open_session(_CHANNEL_TIMEOUT_S))
            if link.has_late_refusal:
                await link.threads.call(fill)
    except paramiko.ChannelException:
        count = len(channels) - link.has_late_refusal  # the last session exists, but was refused
    else:
        count = len(channels)
    finally:
        for channel in channels:
            channel.close()
    await link.probe()  # until then, closed sessions may still count
    return count


async def _open(link: PersistentLink) -> Session:
    """Open a session; a session just closed may still count for a moment."""
    deadline = time.monotonic() + _CHECK_TIMEOUT_S
    while True:
        try:
            return await link.open_session(_CHANNEL_TIMEOUT_S)
        except paramiko.ChannelException as error:
            if time.monotonic() > deadline:
                raise _full(link, error) from error
            await asyncio.sleep(0.1)


def _full(link: PersistentLink, error: paramiko.ChannelException) -> TransportError:
    return TransportError(
        f"{link.name} allows no more sessions: {printable(error.text or '', 200)}",
        hint=f"Wait until other commands have ended, or ask the administrators of {link.name} for a larger "
        "MaxSessions in sshd_config.",
    )


@contextlib.contextmanager
def _mapped_errors(link: PersistentLink) -> Iterator[None]:
    try:
        yield
    except paramiko.ChannelException as error:
        raise _full(link, error) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise LinkLost(f"The connection to {link.name} broke.", host=link.name) from error
