"""Local ends of tunnels: bound at once, for one process only, reachable from this computer only."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterable

from jupyter_slurm.errors import TunnelError
from jupyter_slurm.transport.local.files import make_private

__all__ = ["listen_on_port", "listen_on_socket"]

_BACKLOG = 256


def listen_on_port(ports: Iterable[int], *, among: str) -> socket.socket:
    """Listen on the first free port of 127.0.0.1.

    No other process can listen on the port, neither on 127.0.0.1 nor on all addresses. SO_REUSEADDR lets Linux reuse a
    port with lingering connections, but never a port with a listener.

    Parameters
    ----------
    ports : iterable of int
        Ports in the order of the attempts.
    among : str
        Description of the ports for the error that none is free.

    Raises
    ------
    TunnelError
        No port is free.
    """
    refused = set()
    for port in ports:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            if os.name == "posix":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", port))
            sock.listen(_BACKLOG)
        except OSError as error:
            sock.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise TunnelError(
                    f"Port {port} of this computer cannot be used: {error.strerror}.",
                    hint="Choose another port: --local, or port= of a session.",
                ) from error
            refused.add(error.errno)
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    if refused == {errno.EACCES}:
        raise TunnelError(
            f"You have no permission to listen on port {port} of this computer.",
            hint="Choose a port of 1024 or higher.",
        )
    raise TunnelError(
        f"No local port is free: {among}.",
        hint="Close unused tunnels (`jupyter slurm tunnel --list`), or choose another port: --local, or "
        "port= of a session.",
        why="taken",
    )


def listen_on_socket(path: str) -> socket.socket:
    """Listen on a Unix socket with mode 0600, in a directory that only this user may enter.

    A missing directory is made: a log-out removes runtime files. A stale socket of an earlier process is removed; a
    socket in use is not.

    Raises
    ------
    TunnelError
        The socket cannot be created.
    """
    folder = os.path.dirname(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        make_private(folder)
        about = os.lstat(folder)
        if about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise TunnelError(f"The directory {folder} is open to other users.", hint=f"Run `chmod 700 {folder}`.")
        _clear(path)
        sock.bind(path)  # in a directory that only this user may enter
        os.chmod(path, 0o600)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise TunnelError(
            f"The socket {path} cannot be created: {error.strerror or error}.",
            hint="Set c.JupyterSlurm.runtime_dir to a directory of yours on a local disk.",
        ) from error
    except BaseException:
        sock.close()
        raise
    return sock


def _clear(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
    raise TunnelError(
        f"Another process listens on {path}.",
        hint="Check whether another agent of yours is running: `jupyter slurm agent status`.",
    )
