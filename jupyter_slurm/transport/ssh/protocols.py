"""Interfaces of a connection's parts for shells, files and tunnels, common to paramiko and OpenSSH.

The names are those of paramiko, whose channels and transports implement the interfaces. A break raises
``paramiko.SSHException``, ``OSError`` or ``EOFError``. ``paramiko.ChannelException`` alone means that the connection
works and the remote host refused (code 1: forbidden; 2: nothing listens on the port; 4: no more sessions).
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.base import Stream

__all__ = ["AnswerTooLarge", "ClosedEarly", "Connection", "Hop", "LinkLost", "Session", "Wire"]


class LinkLost(TransportError):
    """The connection broke, or there is none. The requested action may or may not have happened."""

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message, hint=hint or self.usual_hint, **details)

    usual_hint: ClassVar[str] = (
        "jupyter_slurm reconnects automatically, unless the login was ended: then use `jupyter slurm connect CLUSTER`. "
        "Check what was done before you repeat the command."
    )


class AnswerTooLarge(TransportError):
    """A command printed more than is ever read into memory; it was ended."""


class ClosedEarly(LinkLost):
    """A host closed the connection before its greeting: it has too many logins at a time, or blocks this computer."""

    def __init__(self, label: str, host: str) -> None:
        super().__init__(
            f"{label} cannot be reached: it closed the connection before the login.",
            hint="The host may limit the logins at a time (MaxStartups), or block this computer for a while. Try again "
            "in a few minutes.",
            host=host,
        )


class Wire(Protocol):
    """The connection, as seen by a channel."""

    def is_active(self) -> bool:
        """Return whether the connection has not been seen to end."""
        ...

    def join(self, timeout: float | None, /) -> None:
        """Wait for its end, at most for the given seconds."""


class Session(Stream, Protocol):
    """A command on the remote host, with its three streams."""

    def settimeout(self, timeout: float | None, /) -> None:
        """Set the longest wait of each call in seconds; then a call raises ``TimeoutError``."""

    @property
    def closed(self) -> bool:
        """Return whether the session has ended in both directions."""
        ...

    def exec_command(self, command: str, /) -> None:
        """Start a command with the login shell."""

    def invoke_subsystem(self, name: str, /) -> None:
        """Start a subsystem; ``SSHException`` if the server has no such subsystem."""

    def send(self, data: bytes | memoryview, /) -> int:
        """Send some of the bytes, and return their number."""
        ...

    def recv_ready(self) -> bool:
        """Return whether :meth:`recv` has data."""
        ...

    def recv_stderr(self, size: int, /) -> bytes:
        """Return bytes of the command's standard error."""
        ...

    def recv_stderr_ready(self) -> bool:
        """Return whether :meth:`recv_stderr` has data."""
        ...

    def get_transport(self) -> Wire:
        """Return the connection."""
        ...


class Hop(Protocol):
    """A host of a connection, with blocking calls for threads."""

    def open_session(self, timeout: float) -> Session:
        """Return a session for one command."""
        ...

    def dial(self, host: str, port: int, timeout: float) -> Stream:
        """Return a stream to a port of a host, as seen from this host."""
        ...


class Connection(Hop, Protocol):
    """A connection through all hosts of a route, with blocking calls for threads; as a hop, the target host.

    Attributes
    ----------
    last : Wire
        Wire of its channels; set after :meth:`open`.
    """

    @property
    def last(self) -> Wire:
        """Return the wire to the target host."""
        ...

    @property
    def since(self) -> float:
        """Return the time of the login, in seconds since the epoch; set after :meth:`open`."""
        ...

    @property
    def is_alive(self) -> bool:
        """Return whether no break was detected. A link that drops all packets still looks alive."""
        ...

    def open(self) -> None:
        """Connect and log in, once. May wait for the user.

        Raises
        ------
        SlurmError
            Connecting failed; LinkLost if a new attempt may succeed.
        """

    def close(self) -> None:
        """Close the connection, also during :meth:`open`; may be called again."""

    def leave(self) -> None:
        """Release the connection. A login that can persist is kept."""

    def probe(self) -> None:
        """Check the remote host, and wait for its answer; :meth:`close` ends the wait."""

    def hop(self, number: int) -> Hop:
        """Return a host of the route, counted from the nearest; valid as long as the connection."""
        ...
