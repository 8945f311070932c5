"""Follower of one job: its states and the end of its output, across restarts of the agent."""

from __future__ import annotations

import asyncio
import base64
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from jupyter_slurm.client import event_loop
from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.output.timeline import DISPLAY, STREAMS, Timeline
from jupyter_slurm.client.output.untrusted_displays import screened
from jupyter_slurm.client.render.terminal import plain
from jupyter_slurm.domain.ranks import has_ranks
from jupyter_slurm.errors import (
    AgentError,
    AgentRefused,
    ControllerError,
    JobOutputMissing,
    NotConnected,
    SlurmError,
    TransportError,
)
from jupyter_slurm.retry_delays import RetryDelays

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Follower"]

_RETRY_DELAYS_S = 0.2, 5.0  # seconds between two attempts to reach the agent: first, and longest
_MAX_LAG_FACTOR = 16  # times the kept size: a follower that is further behind continues at the end
_START_DELAY_S = 0.2  # seconds in which a new job has no events; a request would slow its cell and sbatch


class Follower:
    """Follow a job in the background.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the job.
    reference : str
        Key or Slurm id of the job.
    data : mapping
        Known API object of the job.
    limit : int
        Bytes kept of each stream.
    display_limit : int
        Bytes kept of figures, tables and other displays.
    from_start : bool
        Whether the job is new, so that a request for the size of its output is superfluous.
    """

    def __init__(
        self,
        cluster: Cluster,
        reference: str,
        data: api.Job,
        *,
        limit: int,
        display_limit: int,
        from_start: bool = False,
    ) -> None:
        self.data: api.Job = {**data}
        self.timeline = Timeline(
            limit, display_limit, has_ranks=has_ranks(data), screen=partial(screened, cluster.name)
        )
        self.error: SlurmError | None = None
        self.trouble = ""
        self.ended = threading.Event()
        self.lock = threading.RLock()
        self._cluster, self._reference, self._limit = cluster, reference, limit
        self._offsets: dict[str, int] | None = dict.fromkeys((*STREAMS, DISPLAY), 0) if from_start else None
        self._listeners: list[tuple[Callable[[str, bytes], None], bool, bool]] = []
        self.started = False
        self._work: Future[None] | None = None

    def start(self) -> None:
        """Start following; after :meth:`stop`, continue."""
        with self.lock:
            if not self.started:
                self.started = True
                self._work = event_loop.spawn(self._run(), contextvars.copy_context())

    def stop(self) -> None:
        """Stop following: no view is left."""
        with self.lock:
            if self._work is not None and self.started and not self.ended.is_set():
                self.started = False
                self._work.cancel()

    def apply_job(self, data: api.Job) -> None:
        """Store the latest answer of the agent about the job."""
        with self.lock:
            if not self.ended.is_set():
                self.data = {**data}
        self._publish()

    def listen(self, listener: Callable[[str, bytes], None], *, raw: bool = False, is_for_all: bool = False) -> None:
        """Register ``listener(stream, data)``, called in the background; without a stream: a new state, or the end.

        For displays (the stream ``display``) the listener gets their text form; with ``raw``, the runner's messages
        (:class:`jupyter_slurm.client.output.rich_output.DisplayMessages`). With ``is_for_all`` no output is skipped,
        however far ahead the job is.
        """
        with self.lock:
            self._listeners.append((listener, raw, is_for_all))

    def unlisten(self, listener: Callable[[str, bytes], None]) -> None:
        """Remove a listener."""
        with self.lock:
            self._listeners = [known for known in self._listeners if known[0] != listener]

    def printed(self, stream: str) -> str:
        """Return the kept part of a stream, without colours."""
        with self.lock:
            return plain("".join(text for name, text in self.timeline.texts() if name == stream))

    async def _run(self) -> None:
        delays = RetryDelays(*_RETRY_DELAYS_S)
        if self._offsets is not None:
            await asyncio.sleep(_START_DELAY_S)
        had_another = False  # another agent, and the end of the old one has ended its logins
        while not self.ended.is_set():
            is_back = False
            try:
                if self._offsets is None:
                    self._offsets = await asyncio.to_thread(self._places)
                async for event, data in self._cluster.client.astream(
                    self._cluster.path("jobs", self._reference, "stream"), dict(self._offsets)
                ):
                    if not is_back:
                        self.trouble, is_back = "", True
                        delays.reset()
                    self._apply(event, data)
                    if event == "end" or (event == "output" and self._skips(data["stream"], int(data["size"]))):
                        break
            except (AgentRefused, JobOutputMissing) as error:
                self._abandon(error)
            except (AgentError, ControllerError, TransportError) as error:
                self.trouble = error.message
                self._publish()
                if isinstance(error, NotConnected) and had_another:
                    self._cluster.start_relogin()
                had_another = isinstance(error, AgentError)
            except SlurmError as error:
                self._abandon(error)
            except Exception as error:  # noqa: BLE001  a thread's error would be seen by nobody
                self._abandon(
                    SlurmError(f"{type(error).__name__}: {error}", hint="Use job.refresh() and job.tail() instead.")
                )
            if not self.ended.is_set():
                await asyncio.sleep(delays.next())

    def _places(self) -> dict[str, int]:
        """Return the start position in each stream, so that only the end of a long log is transferred."""
        places = dict.fromkeys((*STREAMS, DISPLAY), 0)
        for stream in STREAMS:
            try:
                _, size = self._cluster.client.get_bytes(
                    self._cluster.path("jobs", self._reference, "output"), {"stream": stream, "offset": 0, "limit": 0}
                )
            except (JobOutputMissing, TransportError):
                continue
            places[stream] = max(0, size - self._limit)
        return places

    def _apply(self, event: str, data: Any) -> None:
        if event == "output":
            self._apply_output(data["stream"], int(data["offset"]), base64.b64decode(data["data"]))
        elif event == "job":
            with self.lock:
                self.data = data
            self._publish()
        elif event == "trouble":
            self.trouble = data["detail"]
            self._publish()
        elif event == "end":
            self.ended.set()
            self._publish()

    def _apply_output(self, stream: str, offset: int, data: bytes) -> None:
        assert self._offsets is not None
        with self.lock:
            self._offsets[stream] = offset + len(data)
            shown = self.timeline.feed(stream, offset, data)
        self._publish(stream, shown, data)

    def _skips(self, stream: str, size: int) -> bool:
        """Skip to the end of a stream that is far ahead, unless a listener wants all of it."""
        assert self._offsets is not None
        with self.lock:
            is_wanted = any(is_for_all for _, _, is_for_all in self._listeners)
        if stream not in STREAMS or is_wanted or size - self._offsets[stream] <= _MAX_LAG_FACTOR * self._limit:
            return False
        self._offsets[stream] = size - self._limit
        return True

    def _abandon(self, error: SlurmError) -> None:
        self.error = error
        self.ended.set()
        self._publish()

    def _publish(self, stream: str = "", displayed: bytes = b"", data: bytes = b"") -> None:
        with self.lock:
            listeners = list(self._listeners)
        for listener, raw, _ in listeners:
            listener(stream, data if raw else displayed)
