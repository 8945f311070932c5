"""What has become of a kernel on a node and of its allocation: whether they are over, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jupyter_slurm.client.render import allocation_card
from jupyter_slurm.client.render.job_card import duration, headline, notes, sentences
from jupyter_slurm.domain.states import ENDING_STATES

__all__ = ["is_ending", "is_gone", "is_over", "is_requeued", "is_settled", "kept", "why"]

_Told = Mapping[str, Any]

_NEXT: Final = {
    "CANCELLED": "",
    "NODE_FAIL": "--exclude=NODE leaves out a node that keeps failing.",
    "PREEMPTED": "With --requeue, Slurm puts such an allocation back into the queue, and the kernel begins anew in it.",
    "TIMEOUT": "A kernel with a longer --time has more of it.",
}
"""What to do next, where that is not what one does with a job."""


def is_ending(allocation: _Told) -> bool:
    """Tell whether Slurm is ending an allocation, and has not said yet as what."""
    return not allocation["finished"] and allocation["state"] in ENDING_STATES


def is_requeued(allocation: _Told, restarts: int) -> bool:
    """Tell whether an allocation was put back into the queue since it had been ``restarts`` times."""
    return not allocation["finished"] and int(allocation.get("restarts") or 0) > restarts


def _took_it_along(step: _Told) -> bool:
    """Tell whether a step ended because its allocation did, as the node has it: Slurm may say that later."""
    return bool(((step.get("error") or {}).get("details") or {}).get("with_allocation"))


def is_over(step: _Told, allocation: _Told, restarts: int) -> bool:
    """Tell whether there is no kernel any more."""
    return bool(step["finished"]) or not allocation_card.is_open(allocation) or is_requeued(allocation, restarts)


def is_settled(step: _Told, allocation: _Told, restarts: int) -> bool:
    """Tell whether it is known as what all that is over has ended."""
    if is_ending(allocation):
        return False
    return not _took_it_along(step) or not allocation_card.is_open(allocation) or is_requeued(allocation, restarts)


def is_gone(step: _Told | None, allocation: _Told, restarts: int) -> bool:
    """Tell whether nothing can be started in an allocation any more."""
    if is_requeued(allocation, restarts):
        return False
    return not allocation_card.is_open(allocation) or (step is not None and _took_it_along(step))


def why(step: _Told, allocation: _Told, restarts: int, said: str = "") -> str:
    """Return why there is no kernel any more; ``said``: the last words of an allocation that has failed."""
    error = step.get("error") or {}
    if is_requeued(allocation, restarts):
        back = "Slurm has put its allocation back into the queue: the kernel begins anew there, without its variables"
        return sentences(error.get("detail"), back)
    if is_ending(allocation):
        return sentences(headline(allocation), error.get("detail"))
    if not allocation_card.is_open(allocation):
        step_of_all = _NEXT.get(str(allocation["state"]), allocation.get("next_step"))
        more = [said] if said else notes({**allocation, "next_step": step_of_all})
        return sentences(headline(allocation), *more)
    if _took_it_along(step):
        return sentences(headline(step), error.get("detail"))
    return sentences(headline(step), *([] if step["state"] == "COMPLETED" else notes(step)))


def kept(allocation: _Told) -> str:
    """Return that an allocation is there without a kernel, and for how long; empty: it is not."""
    if not allocation_card.is_open(allocation) or not allocation.get("lease"):
        return ""
    return f"Its allocation {allocation['id'] or ''} is kept for that, for {duration(allocation['lease'])}."
