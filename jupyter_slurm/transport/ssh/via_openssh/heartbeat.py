"""A session that only echoes: whether the far side is there, where nobody else finds that out."""

from __future__ import annotations

import contextlib
import secrets
import threading

from jupyter_slurm.transport.ssh.protocols import Session

__all__ = ["Heartbeat"]

_PATIENCE = 1.0  # seconds for start-up files; then it is looked at again the next time


class Heartbeat:
    """One echo over a session that was opened for it; for blocking calls.

    Parameters
    ----------
    session : Session
        A fresh one.

    Raises
    ------
    paramiko.ChannelException
        There can be no further session.
    """

    def __init__(self, session: Session) -> None:
        self._session, self._name, self._beats = session, secrets.token_hex(8), 0
        self._lock = threading.Lock()
        self._answers = self.has_ended = False
        self._out = b""
        session.exec_command("exec cat")
        with contextlib.suppress(ConnectionError):  # a shell that has ended already: seen at the first beat
            self._send()  # the answer is there when it is wanted for the first time, unless start-up files are slow

    def beat(self) -> None:
        """Wait for an echo; :meth:`close` ends the wait. Until it has answered once, it is not waited for.

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
                    if not self._answers:  # start-up files are slow, or read what was meant for it
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
        self._session.settimeout(_PATIENCE)
        try:
            self._session.sendall(mark)
        except ConnectionError:
            self.has_ended = True
            raise
        return mark

    def close(self) -> None:
        """End it."""
        self._session.close()
