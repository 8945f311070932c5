"""Command ``jupyter slurm shell``: a terminal on the login node, or in a running job."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.terminal import add_command, for_terminal
from jupyter_slurm.errors import JobNotFound, NotConnected, SlurmError, TransportError, UsageError
from jupyter_slurm.retry_delays import RetryDelays

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.client.clusters.terminal import TerminalViewer

__all__ = ["add_parser", "run"]

_TERMINAL = re.compile(r"[0-9a-f]{8}")
_ESCAPE = b"\x1d"  # Ctrl-]
_RETRY_DELAYS_S = 0.2, 10.0  # seconds between two attempts to attach: first, and longest
_INPUT_BYTES = 1 << 14
_RESET = b"\x1bc"  # the output so far comes once more
# Modes that a program has set which was not ended: mouse, focus and paste reports, the alternate screen, keys, a hidden
# cursor, colours. The mouse would type into the user's own shell.
_MODES = 9, 1000, 1002, 1003, 1005, 1006, 1015, 1016, 1004, 2004, 1047, 1
_LEAVE = b"".join(b"\x1b[?%dl" % mode for mode in _MODES) + b"\x1b>\x1b[>4m\x1b[<9u\x1b[?25h\x1b[m"
_ENDS = signal.SIGTERM, signal.SIGHUP
_QUIET_S, _DROP_S = 0.05, 2.0  # seconds without input after which nothing is on its way; most seconds to wait for them


def _end(number: int, frame: object) -> None:
    """End this process by an exception, so that the user's terminal gets its settings back."""
    raise SystemExit(128 + number)


class _Detached(Exception):
    """The user has detached."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "shell",
        description="Open a terminal on the login node, or inside a running job of yours, with the login that is open. "
        "The cluster keeps the terminal when the connection breaks, and the command attaches to it again. To detach, "
        "type Ctrl-] and then d. Type Ctrl-] twice to send one. A terminal ends with its shell, and in a job with the "
        "job.",
        page="how-to/terminals",
    )
    parser.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="name of a site profile; ID or name of a job, session, kernel or allocation; or ID of a terminal "
        "(default: the login node)",
    )
    parser.add_argument("--host", action="store_true", help="in a job with a container: open it on the node itself")
    parser.add_argument("--list", action="store_true", help="list the open terminals")
    parser.add_argument("--close", action="store_true", help="end the terminal TARGET")
    parser.add_argument("--cluster", metavar="CLUSTER", help="name of a site profile, or local")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.client.clusters.cluster import current, is_local_id, use
    from jupyter_slurm.client.clusters.cluster_names import shown_name
    from jupyter_slurm.client.clusters.terminal import start_terminal
    from jupyter_slurm.client.settings import settings
    from jupyter_slurm.sites.profile import list_profiles

    name, target = args.cluster, args.target
    if target is not None and name is None and (is_local_id(target) or target in list_profiles(settings().sites)):
        name, target = target, None
    if args.list:
        return _list(name)
    if args.close and target is None:
        raise UsageError("--close needs the ID of a terminal.", hint="List them: `jupyter slurm shell --list`.")
    keeping = _find_keeper(target, name) if target is not None and _TERMINAL.fullmatch(target) else None
    cluster = keeping or (use(name) if name else current())
    if args.close:
        if keeping is None:
            raise UsageError(f"{target} is not a terminal of {shown_name(cluster)}.", hint="Add --list to list them.")
        cluster.client.post(cluster.path("terminals", target, "close"))
        return 0
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise UsageError(
            "Standard input and output must be a terminal.", hint="For a single command, use `jupyter slurm sh`."
        )
    if keeping is None:
        target = start_terminal(cluster, target, *_size(), is_on_host=args.host)["id"]
    return _Screen(cluster, str(target)).show()


def _find_keeper(terminal: str, name: str | None) -> Cluster | None:
    """Return the cluster that keeps a terminal; without a name of a cluster, any that has a connection."""
    from jupyter_slurm.client.clusters.cluster import use
    from jupyter_slurm.client.clusters.other_clusters import find_anywhere
    from jupyter_slurm.client.clusters.terminal import list_terminals

    def find(cluster: Cluster) -> Cluster:
        if all(one["id"] != terminal for one in list_terminals(cluster)):
            raise JobNotFound(f"There is no terminal {terminal}.", hint="Add --list to list them.")
        return cluster

    with contextlib.suppress(JobNotFound):
        return find(use(name)) if name else find_anywhere(find, f"terminal {terminal}", is_number=False)
    return None


def _list(name: str | None) -> int:
    """Print the terminals of a cluster; without a name, those of all clusters with a connection."""
    from jupyter_slurm.client.clusters.cluster import use
    from jupyter_slurm.client.clusters.other_clusters import other_clusters
    from jupyter_slurm.client.clusters.terminal import list_terminals, place_text
    from jupyter_slurm.client.render.terminal import printable

    code = 0
    for cluster in [use(name)] if name else other_clusters():
        try:
            found = list_terminals(cluster)
        except SlurmError as error:
            print(for_terminal(f"{cluster.name if cluster.is_remote else 'local'}: {error}"), file=sys.stderr)
            code = 1
            continue
        for one in found:
            started = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["started"]))
            where = cluster.name if cluster.is_remote else "local"
            print(printable(f"{one['id']}  {where}  {place_text(one)}  {started}"))
    return code


def _size() -> tuple[int, int]:
    """Return columns and rows of the user's terminal; one that knows no size, such as a serial line, has 80 by 24."""
    columns, rows = os.get_terminal_size()
    return columns or 80, rows or 24


