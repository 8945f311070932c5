"""Entries of known_hosts files: their fields, and the hosts to which they apply.

Sources: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT. Measured against ``ssh-keygen -F``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from jupyter_slurm.transport.ssh.keys.public_keys import read_line

__all__ = ["KnownHostEntry", "entries_for", "hashed_name"]

_LINE: Final = re.compile(r"[ \t]*([^ \t#@][^ \t]*)[ \t]+([^ \t]+)[ \t]+([^ \t]+)(?:[ \t].*)?", re.DOTALL)


@dataclass(frozen=True)
class KnownHostEntry:
    """A line of known_hosts: ``marker`` is ``cert-authority``, ``revoked`` or empty; ``line`` counts from one."""

    file: str
    line: int
    marker: str
    key_type: str
    blob: bytes


def entries_for(name: str, files: Iterable[str]) -> Iterator[KnownHostEntry]:
    """Yield the lines for a name (``host`` or ``[host]:port``, lower case). Unreadable lines are skipped."""
    for path in files:
        try:
            with open(path, "rb") as file:
                for number, raw in enumerate(file, 1):
                    found = _parse(raw.decode("utf-8", "surrogateescape"), name)
                    if found is not None:
                        yield KnownHostEntry(path, number, *found)
        except OSError:
            continue


def _parse(line: str, name: str) -> tuple[str, str, bytes] | None:
    line, marker = line.strip("\r\n").lstrip(" \t"), ""
    if line.startswith("@"):
        marker, _, line = line[1:].partition(" " if " " in line else "\t")
        if marker not in ("cert-authority", "revoked"):
            return None
    match = _LINE.fullmatch(line)
    if match is None or not _matches(name, match[1]):
        return None
    blob = read_line(match[2], match[3])
    return None if blob is None else (marker, match[2], blob)


def _matches(name: str, patterns: str) -> bool:
    if patterns.startswith("|1|"):
        return hmac.compare_digest(hashed_name(name, patterns).encode(), patterns.encode("utf-8", "surrogateescape"))
    positive = False
    for pattern in patterns.lower().split(","):
        negated = pattern.startswith("!")
        if _glob(pattern[negated:]).fullmatch(name):
            if negated:
                return False
            positive = True
    return positive


def _glob(pattern: str) -> re.Pattern[str]:
    """Translate a pattern with ``*`` and ``?`` only, because brackets belong to names with ports."""
    parts = (
        ".*" if part[0] == "*" else "." if part == "?" else re.escape(part)
        for part in re.findall(r"\*+|\?|[^*?]+", pattern)
    )
    return re.compile("".join(parts), re.DOTALL)


def hashed_name(name: str, like: str = "") -> str:
    """Return a name as ``|1|salt|hash``, with the salt of ``like`` or a fresh one; empty if ``like`` has no salt."""
    try:
        salt = base64.b64decode(like.split("|")[2], validate=True) if like else secrets.token_bytes(20)
    except (IndexError, ValueError):
        return ""
    if len(salt) != 20:
        return ""
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
