"""Trust in an OpenSSH configuration that a profile names: its commands run on this computer."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shlex
from typing import Final

from jupyter_slurm.transport.local.trusted_file import check_trusted

__all__ = ["check_config_file"]

_INCLUDE: Final = re.compile(r"^\s*include[\s=]\s*(.*)$", re.IGNORECASE | re.MULTILINE)
_KNOWN_HOSTS: Final = re.compile(r"^\s*(?:user|global)knownhostsfile[\s=]\s*(.*)$", re.IGNORECASE | re.MULTILINE)
_MAX_FILES: Final = 256


def check_config_file(path: str) -> None:
    """Refuse a configuration that other users can change, with the files that it includes and its known hosts.

    Raises
    ------
    ConfigError
        Another user can change one of the files.
    """
    pending, seen = [path], set[str]()
    while pending and len(seen) < _MAX_FILES:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        check_trusted(path, "The SSH configuration")
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
            pending += _named(_INCLUDE, text)
            for known_hosts in _named(_KNOWN_HOSTS, text):
                check_trusted(known_hosts, "The list of known hosts")


def _named(option: re.Pattern[str], text: str) -> list[str]:
    """Return the files that an option names. Relative paths begin at ``~/.ssh`` (ssh_config(5), Include)."""
    found = list[str]()
    for match in option.finditer(text):
        try:
            words = shlex.split(match[1], comments=True)
        except ValueError:
            continue  # ssh refuses the line
        for word in words:
            path = os.path.expanduser(word)
            found += sorted(glob.glob(path if os.path.isabs(path) else os.path.expanduser(f"~/.ssh/{path}")))
    return found
