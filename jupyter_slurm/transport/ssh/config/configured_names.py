"""Names of hosts that have an entry in OpenSSH's configuration."""

from __future__ import annotations

import glob
import os
import re

__all__ = ["configured_names"]

_MAX_FILES = 50
_LINE = re.compile(r"^[ \t]*(host|include)(?:[ \t]*=[ \t]*|[ \t]+)([^#\n]+)", re.IGNORECASE | re.MULTILINE)


def configured_names(config_file: str | None = None) -> list[str]:
    """Return the names after ``Host`` that are not patterns, from a file (``~/.ssh/config``) and what it includes."""
    names: dict[str, None] = {}
    waiting, seen = [os.path.expanduser(config_file or "~/.ssh/config")], set[str]()
    while waiting and len(seen) < _MAX_FILES:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(1_000_000)
        except OSError:
            continue
        for keyword, words in _LINE.findall(text):
            for word in words.replace('"', " ").split():
                if keyword.lower() == "include":
                    waiting += sorted(glob.glob(os.path.join(os.path.expanduser("~/.ssh"), os.path.expanduser(word))))
                elif not re.search(r"[*?!]", word):
                    names[word] = None
    return list(names)
