"""Hosts in the OpenSSH configuration of a user."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterator

__all__ = ["host_names"]

_OWN_CONFIG_FILE = "jupyter_slurm.conf"  # nodes of jobs, not login nodes
_MAX_INCLUDE_DEPTH = 16


def host_names(path: str, depth: int = 0) -> list[str]:
    """Return the hosts of an OpenSSH configuration and its included files, without patterns."""
    found: list[str] = []
    for key, words in _lines(path):
        if key == "host":
            found += [word for word in words if not re.search(r"[*?!]", word)]
        elif key == "include" and depth < _MAX_INCLUDE_DEPTH:
            for word in words:
                pattern = os.path.join(os.path.expanduser("~/.ssh"), os.path.expanduser(word))
                for file in sorted(glob.glob(pattern)):
                    if os.path.basename(file) != _OWN_CONFIG_FILE:
                        found += host_names(file, depth + 1)
    return list(dict.fromkeys(found))


def _lines(path: str) -> Iterator[tuple[str, list[str]]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return
    for line in text.splitlines():
        match = re.match(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)", line)
        if match is not None:
            try:
                words = shlex.split(match[2], comments=True)
            except ValueError:  # an open quote; ssh refuses the file
                words = match[2].split()
            yield match[1].lower(), words
