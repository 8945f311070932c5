"""ProxyCommand of ssh_config(5): its process, and the cause of its failure."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from typing import Final

from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.prompts import printable
from jupyter_slurm.transport.ssh.protocols import LinkLost

__all__ = ["ProxyCommand"]

_MAX_STDERR_BYTES: Final = 2048  # bytes to keep of its standard error
_END_TIMEOUT_S: Final = 1.0  # seconds to end after it has closed its streams
_NOT_FOUND: Final = (126, 127)  # exit codes of sh(1)


class ProxyCommand:
    """Process that carries bytes to a host, started as OpenSSH does; the text is from the user's own configuration.

    Attributes
    ----------
    sock : socket
        Its standard input and output.
    """

    def __init__(self, host: HostConfig) -> None:
        self._host = host
        self._tail = bytearray()
        self.sock, theirs = socket.socketpair()
        try:
            end = theirs.fileno()
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {host.proxy_command}"],
                stdin=end,
                stdout=end,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except BaseException:
            self.sock.close()
            raise
        finally:
            theirs.close()
        self._reader = threading.Thread(target=self._listen, name="proxy-command", daemon=True)
        self._reader.start()

    def failure(self, reason: str) -> LinkLost:
        """Return why the command does not reach the host; ``reason``: the error that its peer saw."""
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_END_TIMEOUT_S)
            self._reader.join(_END_TIMEOUT_S)
        said = printable(bytes(self._tail), _MAX_STDERR_BYTES).strip()
        where = f"ProxyCommand of {self._host.name} in ~/.ssh/config is `{self._host.proxy_command}`"
        hint = f"Run the command in a terminal to see the cause: {where}."
        if code in _NOT_FOUND:
            what, hint = "could not be started", f"Check that the program is installed on this computer. {hint}"
        else:
            what = "gave no connection" if code is None else f"ended with exit code {code}"
            hint += " A ProxyCommand cannot ask for a password or a code. Use ProxyJump for hosts that do."
        return LinkLost(
            f"{self._host.label} cannot be reached: its ProxyCommand {what}: {said or reason}",
            hint=hint,
            host=self._host.name,
        )

    def close(self) -> None:
        """End the process, and the processes that it has started."""
        if self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _listen(self) -> None:
        """Keep the end of its standard error."""
        pipe = self._process.stderr
        assert pipe is not None
        with pipe, contextlib.suppress(OSError):
            while data := os.read(pipe.fileno(), 1 << 16):
                self._tail += data
                del self._tail[:-_MAX_STDERR_BYTES]
