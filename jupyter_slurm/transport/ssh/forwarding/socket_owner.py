"""Shell on a host that reports on request who listens on its ports."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable

import paramiko

from jupyter_slurm.transport.ssh.protocols import Session
from jupyter_slurm.transport.tunnel.listener_proof import proof_command, proven_address

__all__ = ["SocketOwnerProof"]

_ANSWER_TIMEOUT_S = 15.0  # seconds
_MAX_ANSWER_BYTES = 4 << 20  # bytes of start-up output and of an answer


class SocketOwnerProof:
    """Proof of a listener's owner by one persistent shell: its start costs start-up files, a query a few milliseconds.

    Parameters
    ----------
    open_session : callable
        Opens a session on the host within the given seconds.
    host : str
        Name of the host, for messages.
    """

    def __init__(self, open_session: Callable[[float], Session], host: str) -> None:
        self._open_session, self._host = open_session, host
        self._lock = threading.Lock()
        self._session: Session | None = None

    def find(self, port: int) -> str:
        """Return the address on the host under which the user's own program listens.

        Raises
        ------
        paramiko.SSHException, OSError, EOFError
            The host does not answer; ``paramiko.ChannelException``: the host allows no session.
        """
        mark = secrets.token_hex(16)
        return proven_address(self._run_proof(mark, port), mark, self._host, port)

    def close(self) -> None:
        """Close the shell."""
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
                session.close()

    def _run_proof(self, mark: str, port: int) -> bytes:
        with self._lock:
            if self._session is not None:
                with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
                    if mark.encode() in (output := self._exchange(self._session, mark, port)):
                        return output
                self.close()  # the shell was ended on the host
            session = self._open_session(_ANSWER_TIMEOUT_S)
            self._session = session
            try:
                session.settimeout(_ANSWER_TIMEOUT_S)
                session.exec_command("exec /bin/sh")
                return self._exchange(session, mark, port)
            except BaseException:
                self.close()
                raise

    def _exchange(self, session: Session, mark: str, port: int) -> bytes:
        """Return the shell's output up to its answer or its end."""
        try:
            session.sendall(f"{proof_command(mark, port)}\n".encode())
        except TimeoutError:
            raise
        except OSError:  # the shell ended before the query: its output is still read
            pass
        output, end = b"", f"{mark}\n".encode()
        while output.count(end) < 2 and len(output) < _MAX_ANSWER_BYTES and (data := session.recv(1 << 16)):
            output += data
        return output
