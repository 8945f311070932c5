"""What carries a connection to a host: the parts that shells, files and tunnels need, whoever carries.

The names are those of paramiko, whose channels and transports are such parts as they are. What breaks raises
``paramiko.SSHException``, ``OSError`` or ``EOFError``; ``paramiko.ChannelException`` alone means that the far side said
no (code 1: it forbids this; 2: nobody listens there; 4: no more sessions), and that the connection is in order.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.base import Stream

__all__ = ["Connection", "Hop", "LinkLost", "Session", "Wire"]


class LinkLost(TransportError):
    """The connection broke, or there is none: what was asked may or may not have happened."""

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message, hint=hint or self.usual_hint, **details)

    usual_hint: ClassVar[str] = (
        "It is made again by itself, and by `jupyter slurm connect CLUSTER` where somebody has ended it. Look at what "
        "was done before you repeat it."
    )


class Wire(Protocol):
    """The connection as a channel knows it."""

    def is_active(self) -> bool:
        """Whether it was not seen to have ended."""
        ...

    def join(self, timeout: float | None, /) -> None:
        """Wait for its end, for so many seconds at most."""


class Session(Stream, Protocol):
    """One command on the far side and its three streams."""

    def settimeout(self, timeout: float | None, /) -> None:
        """Let each call wait for so many seconds at most; then it raises ``TimeoutError``."""

    @property
    def closed(self) -> bool:
        """Whether it has ended in both directions."""
        ...

    def exec_command(self, command: str, /) -> None:
        """Start a command by the login shell."""

    def invoke_subsystem(self, name: str, /) -> None:
        """Start a subsystem; ``SSHException`` when the server has none of that name."""

    def send(self, data: bytes | memoryview, /) -> int:
        """Send some of it, and return how many bytes."""
        ...

    def recv_ready(self) -> bool:
        """Whether :meth:`recv` has something."""
        ...

    def recv_stderr(self, size: int, /) -> bytes:
        """Return what the command printed as an error."""
        ...

    def recv_stderr_ready(self) -> bool:
        """Whether :meth:`recv_stderr` has something."""
        ...

    def get_transport(self) -> Wire:
        """Return the connection."""
        ...


class Hop(Protocol):
    """One host of a connection, in blocking calls from threads."""

    def open_session(self, timeout: float) -> Session:
        """Return a session for one command."""
        ...

    def dial(self, host: str, port: int, timeout: float) -> Stream:
        """Return a stream to what listens on a port of a host, as this one sees it."""
        ...


class Connection(Hop, Protocol):
    """One connection through all hosts of a way, in blocking calls from threads; as a hop, the host at the end.

    Attributes
    ----------
    last : Wire
        What its channels belong to; there is one after :meth:`open`.
    """

    @property
    def last(self) -> Wire:
        """The wire to the host at the end."""
        ...

    @property
    def since(self) -> float:
        """When the person logged in, in seconds since the epoch; there is one after :meth:`open`."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether nothing was seen to be broken; a link that drops everything still looks alive."""
        ...

    def open(self) -> None:
        """Connect and log in, which may wait for a person; once.

        Raises
        ------
        SlurmError
            It cannot be; LinkLost when it may be better in a moment.
        """

    def close(self) -> None:
        """End it, also while it is being opened; may be called again."""

    def leave(self) -> None:
        """Let go of it; a log-in that can be kept is kept."""

    def ask(self) -> None:
        """Ask the far side whether it is there, and wait for its answer; :meth:`close` ends the wait."""

    def hop(self, number: int) -> Hop:
        """Return a host of the way, counted from the nearest; it lives as long as the connection."""
        ...
