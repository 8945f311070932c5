"""Calls of functions of the remote shell: their words as text, and the parsing of their answers."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import paramiko

from jupyter_slurm.domain.scripts.script import quote_argv
from jupyter_slurm.errors import CommandMissing, TransportError
from jupyter_slurm.transport.base import Context
from jupyter_slurm.transport.ssh.protocols import LinkLost, Session
from jupyter_slurm.transport.ssh.shell.prelude import PreludeEnd

__all__ = ["ShellAnswer", "check_started", "context_words", "number", "run_plain", "shell_line", "split_notes"]


@dataclass(frozen=True)
class ShellAnswer:
    """Answer of the shell: the final value, remarks of the functions, both streams, and the prelude's end."""

    value: str
    notes: tuple[str, ...]
    stdout: bytes
    stderr: bytes
    prelude: PreludeEnd | None = None


def number(message: str) -> int:
    """Parse a number in an answer.

    Raises
    ------
    TransportError
        The text is not a number. Parsing raises no other error.
    """
    if re.fullmatch("[0-9]{1,18}", message) is None:
        raise TransportError(
            f"The remote shell answered {message[:40]!r} instead of a number.",
            hint="Check that no program on the PATH of the login node replaces a command of coreutils or util-linux.",
        )
    return int(message)


def context_words(context: Context | None) -> list[str]:
    """Return the words for ``js_here`` that describe the context of a command."""
    context = context or Context()
    if taken := [name for name in context.env or {} if name.startswith("js_")]:
        raise TransportError(
            f"The variable {taken[0]} cannot be sent, because names that begin with js_ are reserved.",
            hint="Rename the variable.",
        )
    umask = "" if context.umask is None else f"{context.umask:04o}"
    limits = [f"{letter}={value}" for letter, value in (context.limits or {}).items()]
    # A variable that a shell cannot name (an exported bash function) would be lost in between anyway.
    env = [f"{name}={value}" for name, value in (context.env or {}).items() if name.isidentifier() and name.isascii()]
    cwd = "./-" if context.cwd == "-" else context.cwd or ""  # else it would mean the previous directory
    return [umask, cwd, str(len(limits)), *limits, str(len(env)), *env]


def shell_line(words: Sequence[str]) -> bytes:
    """Return words as shell text in braces, so that half a line, cut by a broken connection, is not run."""
    return b"{ " + quote_argv(words).encode("utf-8", "surrogateescape") + b"\n}\n"


def split_notes(out: bytes, sign: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return the output without the remarks of the functions, each on a line that begins with a sign, and these."""
    notes = []
    while (at := out.find(sign)) >= 0:
        end = out.find(b"\n", at)
        end = len(out) if end < 0 else end
        notes.append(out[at + len(sign) : end].decode("ascii", "replace"))
        out = out[:at] + out[end + 1 :]
    return out, tuple(notes)


def check_started(answer: ShellAnswer, argv: Sequence[str], context: Context | None) -> None:
    """Raise the error that the remote shell's functions reported about a command that could not be started."""
    if "folder" in answer.notes:
        raise TransportError(
            f"The working directory {context.cwd if context else ''} does not exist on the cluster.",
            hint="Change to a directory that exists on the cluster: %cd DIR.",
        )
    if answer.value == "lacking":
        raise CommandMissing(
            "The programs flock and setsid (util-linux) are not on the PATH of the login node.",
            hint=_with_prelude(
                "Ask the administrators for util-linux: commands that must run exactly once need it.", answer
            ),
            argv=list(argv),
        )
    if "missing" in answer.notes:
        raise CommandMissing(
            f"{argv[0]} is not on the PATH of the login node.",
            hint=_with_prelude(
                "If it needs a module or a login shell, set `prelude` or `login_shell` under [shell] in the profile.",
                answer,
            ),
            argv=list(argv),
        )


def _with_prelude(hint: str, answer: ShellAnswer) -> str:
    """Return advice about a missing command, with the output of the prelude that should provide it."""
    said = str(answer.prelude or "")
    return f"{hint} {said or 'Check `prelude` and `login_shell` under [shell] in the profile, which set the PATH.'}"


def run_plain(channel: Session, text: str, timeout: float) -> None:
    """Run a plain command in its own shell, and wait for its end."""
    channel.settimeout(timeout)
    try:
        channel.exec_command(f"exec /bin/sh -c '{text}'")
        channel.recv(1)
    except paramiko.ChannelException:
        raise  # no such session is possible: nothing was run
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise LinkLost("The connection broke.") from error  # whether it ran is unknown: the next call repeats it
    finally:
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
            channel.close()
