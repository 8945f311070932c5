"""Jupyter servers that tests start."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["listening_url"]


def listening_url(record: Path) -> str | None:
    """Return the address of a Jupyter server once it listens, from its ``jpserver-PID.json``; else None.

    From version 2.21 on, jupyter_server writes the file before it listens.
    """
    with contextlib.suppress(OSError, ValueError):  # missing, written incompletely, or not listening yet
        url = str(json.loads(record.read_text())["url"])
        where = urlsplit(url)
        socket.create_connection((where.hostname, where.port), timeout=10).close()
        return url
    return None
