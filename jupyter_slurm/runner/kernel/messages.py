"""Messages of Jupyter that the keeper of a kernel makes and reads, and what wakes it when there are some.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import uuid
from typing import Any


def message(kind: str, content: dict[str, Any], parent: bytes = b"{}") -> tuple[str, list[bytes]]:
    """Return the id and the frames of a message of ours."""
    at = datetime.datetime.now(datetime.timezone.utc).isoformat()
    header = {"msg_id": uuid.uuid4().hex, "msg_type": kind, "session": "keeper", "username": "keeper", "date": at}
    told = json.dumps({**header, "version": "5.3"}).encode()
    return header["msg_id"], [told, parent, b"{}", json.dumps(content).encode()]


def read(frame: bytes) -> dict[str, Any]:
    """Return what a part of a message says; nothing, where it is no object."""
    try:
        told = json.loads(frame)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def word(told: dict[str, Any], name: str) -> str:
    """Return what an object says under a name; nothing, where that is no text."""
    said = told.get(name)
    return said if isinstance(said, str) else ""


class WakeSignal:
    """A pipe that another thread, or a signal, rings: whoever selects ``file`` wakes up."""

    def __init__(self) -> None:
        self.file, self.signals = os.pipe()  # the end to wait for, and the one for signal.set_wakeup_fd
        for end in (self.file, self.signals):
            os.set_blocking(end, False)
        self._has_rung = False

    def ring(self) -> None:
        """Wake it, once until it has listened."""
        if not self._has_rung:
            self._has_rung = True
            with contextlib.suppress(BlockingIOError):
                os.write(self.signals, b"\0")

    def listen(self, _: int) -> None:
        """Take note that it was rung."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.file, 4096)
        self._has_rung = False  # before what has come is looked at
