"""Commands on the login node of a cluster, with live output."""

from __future__ import annotations

import base64
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from jupyter_slurm.client.clusters.cluster import Cluster, context, current
from jupyter_slurm.client.clusters.cluster_names import shown_name
from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.render.terminal import IncrementalFilter
from jupyter_slurm.errors import CommandError, NotConnected, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["CapturedText", "LimitedText", "Show", "follow_login_command", "raw_bytes", "run_login_command"]

Show = Callable[[bytes], None]
"""Function that shows a piece of one output stream."""

_MAX_CAPTURED_BYTES: Final = 64 << 20
_TAIL_CHARACTERS: Final = 1000  # characters shown from the end of a truncated output
_INTERPRETER: Final = re.compile(r"#!\s*(?:\S*/env\s+(?:-\S+\s+)*)?(\S+)")
_logged_in: set[str] = set()  # clusters that this process has logged in to
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "ksh", "mksh", "tcsh", "csh", "fish"})


class LimitedText:
    """Text of one stream that is printed up to a limit, and then its end.

    Parameters
    ----------
    name : str
        Name of the stream: ``stdout`` or ``stderr``.
    limit : int or None
        Characters to print; None: all.
    """

    def __init__(self, name: str, limit: int | None) -> None:
        self._name, self._limit = name, limit
        self._filter = IncrementalFilter()
        self._printed = self._omitted = 0
        self._tail = ""

    def show(self, data: bytes) -> None:
        """Print a piece: colours and simple movements pass, other sequences of terminals do not."""
        text = self._filter.feed(data)
        room = len(text) if self._limit is None else max(0, self._limit - self._printed)
        if shown := text[:room]:
            self._stream().write(shown)
            self._stream().flush()
        self._printed += len(shown)
        self._omitted += len(text) - len(shown)
        self._tail = (self._tail + text[len(shown) :])[-_TAIL_CHARACTERS:]

    def finish(self) -> None:
        """Print the end of the text that was left out."""
        if not self._omitted:
            return
        tail = self._tail if len(self._tail) == self._omitted else self._tail.partition("\n")[2] or self._tail
        sys.stderr.write(
            f"\n… {self._omitted - len(tail)} characters of {self._name} are not shown. Use out=NAME, or write to a "
            f"file on the cluster. The last lines of {self._name}:\n"
        )
        sys.stderr.flush()
        self._stream().write(tail)
        self._stream().flush()

    def _stream(self) -> Any:
        return sys.stderr if self._name == "stderr" else sys.stdout


class CapturedText:
    """Standard output that is kept."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def show(self, data: bytes) -> None:
        """Keep a piece.

        Raises
        ------
        UsageError
            The output is too large.
        """
        self._kept += data
        if len(self._kept) > _MAX_CAPTURED_BYTES:
            raise UsageError(
                f"The output of the command is larger than {_MAX_CAPTURED_BYTES >> 20} MiB. The command was ended.",
                hint="Write it to a file on the cluster, and read the part that you need.",
            )

    def text(self) -> str:
        """Return the text. Bytes that are not UTF-8 are replaced by U+FFFD."""
        return self._kept.decode("utf-8", "replace")


def raw_bytes(file: BinaryIO) -> Show:
    """Return a function that writes the unchanged output to a file or a pipe."""

    def show(data: bytes) -> None:
        file.write(data)
        file.flush()

    return show


def run_login_command(text: str, *, out: Show, err: Show) -> None:
    """Run a text in the login shell on the login node of this process's cluster, and show its output as it arrives.

    Only the first command of a process asks for a login: later ones detect that it has ended, and save a request.

    Raises
    ------
    CommandError
        The exit code is not 0: ``details["exit_code"]``.
    """
    cluster = current(log_in=False)
    if not cluster.is_remote or cluster.name not in _logged_in:
        cluster = current()
        _logged_in.add(cluster.name)
    try:
        end = follow_login_command(cluster, text, out=out, err=err)
    except NotConnected:  # nothing was run
        end = follow_login_command(current(), text, out=out, err=err)
    if code := end["exit_code"]:
        raise CommandError(
            f"The command ended with exit code {code}." + (f" {end['reason']}" if end["reason"] else ""),
            hint="Run it as a job: `%%sbatch`." if end["reason"] else "",
            exit_code=code,
        )


def follow_login_command(cluster: Cluster, text: str, *, out: Show, err: Show) -> api.LoginCommandEnd:
    """Run a text in the login shell; return how it ended.

    Raises
    ------
    WaitInterrupted
        The user interrupted: the command and its children are ended.
    ConfigError
        The site profile allows no commands on the login node.
    TransportError
        The connection broke.
    """
    _check(text)
    asked = {"text": text.rstrip("\n") + "\n", "context": context(cluster)}
    events = cluster.client.post_events(cluster.path("login-commands"), asked)
    shows = {"stdout": out, "stderr": err}
    try:
        for event, data in events:
            if event == "output":
                shows[data["stream"]](base64.b64decode(data["data"]))
            elif event == "end":
                end: api.LoginCommandEnd = data
                return end
    except KeyboardInterrupt:
        raise WaitInterrupted(
            f"Interrupted: the command on {shown_name(cluster)} is ended, with its children."
        ) from None
    finally:
        events.close()  # type: ignore[attr-defined]
    raise AssertionError


def _check(text: str) -> None:
    if not text.strip():
        raise UsageError("There is no command.", hint="Write it after `sh`, or into the cell below `%%slurm sh`.")
    named = _INTERPRETER.match(text)
    if named is not None and os.path.basename(named[1]) not in _SHELLS:
        raise UsageError(
            f"The text is for {os.path.basename(named[1])}, but your login shell runs it.",
            hint="Remove its first line, or run the text as a job: `%%sbatch`.",
        )
