"""Server-sent events that answer a POST, received in the calling thread: it waits for nothing else, and may be
interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from jupyter_slurm.agent.client.client_errors import as_error, broken, too_slow
from jupyter_slurm.agent.client.event_parser import EventParser
from jupyter_slurm.errors import from_problem

if TYPE_CHECKING:
    from jupyter_slurm.agent.client.http_client import HttpConnection

__all__ = ["post_events"]

_SILENCE_TIMEOUT_S = 50.0  # seconds; the agent sends a heartbeat every 15 s


def post_events(connect: Callable[[], HttpConnection], path: str, content: bytes) -> Iterator[tuple[str, Any]]:
    """POST JSON, and yield events as (event, data) until the stream ends. Closing the iterator ends the request.

    ``connect`` returns a new connection to the agent.

    Raises
    ------
    SlurmError
        The request is refused, or the stream reports an error.
    AgentUnreachable
        The agent ended, or sends nothing any more.
    """
    connection = connect()
    try:
        status, received, rest = connection.open_stream(path, content, _SILENCE_TIMEOUT_S)
        if status >= 400:
            raise as_error(status, received + b"".join(rest))
        parser = EventParser()
        while True:
            for event, text in parser.feed(received):
                data = json.loads(text)
                if event == "error":
                    raise from_problem(data)
                yield event, data
                if event == "end":
                    return
            received = next(rest, b"")
            if not received:
                raise broken("POST", path)
    except TimeoutError as error:
        raise too_slow(path, _SILENCE_TIMEOUT_S) from error
    except (OSError, IndexError, ValueError) as error:
        raise broken("POST", path) from error
    finally:
        connection.close()
