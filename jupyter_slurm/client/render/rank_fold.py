"""Folded output of ranks: one rank is visible, the others are summarized."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyter_slurm.client.render.terminal import Screen, tail_text
from jupyter_slurm.domain.ranks import RankedOutput, has_ranks

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["RankedScreen", "fold", "open_rank"]

_LABEL = re.compile(r"\[(\d{1,7})\] ")
_MAX_LISTED_RANKS = 8  # ranks listed one by one
_MIN_RANK_CHARACTERS = 512  # characters of a rank


class RankedScreen:
    """The end of a labelled output: each rank has a terminal of its own, whose lines are labelled again.

    Parameters
    ----------
    limit : int
        Characters to keep: a quarter for the first rank, the rest for all others together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._labelled = RankedOutput()
        self._screens: dict[int, Screen] = {}
        self._first: int | None = None
        self._unranked = Screen(self._share)

    def feed(self, data: bytes) -> None:
        """Add output; a piece may end anywhere."""
        for rank, piece in self._labelled.feed(data):
            (self._unranked if rank is None else self._screens.get(rank) or self._add(rank)).feed(piece)

    def text(self) -> str:
        """Return the text of the screens, one after another."""
        texts = []
        if self._unranked:
            texts.append(tail_text(self._unranked.text().removesuffix("\n"), self._share))
        for rank, screen in sorted(self._screens.items()):
            if screen:
                lines = tail_text(screen.text().removesuffix("\n"), self._room(rank)).split("\n")
                texts.append("\n".join(f"[{rank}] {line}" for line in lines))
        return "\n".join([*texts, ""]) if texts else ""

    @property
    def dropped(self) -> bool:
        """Return whether text was dropped."""
        rooms = [(self._unranked, self._share), *((screen, self._room(rank)) for rank, screen in self._screens.items())]
        return any(screen.dropped or len(screen.text()) > room for screen, room in rooms)

    def __bool__(self) -> bool:
        """Return whether any text exists."""
        return bool(self._unranked) or any(self._screens.values())

    def _add(self, rank: int) -> Screen:
        screen = self._screens[rank] = Screen(0)
        first, count = rank if self._first is None else self._first, len(self._screens)
        self._first = min(first, rank)
        is_doubled = count & (count - 1) == 0  # at other counts, shortening all ranks is not worth its time
        for number in self._screens if is_doubled else {rank, first}:
            self._screens[number].limit = self._room(number)
        return screen

    def _room(self, rank: int) -> int:
        """Return the number of characters kept for a rank."""
        return self._limit // 4 if rank == self._first else self._share

    @property
    def _share(self) -> int:
        return max(_MIN_RANK_CHARACTERS, self._limit // 4 // max(_MAX_LISTED_RANKS, len(self._screens)))


def open_rank(data: api.Job) -> int | None:
    """Return the visible rank of a job: the first to fail, else 0; None without ranks."""
    if not has_ranks(data):
        return None
    ranks = data.get("ranks")
    return int(ranks["first"]["rank"]) if ranks else 0


def fold(text: str, rank: int) -> tuple[str, str, str]:
    """Return the visible part of a labelled text, a summary of the other ranks, and their text.

    Parameters
    ----------
    text : str
        Text of :class:`RankedScreen`.
    rank : int
        The visible rank; if it has no text, the first rank with text.
    """
    groups: dict[int, list[str]] = {}
    seen: list[str] = []
    for line in text.removesuffix("\n").split("\n"):
        label = _LABEL.match(line)
        (groups.setdefault(int(label[1]), []) if label else seen).append(line)
    chosen = rank if rank in groups else min(groups, default=rank)
    seen += groups.pop(chosen, [])
    told = [f"[{number}] {_lines(len(lines))}" for number, lines in list(groups.items())[:_MAX_LISTED_RANKS]]
    if more := list(groups.values())[_MAX_LISTED_RANKS:]:
        told.append(f"{len(more)} more ranks, {_lines(sum(map(len, more)))}")
    return "\n".join(seen), ", ".join(told), "\n".join(line for lines in groups.values() for line in lines)


def _lines(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"
