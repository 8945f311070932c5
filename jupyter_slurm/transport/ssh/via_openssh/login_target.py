"""Target of a log-in by OpenSSH, and the sockets of the masters that it leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["LoginTarget", "MasterSockets"]


@dataclass(frozen=True)
class LoginTarget:
    """What a person would type after ``ssh``: from profiles only, and looked at by :func:`way_to` before.

    Attributes
    ----------
    name : str
        ``host`` or ``user@host``.
    options : tuple of str
        ``-l``, ``-p`` and ``-J`` with their values.
    config_file : str or None
        Instead of ``~/.ssh/config`` and the system's file.
    """

    name: str
    options: tuple[str, ...] = ()
    config_file: str | None = None


@dataclass(frozen=True)
class MasterSockets:
    """Where masters will listen.

    Attributes
    ----------
    path : str
        The control socket that there will be; its folder is private, and files beside it with that name are ours.
    idle : float
        Seconds after which a master that nobody uses ends by itself.
    hops : mapping
        Control sockets that there will be for hosts on the way, by their names.
    """

    path: str
    idle: float
    hops: Mapping[str, str] = field(default_factory=dict)
