"""Growth of followed output files: one query for all of them, for any number of jobs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.base import Transport

__all__ = ["OutputGrowth", "OutputWatch"]

_ACTIVE_INTERVAL_S, _IDLE_INTERVAL_S = (
    0.2,
    1.0,
)  # seconds between two queries: with new output, and without


@dataclass(eq=False)
class OutputWatch:
    """Files of one follower.

    Attributes
    ----------
    changed : asyncio.Event
        Set when one of them has appeared, grown or shrunk.
    sizes : dict
        Known sizes: path to bytes; None: missing or not readable.
    """

    changed: asyncio.Event
    sizes: dict[str, int | None] = field(default_factory=dict)


class OutputGrowth:
    """Watch the sizes of files.

    Parameters
    ----------
    transport : Transport
        Transport to the files.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._watches: set[OutputWatch] = set()
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def watching(self, changed: asyncio.Event) -> Iterator[OutputWatch]:
        """Yield a watch; :meth:`watch` sets its files."""
        watch = OutputWatch(changed)
        self._watches.add(watch)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="tails")
        try:
            yield watch
        finally:
            self._watches.discard(watch)

    def watch(self, watch: OutputWatch, paths: Iterable[str]) -> None:
        """Watch these files; query new ones at once."""
        wanted = set(paths)
        for path in watch.sizes.keys() - wanted:
            del watch.sizes[path]
        if new := wanted - watch.sizes.keys():
            watch.sizes.update(dict.fromkeys(new))
            self._hurry.set()

    async def sizes(self, paths: Iterable[str]) -> Mapping[str, int]:
        """Query sizes now; files that cannot be read are left out."""
        found = await self._transport.stat_all(sorted(set(paths)))
        return {path: stat.size for path, stat in found.items()}

    async def stop(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        pause = _ACTIVE_INTERVAL_S
        try:
            while self._watches:
                self._hurry.clear()
                begun = asyncio.get_running_loop().time()
                pause = _ACTIVE_INTERVAL_S if await self._query_sizes() else min(_IDLE_INTERVAL_S, pause * 1.2)
                # A slow or busy connection is queried less often.
                took = asyncio.get_running_loop().time() - begun
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(pause, took)):
                        await self._hurry.wait()
        finally:
            self._task = None

    async def _query_sizes(self) -> bool:
        """Query once; return whether any follower has news."""
        watches = list(self._watches)
        try:
            found = await self.sizes(path for watch in watches for path in watch.sizes)
        except TransportError:
            return False  # the connection is broken: query again later; followers see the error when they read
        news = False
        for watch in watches:
            seen = {path: found.get(path) for path in watch.sizes}
            if seen != watch.sizes:
                watch.sizes, news = seen, True
                watch.changed.set()
        return news
