"""Command of a session that is no Jupyter: its check, and the name and base URL that follow from it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.slurm.client import printable

__all__ = ["NAME", "base_url_of", "check_command", "stem_of"]

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
"""A session's name: no number and no key, for those name the job."""


def check_command(command: Sequence[str] | None) -> None:
    """Refuse a command that is not told on which port it is to listen."""
    if command and not any("{port}" in word for word in command):
        raise UsageError(
            printable(f"{shlex.join(command)} is not told on which port it is to listen."),
            hint="Write {port} where it takes one, and {host} where it takes an address: "
            "-- tensorboard --logdir runs --port {port}, for example.",
        )


def stem_of(command: Sequence[str] | None) -> str:
    """Return what names sessions that were given none."""
    stem = os.path.basename(command[0])[:50] if command else "jupyter"
    return stem if NAME.fullmatch(stem) else "server"


def base_url_of(own: str, command: Sequence[str] | None) -> str:
    """Return under which path a session serves: a command does under its own where it is told to."""
    return own if not command or any("{base_url}" in word for word in command) else "/"
