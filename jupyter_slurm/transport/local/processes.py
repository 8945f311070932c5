"""Start and end of processes for the local transport."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_slurm.errors import CommandMissing, CommandTimeout, TransportError
from jupyter_slurm.transport.base import Context
from jupyter_slurm.transport.local.files import EXHAUSTED_HINT

__all__ = ["communicate", "kill_group", "soft_limits", "start"]


def start(argv: Sequence[str], context: Context | None, **streams: Any) -> subprocess.Popen[bytes]:
    """Start a command in its own session.

    Raises
    ------
    CommandMissing, TransportError
        The command cannot be started.
    """
    context = context or Context()
    try:
        return subprocess.Popen(
            _limited(argv, context.limits or {}),
            cwd=context.cwd,
            env=None if context.env is None else dict(context.env),
            umask=-1 if context.umask is None else context.umask,
            start_new_session=True,
            **streams,
        )
    except FileNotFoundError as error:
        if context.cwd is not None and not os.path.isdir(context.cwd):
            raise TransportError(
                f"The working directory {context.cwd} does not exist.",
                hint="Change to a directory that exists: %cd DIR.",
            ) from error
        raise CommandMissing(
            f"{argv[0]} is not on the PATH of this computer.",
            hint="On a login node, run `module load slurm` before you start Jupyter. On any other computer, "
            "connect to a cluster with `%slurm use CLUSTER`.",
            argv=list(argv),
        ) from error
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.E2BIG:
            raise TransportError(
                f"{argv[0]} cannot be started, because its arguments and the environment variables are too long.",
                hint="Write long lists to a file, and remove variables from os.environ that the job does not need.",
            ) from error
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise TransportError(
                f"{argv[0]} cannot be started: {error.strerror}.", hint=EXHAUSTED_HINT, argv=list(argv)
            ) from error
        raise TransportError(
            f"{argv[0]} cannot be started: {error}",
            hint="Check that the program is installed and that you may run it.",
            argv=list(argv),
        ) from error


def _limited(argv: Sequence[str], limits: Mapping[str, str]) -> list[str]:
    """Prepend the soft limits that differ from those of this process; only a shell can set them without a race."""
    own = soft_limits()
    wanted = [f"{letter}={value}" for letter, value in limits.items() if own.get(letter) not in (value, None)]
    if not wanted:
        return list(argv)
    script = 'for l in $1; do ulimit -S "-${l%%=*}" "${l#*=}" 2>/dev/null; done; shift; exec "$@"'
    return ["/bin/sh", "-c", script, "sh", " ".join(wanted), *argv]


def communicate(process: subprocess.Popen[bytes], stdin: bytes, timeout: float | None) -> tuple[bytes, bytes]:
    """Send a command its input and return its output. After the time-out, its process group is ended."""
    try:
        return process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        kill_group(process)
        process.communicate()
        argv = [os.fsdecode(a) for a in process.args] if isinstance(process.args, list) else []
        raise CommandTimeout(
            f"{argv[0] if argv else 'The command'} gave no answer within {timeout:g} s.",
            hint="Try again later, or check the load of this computer.",
            argv=argv,
        ) from error


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a command and all processes that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


# Letter: the limit, and the unit of the letter in bytes.
_LETTERS = {
    "c": (resource.RLIMIT_CORE, 512),
    "d": (resource.RLIMIT_DATA, 1024),
    "f": (resource.RLIMIT_FSIZE, 512),
    "l": (resource.RLIMIT_MEMLOCK, 1024),
    "m": (resource.RLIMIT_RSS, 1024),
    "n": (resource.RLIMIT_NOFILE, 1),
    "p": (resource.RLIMIT_NPROC, 1),
    "s": (resource.RLIMIT_STACK, 1024),
    "t": (resource.RLIMIT_CPU, 1),
    "v": (resource.RLIMIT_AS, 1024),
}


def soft_limits() -> dict[str, str]:
    """Return the limits in the form of ``ulimit -S``."""
    found = {letter: (resource.getrlimit(which)[0], unit) for letter, (which, unit) in _LETTERS.items()}
    return {
        letter: "unlimited" if soft == resource.RLIM_INFINITY else str(soft // unit)
        for letter, (soft, unit) in found.items()
    }
