"""Forms of the values of sbatch's options, for refusals that only name the option."""

from __future__ import annotations

import re
from typing import Final

from jupyter_slurm.domain.options.choices import choices_for_option
from jupyter_slurm.domain.options.option_parser import option_meant

__all__ = ["value_form"]

_NAMED = re.compile(
    r"(?:invalid|unrecognized|bad) (?:numeric value \".*\" for )?--(?P<name>[a-z][a-z-]*)"
    r"|^--(?P<given>[a-z-]+)=\S* is not valid",
    re.IGNORECASE | re.MULTILINE,
)
_DIRECTIVE = re.compile(r"Invalid directive found in batch script: (.+)")
_TIME = "Write minutes (90), hours:minutes:seconds (1:30:00) or days-hours (2-12). Units such as 2h are not possible."
_SIZE = "Write a whole number and one of the units K, M, G and T: 16G."
_MOMENT = "Write a time such as 18:00, tomorrow, now+2hours or 2026-01-31T08:00."
_FORMS: Final = {
    "begin": _MOMENT,
    "deadline": _MOMENT,
    "distribution": "Write block, cyclic, plane=SIZE or arbitrary. The man page of sbatch has the forms for sockets.",
    "get-user-env": "Write --get-user-env alone.",
    "gpu-bind": "Write closest, none, single:TASKS, per_task:GPUS, map_gpu:LIST or mask_gpu:LIST.",
    "mem": _SIZE,
    "mem-per-cpu": _SIZE,
    "mem-per-gpu": _SIZE,
    "propagate": "Write ALL, NONE, or names of limits such as NOFILE,STACK.",
    "signal": "Write a signal, and the seconds before the time limit: --signal=B:USR1@300.",
    "time": _TIME,
    "time-min": _TIME,
    "tmp": _SIZE,
}


def value_form(message: str) -> str | None:
    """Return the hint for a refusal of a value by its form; None for other refusals."""
    if found := _DIRECTIVE.search(message):
        meant = option_meant(found[1])
        return f"Write {meant}." if meant else "Options begin with - or --. Begin comments with #, after a blank."
    if not (found := _NAMED.search(message)):
        return None
    name = found["name"] or found["given"]
    if "numeric value" in found[0]:
        return f"Write a whole number for --{name}."
    choices = choices_for_option("sbatch", name, "")
    if choices and choices.fixed and name not in _FORMS:
        return f"Valid values of --{name}: {', '.join(choices.fixed)}."
    return _FORMS.get(name)
