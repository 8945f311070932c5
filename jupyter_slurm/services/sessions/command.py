"""Command of a session without Jupyter: its check, and the derived name and base URL."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.slurm.client import printable

__all__ = ["NAME", "base_url_of", "check_command", "stem_of"]

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
"""Form of a session's name: neither a number nor a key, because these identify the job."""


def check_command(command: Sequence[str] | None) -> None:
    """Refuse a command without a placeholder for the port."""
    if command and not any("{port}" in word for word in command):
        raise UsageError(
            printable(f"{shlex.join(command)} does not name the port on which the server must listen."),
            hint="Write {port} where the command takes a port, and {host} where it takes an address, for "
            "example -- tensorboard --logdir runs --port {port}.",
        )


def stem_of(command: Sequence[str] | None) -> str:
    """Return the stem of default session names."""
    stem = os.path.basename(command[0])[:50] if command else "jupyter"
    return stem if NAME.fullmatch(stem) else "server"


def base_url_of(own: str, command: Sequence[str] | None) -> str:
    """Return the base URL of a session: a command has its own if it contains the placeholder for it."""
    return own if not command or any("{base_url}" in word for word in command) else "/"
