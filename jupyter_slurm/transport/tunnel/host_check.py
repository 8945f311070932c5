"""Check of the host name in the first HTTP request of a connection to a local port; other protocols pass unchanged.

A page of another site can make its own name an alias of 127.0.0.1 (DNS rebinding). The browser then lets the page read
what a program behind a tunnel answers, but it names that site in the header Host (RFC 9110, 7.2). A proxy on this
computer, such as jupyter-server-proxy, would give a page of a node the origin of the proxy; it names its own port. The
port of no program on this computer is accepted: the local port may itself be forwarded from another computer.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Final

__all__ = ["FOREIGN_HOST_ANSWER", "ForeignHost", "HostCheck"]

_MAX_HEAD_BYTES: Final = 64 << 10
_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}"
# A request of which the first line is incomplete. Browsers send the whole head at once, if it is not very long.
_INCOMPLETE_LINE: Final = re.compile(_TOKEN + rb" (?:[/*]|https?:)[^\r\n]*\r?")
_LINE: Final = re.compile(rb"\r?\n?" + _TOKEN + rb" [^\r\n]+ HTTP/1\.[01]\r?\n")
_HOST: Final = re.compile(rb"\n(?:[Hh][Oo][Ss][Tt])[ \t]*:([^\r\n]*)\r?\n")
_END: Final = re.compile(rb"\n\r?\n")
_TEXT: Final = (
    "This address is that of a jupyter_slurm tunnel, which answers only under 127.0.0.1 and localhost.\n"
    "Open it as http://127.0.0.1:PORT/ with its own port, not through a proxy. A page of another site cannot use it.\n"
)
FOREIGN_HOST_ANSWER: Final = (
    "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n"
    f"Content-Length: {len(_TEXT)}\r\nConnection: close\r\n\r\n{_TEXT}"
).encode("ascii")
"""Answer to a request for another host."""


class ForeignHost(Exception):
    """A request names a host that is not this computer's loopback, or the port of another program on it."""


class HostCheck:
    """Check of one connection.

    Parameters
    ----------
    port : int, optional
        The local port.
    is_listening : callable, optional
        Returns whether a program on this computer listens on a port.

    Attributes
    ----------
    is_done : bool
        Whether everything that follows may pass unchecked.
    """

    def __init__(self, port: int | None = None, is_listening: Callable[[int], bool] = lambda _: False) -> None:
        self._port, self._is_listening = port, is_listening
        self._head = b""
        self.is_done = False

    def feed(self, data: bytes) -> bytes:
        """Take received bytes, and return those to pass on; empty while it is not known what they are.

        Raises
        ------
        ForeignHost
            The request must not be passed on.
        """
        self._head += data
        if self._is_complete():
            self.is_done = True
        return self.rest() if self.is_done else b""

    def rest(self) -> bytes:
        """Return the bytes that are held back, after the client has sent all."""
        head, self._head = self._head, b""
        return head

    def _is_complete(self) -> bool:
        head = self._head
        line = _LINE.match(head)
        if line is None:
            return len(head) > _MAX_HEAD_BYTES or _INCOMPLETE_LINE.fullmatch(head) is None
        host = _HOST.search(head, line.end() - 1)
        end = _END.search(head, line.end() - 1)
        if host is not None and (end is None or host.start() < end.start()):
            name = host[1].decode("latin-1").strip()
            if not _is_local(name) or self._is_of_another(_port_of(name)):
                raise ForeignHost(name[:200])
            return True
        if end is None and len(head) > _MAX_HEAD_BYTES:
            raise ForeignHost("")
        return end is not None

    def _is_of_another(self, port: int | None) -> bool:
        """Return whether a port belongs to another program on this computer."""
        return self._port is not None and port not in (None, self._port) and self._is_listening(port or 0)


def _port_of(host: str) -> int | None:
    """Return the port of a value of the header Host; None: it names none, so that it is 80."""
    number = host.rpartition("]")[2].rpartition(":")[2]
    return int(number) if re.fullmatch("[0-9]{1,5}", number) else None


def _is_local(host: str) -> bool:
    """Return whether a value of the header Host means this computer's loopback."""
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    name = name.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
