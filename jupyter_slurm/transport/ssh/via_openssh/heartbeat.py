"""Liveness check by a session that only echoes, for connections without another check."""

from __future__ import annotations

import contextlib
import secrets
import threading

from jupyter_slurm.transport.ssh.protocols import Session

__all__ = ["Heartbeat"]

_STARTUP_TIMEOUT_S = 1.0  # seconds for start-up files; then the check is repeated the next time


class Heartbeat:
    """Echo over a session opened for the purpose, with blocking calls.

    Parameters
    ----------
    session : Session
        A fresh session.

    Raises
    ------
    paramiko.ChannelException
        No further session is possible.
    """

    def __init__(self, session: Session) -> None:
        self._session, self._name, self._beats = session, secrets.token_hex(8), 0
        self._lock = threading.Lock()
        self._answers = self.has_ended = False
        self._out = b""
        session.exec_command("exec cat")
        with contextlib.suppress(ConnectionError):  # a shell that has already ended is detected at the first beat
            self._send()  # the first answer is ready when needed, unless start-up files are slow

    def beat(self) -> None:
        """Wait for an echo; :meth:`close` ends the wait. Until the first answer, a time-out is not an error.

        Raises
        ------
        OSError, EOFError
            The session has ended.
        """
        with self._lock:
            mark = self._send()
            while mark not in self._out:
                try:
                    said = self._session.recv(1 << 16)
                except TimeoutError:
                    if not self._answers:  # start-up files are slow, or read this input
                        return
                    continue
                if not said:
                    self.has_ended = True
                    raise EOFError("the session has ended")
                self._out = (self._out + said)[-256:]
                self._answers = self._answers or self._name.encode() in self._out

    def _send(self) -> bytes:
        self._beats += 1
        mark = f"{self._name}.{self._beats}\n".encode()
        self._session.settimeout(_STARTUP_TIMEOUT_S)
        try:
            self._session.sendall(mark)
        except ConnectionError:
            self.has_ended = True
            raise
        return mark

    def close(self) -> None:
        """Close the session."""
        self._session.close()
