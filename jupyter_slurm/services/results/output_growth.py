"""How large the files are that somebody follows: one question for all of them, however many jobs there are."""

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
)  # seconds between two questions: while something is printed, and while nothing is


@dataclass(eq=False)
class OutputWatch:
    """The files of one who follows.

    Attributes
    ----------
    changed : asyncio.Event
        Set when one of them is there, has grown or has shrunk.
    sizes : dict
        What is known of them: path to bytes; None: not there, or not ours to look at.
    """

    changed: asyncio.Event
    sizes: dict[str, int | None] = field(default_factory=dict)


class OutputGrowth:
    """Watch files.

    Parameters
    ----------
    transport : Transport
        The way to them.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._watches: set[OutputWatch] = set()
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def watching(self, changed: asyncio.Event) -> Iterator[OutputWatch]:
        """Give a watch; :meth:`watch` says of what."""
        watch = OutputWatch(changed)
        self._watches.add(watch)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="tails")
        try:
            yield watch
        finally:
            self._watches.discard(watch)

    def watch(self, watch: OutputWatch, paths: Iterable[str]) -> None:
        """Watch these files from now on; what is new among them is asked about at once."""
        wanted = set(paths)
        for path in watch.sizes.keys() - wanted:
            del watch.sizes[path]
        if new := wanted - watch.sizes.keys():
            watch.sizes.update(dict.fromkeys(new))
            self._hurry.set()

    async def sizes(self, paths: Iterable[str]) -> Mapping[str, int]:
        """Ask now; files that cannot be seen are left out."""
        found = await self._transport.stat_all(sorted(set(paths)))
        return {path: stat.size for path, stat in found.items()}

    async def stop(self) -> None:
        """End."""
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
                # A way that is slow, or busy with what was printed, is asked less often.
                took = asyncio.get_running_loop().time() - begun
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(pause, took)):
                        await self._hurry.wait()
        finally:
            self._task = None

    async def _query_sizes(self) -> bool:
        """Ask once; return whether there was news for somebody."""
        watches = list(self._watches)
        try:
            found = await self.sizes(path for watch in watches for path in watch.sizes)
        except TransportError:
            return False  # the way is broken: it is asked again, and the followers hear of it when they read
        news = False
        for watch in watches:
            seen = {path: found.get(path) for path in watch.sizes}
            if seen != watch.sizes:
                watch.sizes, news = seen, True
                watch.changed.set()
        return news
