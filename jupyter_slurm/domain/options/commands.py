"""Slurm commands that jupyter_slurm passes through for a user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.errors import OptionError, UsageError

__all__ = ["COMMANDS", "check_ends", "is_repeatable"]

_REPEATABLE: Final = frozenset({"sacct", "scancel", "sdiag", "sinfo", "sprio", "squeue", "sreport", "sshare", "sstat"})

#: Commands that a user may run. Of sbatch only ``--test-only``, which submits nothing.
COMMANDS: Final = _REPEATABLE | {"sacctmgr", "sbatch", "sbcast", "scontrol", "strigger"}

_INTERACTIVE_HINTS: Final = {
    "scontrol": "%scontrol show job 12",
    "sacctmgr": "%sacctmgr show qos",
    "sreport": "%sreport cluster utilization",
}
_CHANGES: Final = ("add", "create", "delete", "load", "modify", "remove")
_INFORMATION_OPTIONS: Final = frozenset({"help", "usage", "version"})


def is_repeatable(argv: Sequence[str]) -> bool:
    """Return whether a command may safely run twice. Such a command is repeated if its answer was lost."""
    return argv[0] in _REPEATABLE or tuple(argv[1:]) in (("--help",), ("--version",))


def check_ends(argv: Sequence[str]) -> None:
    """Refuse a command line that never ends by itself, or that waits for an answer on standard input.

    At the end of their input, ``scancel -i``, and ``sacctmgr`` before a change, repeat their question without end
    (22.05).

    Raises
    ------
    UsageError
        The hint names an alternative.
    """
    command = argv[0]
    try:
        options, words = OptionTable.for_command(command).split(argv[1:])
    except OptionError:
        if command != "sbatch":
            return  # the command refuses the line itself
        options, words = [], []
    names = {option.name for option in options}
    if command == "sbatch" and "test-only" not in names:
        raise UsageError("sbatch can only be used with --test-only.", hint="Submit jobs with %%sbatch or %sbatch.")
    if names & _INFORMATION_OPTIONS:
        return
    if "iterate" in names:
        raise UsageError(
            f"{command} --iterate never ends, so the notebook would wait forever.",
            hint="Leave --iterate out, and run the cell again for new output. jupyter_slurm.jobs() and the "
            "panel of JupyterLab follow your jobs.",
        )
    if command == "scancel" and "interactive" in names:
        raise UsageError("A notebook cannot answer the questions of scancel --interactive.", hint="Leave it out.")
    if command in _INTERACTIVE_HINTS and not words:
        raise UsageError(
            f"{command} without a command opens a dialogue, but a notebook cannot answer.",
            hint=f"Give it a command, for example {_INTERACTIVE_HINTS[command]}.",
        )
    first = words[0].lower() if words else ""
    if command == "sacctmgr" and first and "immediate" not in names and any(c.startswith(first) for c in _CHANGES):
        raise UsageError(
            f"sacctmgr {words[0]} asks before it changes anything, but a notebook cannot answer.",
            hint=f"Add -i, which answers yes: %sacctmgr -i {words[0]} …",
        )
    if command == "scontrol" and len(first) > 1 and "wait_job".startswith(first):
        raise UsageError(
            "scontrol wait_job blocks the notebook until the job runs.",
            hint="Read the state of the job instead: jupyter_slurm.job(12).state.",
        )
