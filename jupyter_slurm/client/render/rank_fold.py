"""What the ranks of a job printed, folded: one rank is to be seen, of the others how much there is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyter_slurm.client.render.terminal import Screen, end_of
from jupyter_slurm.domain.ranks import RankedOutput, has_ranks

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["RankedScreen", "fold", "open_rank"]

_LABEL = re.compile(r"\[(\d{1,7})\] ")
_FEW = 8  # ranks that are told one by one
_LEAST = 512  # characters of a rank


class RankedScreen:
    """The end of a labelled output: each rank has a terminal of its own, whose lines are labelled again.

    Parameters
    ----------
    limit : int
        Characters that are kept: a quarter for the first rank, about as many for all others together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._labelled = RankedOutput()
        self._screens: dict[int, Screen] = {}
        self._first: int | None = None
        self._other = Screen(self._share)

    def feed(self, data: bytes) -> None:
        """Take in output; it may be cut anywhere."""
        for rank, piece in self._labelled.feed(data):
            (self._other if rank is None else self._screens.get(rank) or self._add(rank)).feed(piece)

    def text(self) -> str:
        """Return what is on the screens, one after the other."""
        texts = []
        if self._other:
            texts.append(end_of(self._other.text().removesuffix("\n"), self._share))
        for rank, screen in sorted(self._screens.items()):
            if screen:
                lines = end_of(screen.text().removesuffix("\n"), self._room(rank)).split("\n")
                texts.append("\n".join(f"[{rank}] {line}" for line in lines))
        return "\n".join([*texts, ""]) if texts else ""

    @property
    def dropped(self) -> bool:
        """Whether something is left out."""
        rooms = [(self._other, self._share), *((screen, self._room(rank)) for rank, screen in self._screens.items())]
        return any(screen.dropped or len(screen.text()) > room for screen, room in rooms)

    def __bool__(self) -> bool:
        """Tell whether anything was drawn."""
        return bool(self._other) or any(self._screens.values())

    def _add(self, rank: int) -> Screen:
        screen = self._screens[rank] = Screen(0)
        first, count = rank if self._first is None else self._first, len(self._screens)
        self._first = min(first, rank)
        is_doubled = count & (count - 1) == 0  # else it is not worth while to shorten all of them
        for number in self._screens if is_doubled else {rank, first}:
            self._screens[number].limit = self._room(number)
        return screen

    def _room(self, rank: int) -> int:
        """Return how many characters of a rank are kept."""
        return self._limit // 4 if rank == self._first else self._share

    @property
    def _share(self) -> int:
        return max(_LEAST, self._limit // 4 // max(_FEW, len(self._screens)))


def open_rank(data: api.Job) -> int | None:
    """Return which rank of a job is to be seen: the one that failed first, else 0; None where it has none."""
    if not has_ranks(data):
        return None
    ranks = data.get("ranks")
    return int(ranks["first"]["rank"]) if ranks else 0


def fold(text: str, rank: int) -> tuple[str, str, str]:
    """Return what is to be seen of a labelled text, how much there is beside that, and that itself.

    Parameters
    ----------
    text : str
        As :class:`RankedScreen` gives it.
    rank : int
        Which one is to be seen; where that has said nothing, the first that has.
    """
    groups: dict[int, list[str]] = {}
    seen: list[str] = []
    for line in text.removesuffix("\n").split("\n"):
        label = _LABEL.match(line)
        (groups.setdefault(int(label[1]), []) if label else seen).append(line)
    chosen = rank if rank in groups else min(groups, default=rank)
    seen += groups.pop(chosen, [])
    told = [f"[{number}] {_lines(len(lines))}" for number, lines in list(groups.items())[:_FEW]]
    if more := list(groups.values())[_FEW:]:
        told.append(f"{len(more)} more ranks, {_lines(sum(map(len, more)))}")
    return "\n".join(seen), ", ".join(told), "\n".join(line for lines in groups.values() for line in lines)


def _lines(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"