class _Screen:
    """The terminal of the user, as the screen of a remote one."""

    def __init__(self, cluster: Cluster, terminal: str) -> None:
        self._cluster, self._terminal = cluster, terminal
        self._is_escaped = False
        self._before = termios.tcgetattr(0)
        self._wakes, self._waker = os.pipe()

    def show(self) -> int:
        """Show the terminal until its end, and return its exit code; 0 if the user detaches."""
        delays, is_first = RetryDelays(*_RETRY_DELAYS_S), True
        with self._raw():
            while True:
                began = time.monotonic()
                try:
                    viewer = self._attach()
                    with contextlib.closing(viewer):
                        self._write(b"" if is_first else _RESET)
                        is_first = False
                        return self._carry(viewer)
                except _Detached:
                    self._write(
                        f"\r\n[Detached. `jupyter slurm shell {self._terminal}` attaches again.]\r\n".encode("ascii")
                    )
                    return 0
                except (NotConnected, OSError, TransportError) as error:
                    if is_first or (isinstance(error, SlurmError) and error.details.get("why") == "no-session"):
                        raise
                    self._write(b"\r\n[The connection broke. Attaching again; Ctrl-] d detaches.]")
                    self._wait(delays.next(lasted=time.monotonic() - began))

    def _attach(self) -> TerminalViewer:
        from jupyter_slurm.client.clusters.terminal import TerminalViewer
        from jupyter_slurm.client.login.call import answering

        if self._cluster.is_remote:
            answering(self._cluster.client, self._cluster.name, self._cluster.log_in, asking=self._asking)
        return TerminalViewer.attach(self._cluster, self._terminal)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Let the user answer a login's prompt: line by line, with Ctrl-C. What was typed before is no answer."""
        self._write(_LEAVE + b"\r\n")
        termios.tcsetattr(0, termios.TCSAFLUSH, self._before)
        try:
            yield
        finally:
            tty.setraw(0)

    @contextlib.contextmanager
    def _raw(self) -> Iterator[None]:
        os.set_blocking(self._waker, False)
        signal.signal(signal.SIGWINCH, lambda *_: None)
        for number in _ENDS:
            signal.signal(number, _end)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        tty.setraw(0)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGWINCH, *_ENDS):
                signal.signal(number, signal.SIG_DFL)
            with contextlib.suppress(OSError, termios.error):  # the terminal was closed
                self._write(_LEAVE)
                self._drop_typed()
                termios.tcsetattr(0, termios.TCSAFLUSH, self._before)

    def _drop_typed(self) -> None:
        """Drop the rest of a paste and late answers of the user's terminal, which the user's own shell would run."""
        deadline = time.monotonic() + _DROP_S
        while time.monotonic() < deadline and select.select([0], [], [], _QUIET_S)[0] and os.read(0, _INPUT_BYTES):
            pass

    def _carry(self, viewer: TerminalViewer) -> int:
        from jupyter_slurm.client.clusters.terminal import exit_code

        viewer.resize(*_size())
        remote, agent = viewer.source.fileno(), viewer.sock.fileno()
        while True:
            ready, _, _ = select.select([0, remote, agent, self._wakes], [], [])
            if 0 in ready:
                viewer.send(self._typed())
            if remote in ready:
                for kind, content in viewer.receive():
                    if kind == b"x":
                        return 1 if (code := exit_code(content)) is None else code
                    self._write(content)
            elif agent in ready:
                raise ConnectionResetError("the agent has ended the connection")
            if self._wakes in ready:
                os.read(self._wakes, _INPUT_BYTES)
                viewer.resize(*_size())

    def _typed(self) -> bytes:
        """Return what the user has typed, without escapes.

        Raises
        ------
        _Detached
            The user detaches, or the terminal was closed.
        """
        typed = os.read(0, _INPUT_BYTES)
        if not typed:
            raise _Detached
        if not self._is_escaped and _ESCAPE not in typed:
            return typed
        sent = bytearray()
        for byte in typed:
            if not self._is_escaped and byte == _ESCAPE[0]:
                self._is_escaped = True
                continue
            if self._is_escaped and byte == ord("d"):
                raise _Detached
            sent += _ESCAPE if self._is_escaped and byte != _ESCAPE[0] else b""
            sent.append(byte)
            self._is_escaped = False
        return bytes(sent)

    def _wait(self, seconds: float) -> None:
        """Wait before the next attempt. Input is dropped, except for the keys that detach."""
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            if select.select([0], [], [], remaining)[0]:
                self._typed()

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(1, left) :]
            except BlockingIOError:  # another program has set the user's terminal so
                select.select([], [1], [])
