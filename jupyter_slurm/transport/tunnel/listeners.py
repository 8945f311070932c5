"""The local ends of tunnels: bound at once, for one process only, reachable from this machine only."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterable

from jupyter_slurm.errors import TunnelError

__all__ = ["listen_on_port", "listen_on_socket"]

_BACKLOG = 256


def listen_on_port(ports: Iterable[int], *, among: str) -> socket.socket:
    """Listen on the first port of 127.0.0.1 that is free.

    Nobody can listen on it beside us, neither on 127.0.0.1 nor on all addresses: SO_REUSEADDR lets Linux reuse a port
    whose connections linger, and never one on which somebody listens.

    Parameters
    ----------
    ports : iterable of int
        In the order in which they are tried.
    among : str
        What they are, for the person who is told that none is free.

    Raises
    ------
    TunnelError
        None is free.
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
                raise TunnelError(f"port {port} cannot be listened on: {error.strerror}") from error
            refused.add(error.errno)
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    if refused == {errno.EACCES}:
        raise TunnelError(f"you may not listen on port {port} here", hint="A port from 1024 on is for everybody.")
    raise TunnelError(
        f"no local port is free: {among}",
        hint="Close tunnels that nobody uses (`jupyter slurm tunnel --list`), or name another port (--local; of a "
        "session: port=).",
        why="taken",
    )


def listen_on_socket(path: str) -> socket.socket:
    """Listen on a Unix socket 0600, in a folder of ours that nobody else may enter.

    What is left of an earlier process is taken away; what somebody listens on is not.

    Raises
    ------
    TunnelError
        It cannot be made there.
    """
    folder = os.path.dirname(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        about = os.lstat(folder)
        if about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise TunnelError(f"{folder} is not ours alone", hint=f"chmod 700 {folder}")
        _clear(path)
        sock.bind(path)  # in a folder that nobody else may enter
        os.chmod(path, 0o600)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise TunnelError(f"{path} cannot be listened on: {error.strerror or error}") from error
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
    raise TunnelError(f"another process listens on {path}", hint="Is another agent of yours running?")
