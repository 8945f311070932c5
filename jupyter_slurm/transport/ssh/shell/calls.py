"""Calls of functions of the remote shell: their words as text, and what is read from their answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_slurm.domain.scripts.script import quote_argv
from jupyter_slurm.errors import CommandMissing, TransportError
from jupyter_slurm.transport.base import Context
from jupyter_slurm.transport.ssh.shell.prelude import PreludeEnd

__all__ = ["ShellAnswer", "check_started", "context_words", "line_of", "number"]


@dataclass(frozen=True)
class ShellAnswer:
    """What came back: the value at the end, remarks of our own functions, both streams, and how the prelude ended."""

    value: str
    notes: tuple[str, ...]
    stdout: bytes
    stderr: bytes
    prelude: PreludeEnd | None = None


def number(said: str) -> int:
    """Return the number that the far side told.

    Raises
    ------
    TransportError
        It is none. Nothing that is read as a number fails otherwise.
    """
    if re.fullmatch("[0-9]{1,18}", said) is None:
        raise TransportError(
            f"the far side answered {said[:40]!r} where a number was due",
            hint="Does something on its PATH stand in for a command of coreutils or util-linux?",
        )
    return int(said)


def context_words(context: Context | None) -> list[str]:
    """Return the words that ``js_here`` takes for the circumstances of a command."""
    context = context or Context()
    if taken := [name for name in context.env or {} if name.startswith("js_")]:
        raise TransportError(f"a variable must not be called {taken[0]}: names in js_ are ours")
    umask = "" if context.umask is None else f"{context.umask:04o}"
    limits = [f"{letter}={value}" for letter, value in (context.limits or {}).items()]
    # A variable that a shell cannot name (an exported function of bash) would be lost in between anyway.
    env = [f"{name}={value}" for name, value in (context.env or {}).items() if name.isidentifier() and name.isascii()]
    cwd = "./-" if context.cwd == "-" else context.cwd or ""  # else it were the folder before this one
    return [umask, cwd, str(len(limits)), *limits, str(len(env)), *env]


def line_of(words: Sequence[str]) -> bytes:
    """Return words as shell text; braces, since half of it, cut off by a broken connection, must not be run."""
    return b"{ " + quote_argv(words).encode("utf-8", "surrogateescape") + b"\n}\n"


def check_started(answer: ShellAnswer, argv: Sequence[str], context: Context | None) -> None:
    """Raise what the functions of the remote shell remarked about a command that could not be started."""
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
    """Return what to do about a command that is not there, and what the prelude said, which was to bring it."""
    said = str(answer.prelude or "")
    return f"{hint} {said or '`prelude` and `login_shell` under [shell] there set the PATH.'}"
