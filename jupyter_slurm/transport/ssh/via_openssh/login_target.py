"""Destination of a login by OpenSSH, and the control sockets of its masters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["LoginTarget", "MasterSockets"]


@dataclass(frozen=True)
class LoginTarget:
    """Destination after ``ssh``, as a user would type it: from profiles only, and checked by :func:`way_to` before.

    Attributes
    ----------
    name : str
        ``host`` or ``user@host``.
    options : tuple of str
        ``-l``, ``-p`` and ``-J`` with their values.
    config_file : str or None
        Replaces ``~/.ssh/config`` and the system's file.
    """

    name: str
    options: tuple[str, ...] = ()
    config_file: str | None = None


@dataclass(frozen=True)
class MasterSockets:
    """Control sockets of masters.

    Attributes
    ----------
    path : str
        Path of the future control socket, in a private directory. Files beside it with its name as prefix belong to
        jupyter_slurm.
    idle : float
        Seconds after which an unused master ends by itself.
    hops : mapping
        Future control sockets of the jump hosts, by name.
    """

    path: str
    idle: float
    hops: Mapping[str, str] = field(default_factory=dict)
