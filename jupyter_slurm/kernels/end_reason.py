"""What has become of a kernel on a node and of its allocation: whether they are over, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jupyter_slurm.client.render import allocation_card
from jupyter_slurm.client.render.job_card import duration, headline, notes, sentences
from jupyter_slurm.domain.states import ENDING_STATES

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["is_ending", "is_gone", "is_over", "is_requeued", "is_settled", "kept", "why"]

_NEXT: Final = {
    "CANCELLED": "",
    "NODE_FAIL": "--exclude=NODE leaves out a node that keeps failing.",
    "PREEMPTED": "With --requeue, Slurm puts such an allocation back into the queue, and the kernel begins anew in it.",
    "TIMEOUT": "A kernel with a longer --time has more of it.",
}
"""What to do next, where that is not what one does with a job."""


def is_ending(allocation: api.Job) -> bool:
    """Tell whether Slurm is ending an allocation, and has not said yet as what."""
    return not allocation["finished"] and allocation["state"] in ENDING_STATES


def is_requeued(allocation: api.Job, restarts: int) -> bool:
    """Tell whether an allocation was put back into the queue since it had been ``restarts`` times."""
    return not allocation["finished"] and int(allocation.get("restarts") or 0) > restarts


def _took_it_along(step: api.Job) -> bool:
    """Tell whether a step ended because its allocation did, as the node has it: Slurm may say that later."""
    error = step.get("error")
    return bool(error and (error.get("details") or {}).get("with_allocation"))


def is_over(step: api.Job, allocation: api.Job, restarts: int) -> bool:
    """Tell whether there is no kernel any more."""
    return bool(step["finished"]) or not allocation_card.is_open(allocation) or is_requeued(allocation, restarts)


def is_settled(step: api.Job, allocation: api.Job, restarts: int) -> bool:
    """Tell whether it is known as what all that is over has ended."""
    if is_ending(allocation):
        return False
    return not _took_it_along(step) or not allocation_card.is_open(allocation) or is_requeued(allocation, restarts)


def is_gone(step: api.Job | None, allocation: api.Job, restarts: int) -> bool:
    """Tell whether nothing can be started in an allocation any more."""
    if is_requeued(allocation, restarts):
        return False
    return not allocation_card.is_open(allocation) or (step is not None and _took_it_along(step))


def why(step: api.Job, allocation: api.Job, restarts: int, said: str = "") -> str:
    """Return why there is no kernel any more; ``said``: the last words of an allocation that has failed."""
    error = step.get("error")
    detail = error.get("detail") if error else None
    if is_requeued(allocation, restarts):
        back = "Slurm has put its allocation back into the queue: the kernel begins anew there, without its variables"
        return sentences(detail, back)
    if is_ending(allocation):
        return sentences(headline(allocation), detail)
    if not allocation_card.is_open(allocation):
        step_of_all = _NEXT.get(str(allocation["state"]), allocation.get("next_step"))
        more = [said] if said else notes({**allocation, "next_step": step_of_all})
        return sentences(headline(allocation), *more)
    if _took_it_along(step):
        return sentences(headline(step), detail)
    return sentences(headline(step), *([] if step["state"] == "COMPLETED" else notes(step)))


def kept(allocation: api.Job) -> str:
    """Return that an allocation is there without a kernel, and for how long; empty: it is not."""
    if not allocation_card.is_open(allocation) or not (lease := allocation.get("lease")):
        return ""
    return f"Its allocation {allocation['id'] or ''} is kept for that, for {duration(lease)}."
