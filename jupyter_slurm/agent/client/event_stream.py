"""Server-sent events that answer a POST, received in the calling thread: it waits for nothing else, and may be
interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jupyter_slurm.agent.client.client_errors import as_error, broken, too_slow
from jupyter_slurm.agent.client.http_client import HttpConnection
from jupyter_slurm.errors import from_problem

if TYPE_CHECKING:
    from jupyter_slurm.agent.hosting.endpoint import Endpoint

__all__ = ["post_events"]

_SILENCE_TIMEOUT_S = 50.0  # seconds; the agent sends a heartbeat every 15 s


def post_events(endpoint: Endpoint, path: str, content: bytes) -> Iterator[tuple[str, Any]]:
    """POST JSON, and yield events as (event, data) until the stream ends. Closing the iterator ends the request.

    Raises
    ------
    SlurmError
        The request is refused, or the stream reports an error.
    AgentUnreachable
        The agent ended, or sends nothing any more.
    """
    connection = HttpConnection(endpoint)
    try:
        status, received, rest = connection.open_stream(path, content, _SILENCE_TIMEOUT_S)
        if status >= 400:
            raise as_error(status, received + b"".join(rest))
        is_complete = False
        while not is_complete:
            *blocks, received = received.split(b"\n\n")
            for block in blocks:
                if (event := _parsed(block)) is not None:
                    yield event
                    is_complete = event[0] == "end"
            if not is_complete:
                received += next(rest, b"") or _lost(path)
    except TimeoutError as error:
        raise too_slow(path, _SILENCE_TIMEOUT_S) from error
    except (OSError, IndexError, ValueError) as error:
        raise broken("POST", path) from error
    finally:
        connection.close()


def _parsed(block: bytes) -> tuple[str, Any] | None:
    """Return an event; None for a heartbeat."""
    fields = dict(line.split(": ", 1) for line in block.decode("ascii").split("\n") if ": " in line)
    if "event" not in fields:
        return None
    value = json.loads(fields["data"])
    if fields["event"] == "error":
        raise from_problem(value)
    return fields["event"], value


def _lost(path: str) -> bytes:
    raise broken("POST", path)
