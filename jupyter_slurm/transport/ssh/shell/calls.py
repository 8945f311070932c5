"""Calls of functions of the remote shell: their words as text, and the parsing of their answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_slurm.domain.scripts.script import quote_argv
from jupyter_slurm.errors import CommandMissing, TransportError
from jupyter_slurm.transport.base import Context
from jupyter_slurm.transport.ssh.shell.prelude import PreludeEnd

__all__ = ["ShellAnswer", "check_started", "context_words", "number", "shell_line"]


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
            f"the far side answered {message[:40]!r} where a number was due",
            hint="Does something on its PATH stand in for a command of coreutils or util-linux?",
        )
    return int(message)


def context_words(context: Context | None) -> list[str]:
    """Return the words for ``js_here`` that describe the context of a command."""
    context = context or Context()
    if taken := [name for name in context.env or {} if name.startswith("js_")]:
        raise TransportError(f"a variable must not be called {taken[0]}: names in js_ are ours")
    umask = "" if context.umask is None else f"{context.umask:04o}"
    limits = [f"{letter}={value}" for letter, value in (context.limits or {}).items()]
    # A variable that a shell cannot name (an exported bash function) would be lost in between anyway.
    env = [f"{name}={value}" for name, value in (context.env or {}).items() if name.isidentifier() and name.isascii()]
    cwd = "./-" if context.cwd == "-" else context.cwd or ""  # else it would mean the previous directory
    return [umask, cwd, str(len(limits)), *limits, str(len(env)), *env]


def shell_line(words: Sequence[str]) -> bytes:
    """Return words as shell text in braces, so that half a line, cut by a broken connection, is not run."""
    return b"{ " + quote_argv(words).encode("utf-8", "surrogateescape") + b"\n}\n"


def check_started(answer: ShellAnswer, argv: Sequence[str], context: Context | None) -> None:
    """Raise the error that the remote shell's functions reported about a command that could not be started."""
    if "folder" in answer.notes:
        raise TransportError(
            f"the working directory {context.cwd if context else ''} is not there",
            hint="Change to a folder that exists (%cd), on the cluster.",
        )
    if answer.value == "lacking":
        raise CommandMissing(
            "flock and setsid (util-linux) are not on the PATH there",
            hint=_with_prelude("Commands that must run once need them: ask the administrators for util-linux.", answer),
            argv=list(argv),
        )
    if "missing" in answer.notes:
        raise CommandMissing(
            f"{argv[0]} is not on the PATH",
            hint=_with_prelude("Does it need a module, or a login shell? The profile can say so.", answer),
            argv=list(argv),
        )


def _with_prelude(hint: str, answer: ShellAnswer) -> str:
    """Return advice about a missing command, with the output of the prelude that should provide it."""
    said = str(answer.prelude or "")
    return f"{hint} {said or '`prelude` and `login_shell` under [shell] there set the PATH.'}"
