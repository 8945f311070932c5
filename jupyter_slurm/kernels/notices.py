"""Notices in the cell of a kernel on a node: an outage of the connection, and the reason of the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from jupyter_slurm.client.render import allocation_card
from jupyter_slurm.client.render.job_card import headline, notes
from jupyter_slurm.client.render.sentences import sentences
from jupyter_slurm.domain.slurm_values import duration_words
from jupyter_slurm.domain.states import ENDING_STATES

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api


__all__ = [
    "OutageNotice",
    "is_allocation_over",
    "is_ending",
    "is_over",
    "is_requeued",
    "is_settled",
    "retained_allocation_text",
    "why",
]

_CHECK_INTERVAL_S = 1.0  # seconds between two checks
_SILENT_CHECKS = 9  # checks: an idle keeper sends a sign of life every 5 s
_DOWN_TEXT = "The connection to this kernel is lost. The kernel keeps running, and its output appears later."
_BACK_TEXT = "The connection is back."


class OutageNotice:
    """Reports an outage, its cause, and its end, each once.

    Parameters
    ----------
    read_counters : callable
        Returns the number of receptions from the keeper.
    print_text : callable
        Prints a line in the running cell, and returns whether a cell is running.
    trouble : callable
        Returns the cause of the outage, if the user can remove it.

    Attributes
    ----------
    is_down : bool
    """

    def __init__(
        self, read_counters: Callable[[], int], print_text: Callable[[str], bool], trouble: Callable[[], Awaitable[str]]
    ) -> None:
        self._counters, self._print, self._trouble = read_counters, print_text, trouble
        self.is_down = False

    async def watch(self) -> None:
        """Check forever. Checks are counted, not seconds: a sleeping machine makes none."""
        heard, looks, said = self._counters(), 0, set[str]()
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            if (now := self._counters()) != heard:
                heard, looks, self.is_down = now, 0, False
                if said:
                    self._print(_BACK_TEXT)
                    said.clear()
                continue
            looks += 1
            self.is_down = looks >= _SILENT_CHECKS
            if not self.is_down:
                continue
            if _DOWN_TEXT not in said and self._print(_DOWN_TEXT):
                said.add(_DOWN_TEXT)
            if _DOWN_TEXT in said and (text := await self._trouble()) and text not in said and self._print(text):
                said.add(text)


_HINTS: Final = {
    "CANCELLED": "",
    "NODE_FAIL": "If a node keeps failing, exclude it with --exclude=NODE.",
    "PREEMPTED": "Add --requeue so that Slurm requeues such an allocation and the kernel restarts in it.",
    "TIMEOUT": "Use a kernel with a longer --time.",
}
"""The next step, if it differs from that for a job."""


def is_ending(allocation: api.Job) -> bool:
    """Return whether Slurm is ending an allocation whose final state is still unknown."""
    return not allocation["finished"] and allocation["state"] in ENDING_STATES


def is_requeued(allocation: api.Job, restarts: int) -> bool:
    """Return whether an allocation was requeued since its restart count was ``restarts``."""
    return not allocation["finished"] and int(allocation.get("restarts") or 0) > restarts


def _allocation_ended_step(step: api.Job) -> bool:
    """Return whether a step ended with its allocation, by the step: the allocation may be updated later."""
    error = step.get("error")
    return bool(error and (error.get("details") or {}).get("with_allocation"))


def is_over(step: api.Job, allocation: api.Job, restarts: int) -> bool:
    """Return whether the kernel has ended."""
    return bool(step["finished"]) or not allocation_card.is_open(allocation) or is_requeued(allocation, restarts)


def is_settled(step: api.Job, allocation: api.Job, restarts: int) -> bool:
    """Return whether the final states of all ended parts are known."""
    if is_ending(allocation):
        return False
    return (
        not _allocation_ended_step(step) or not allocation_card.is_open(allocation) or is_requeued(allocation, restarts)
    )


def is_allocation_over(step: api.Job | None, allocation: api.Job, restarts: int) -> bool:
    """Return whether no step can be started in an allocation any more."""
    if is_requeued(allocation, restarts):
        return False
    return not allocation_card.is_open(allocation) or (step is not None and _allocation_ended_step(step))


def why(step: api.Job, allocation: api.Job, restarts: int, message: str = "") -> str:
    """Return why the kernel has ended; ``said``: the last lines of a failed allocation."""
    error = step.get("error")
    detail = error.get("detail") if error else None
    if is_requeued(allocation, restarts):
        back = "Slurm requeued its allocation: the kernel restarts in it, without its variables"
        return sentences(detail, back)
    if is_ending(allocation):
        return sentences(headline(allocation), detail)
    if not allocation_card.is_open(allocation):
        step_of_all = _HINTS.get(str(allocation["state"]), allocation.get("next_step"))
        more = [message] if message else notes({**allocation, "next_step": step_of_all})
        return sentences(headline(allocation), *more)
    if _allocation_ended_step(step):
        return sentences(headline(step), detail)
    return sentences(headline(step), *([] if step["state"] == "COMPLETED" else notes(step)))


def retained_allocation_text(allocation: api.Job) -> str:
    """Return a note that an allocation exists without a kernel, and for how long; empty otherwise."""
    if not allocation_card.is_open(allocation) or not (lease := allocation.get("lease")):
        return ""
    return f"Its allocation {allocation['id'] or ''} is kept for another start, for {duration_words(lease)}."
