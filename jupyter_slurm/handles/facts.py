"""What changes seldom about a cluster, asked for once and in the background."""

from __future__ import annotations

import asyncio
import base64
import contextvars
import os
import re
import threading
import time
from concurrent.futures import Future

from jupyter_slurm.handles import background
from jupyter_slurm.handles.cluster import chosen, current

__all__ = ["partitions"]

_FRESH = 600.0  # seconds for which an answer serves
_AGAIN = 30.0  # seconds after which a question without an answer is asked again
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")

_lock = threading.Lock()
_answers: dict[tuple[str, str, str], tuple[float, Future[list[str]]]] = {}


def partitions(patience: float = 1.0) -> list[str]:
    """Return the names of the partitions, as far as they are known within ``patience`` seconds.

    Asked at most once in ten minutes, however often this is called: it is for the Tab key.
    """
    named = (chosen(), os.environ.get("SLURM_CONF", ""), os.environ.get("PATH", ""))
    with _lock:
        asked_at, answer = _answers.get(named, (0.0, None))
        failed = answer is not None and answer.done() and answer.exception() is not None
        if answer is None or time.monotonic() - asked_at > (_AGAIN if failed else _FRESH):
            answer = background.spawn(asyncio.to_thread(_ask), contextvars.copy_context())
            _answers[named] = (time.monotonic(), answer)
    try:
        return answer.result(patience)
    except Exception:  # noqa: BLE001  no Slurm, no agent, no answer yet: then there is nothing to offer
        return []


def _ask() -> list[str]:
    cluster = current(log_in=False)  # the Tab key asks for no code
    asked = {"argv": ["sinfo", "--noheader", "--format=%R"], "table": False}
    answer = cluster.client.post(cluster.path("commands"), json=asked, idempotent=True)
    names = base64.b64decode(answer["stdout"]).decode("utf-8", "replace").split()
    return sorted({name for name in names if _NAME.fullmatch(name)})
