"""Options of srun that a notebook's step may have, and Slurm's errors about steps that did not start or were ended.

Sources: srun(1); ``slurm_errno.c`` of Slurm 22.05 to 26.05.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence
from typing import Final

from jupyter_slurm.domain.options.option_parser import OptionTable, SplitArgv, words_of
from jupyter_slurm.errors import OptionError, UsageError
from jupyter_slurm.runner.allocation.input_variables import ENVIRONMENT

__all__ = [
    "NODES_BUSY_TEXT",
    "OF_STEPS",
    "advise_refused",
    "check_terminal",
    "is_out_of_memory",
    "is_time_over",
    "needs_terminal",
    "step_options",
    "terminal_hint",
    "without_shell_code",
]

# Options that choose where a step runs, or that turn srun into another tool.
_UNSUPPORTED_OPTIONS = {
    "jobid": "name the allocation with on=NAME",
    "no-allocate": "a step runs in an allocation",
    "async": "a step does not block the notebook, unless you add `wait`",
    "test-only": "it starts nothing",
    "help": "`%srun?` shows the help",
    "usage": "`%srun?` shows the help",
    "version": "`%sinfo --version` shows the version",
}

# Further options that a process for cells cannot have: the process is one task, whose standard streams are in use.
_UNSUPPORTED_PROCESS_OPTIONS = {
    **dict.fromkeys(("ntasks", "nodes", "ntasks-per-node", "multi-prog"), "a process is one task"),
    **dict.fromkeys(("input", "output", "error", "label", "unbuffered"), "cells have their own output files"),
}

# Options of srun that ask for a terminal, shells, and the options with which they still read commands from a terminal.
_TERMINAL_OPTIONS = ("pty", "interactive")
_SHELLS = ("bash", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh")
_CODE_OPTION: Final = re.compile(r"-[a-z]*c")
_OF_SHELLS = re.compile(r"-[il]+|--login|--interactive")
# Options of both sbatch and srun that concern the step, not the allocated resources. Of srun, --wait has a value.
OF_STEPS: Final = {"chdir", "error", "export", "input", "open-mode", "output", "quiet", "test-only", "verbose", "wait"}

_LARGER_TEXT = "The allocation has less. Request a larger one with %salloc and another name (as=)."
NODES_BUSY_TEXT = "Requested nodes are busy"
"""srun's message when other steps hold the resources that a step requests from its allocation."""

# srun's messages, each with a remedy.
_REFUSALS = {
    ENVIRONMENT: "Remove the variable: `import os; del os.environ['NAME']`. Or type the option on the line.",
    "More processors requested than permitted": f"Ask for fewer tasks or CPUs (-n, -c). {_LARGER_TEXT}",
    "Memory required by task is not available": f"Ask for less memory (--mem, --mem-per-cpu). {_LARGER_TEXT}",
    "Invalid generic resource (gres) specification": f"Ask for fewer GPUs, or others. {_LARGER_TEXT}",
    "Requested node configuration is not available": f"Ask for fewer nodes, tasks or CPUs (-N, -n, -c). {_LARGER_TEXT}",
    " nodes asked for ": f"Ask for fewer nodes (-N). {_LARGER_TEXT}",
    NODES_BUSY_TEXT: "Wait until another step has ended, or share its resources (%srun --overlap).",
}


def advise_refused(message: str) -> str:
    """Return advice for a step that Slurm did not start, by srun's message; empty if the message is unknown."""
    return next((step for words, step in _REFUSALS.items() if words in message), "")


def is_time_over(message: str) -> bool:
    """Return whether Slurm reported that it ended a step at the time limit of the step or its job."""
    return " DUE TO TIME LIMIT " in message


def is_out_of_memory(message: str) -> bool:
    """Return whether Slurm reported that a step exceeded its memory."""
    signs = ("oom-kill event", "oom_kill event", "Out Of Memory", "exceeded memory limit")  # by the version
    return any(sign in message for sign in signs)


def needs_terminal(split: SplitArgv) -> bool:
    """Return whether srun is asked for a terminal, or for a shell without a script, which would need one."""
    if any(option.name in _TERMINAL_OPTIONS for option in split.options):
        return True
    if not split.rest or any(option.name == "input" for option in split.options):
        return False
    command, *words = split.rest
    return posixpath.basename(command) in _SHELLS and all(_OF_SHELLS.fullmatch(word) for word in words)


def without_shell_code(words: Sequence[str], places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the places of variables, as word and character, that are not in the code of ``sh -c``.

    A shell on the node reads that code: it has the same variables, and the code may set them.
    """

    def is_code(number: int) -> bool:
        has_shell = any(posixpath.basename(word) in _SHELLS for word in words[: number - 1])
        return number > 1 and has_shell and _CODE_OPTION.fullmatch(words[number - 1]) is not None

    return [(number, at) for number, at in places if not is_code(number)]


def terminal_hint(allocation: str, cluster: str = "") -> str:
    """Return how a terminal is opened in an allocation, for a hint; ``cluster`` is empty for this computer."""
    place = f" --cluster {cluster}" if cluster else ""
    return f"`jupyter slurm shell {allocation}{place}` in a terminal, or `Open Terminal` in JupyterLab"


def check_terminal(
    split: SplitArgv, allocation: str | None = None, cluster: str = "", keywords: Sequence[str] = ()
) -> None:
    """Refuse a terminal for a step.

    Parameters
    ----------
    split : SplitArgv
        Options of srun, and the command.
    allocation : str, optional
        Name of the open allocation. The hint opens a terminal in it, instead of a new one.
    cluster : str
        Name of the cluster for the hint; empty for this computer.
    keywords : sequence of str, optional
        Keywords of the line that an allocation has, too.

    Raises
    ------
    OptionError
        The line asks for a terminal.
    """
    if not needs_terminal(split):
        return
    option = next((option for option in split.options if option.name in _TERMINAL_OPTIONS), None)
    shell = f"{split.rest[0]} without a script reads a terminal" if split.rest else ""
    said = f"--{option.name} cannot be used" if option else shell
    way = terminal_hint(allocation or "node", cluster)
    if allocation is None:
        names = {name for spec in OptionTable.for_command("sbatch").specs for name in spec.names} - OF_STEPS
        words = [*words_of(split.options, lambda name: name in names), *keywords]
        way = f"`{' '.join(['%salloc', *map(shlex.quote, words), 'as=node'])}`, then {way}"
    raise OptionError(
        f"{said}: a cell has no terminal.", hint=f"Use {way}.", option=option.tokens[0] if option else split.rest[0]
    )


def step_options(table: OptionTable, options: Sequence[str], *, is_process: bool = False) -> set[str]:
    """Return the long names of the options of a step.

    Parameters
    ----------
    table : OptionTable
        Options of srun.
    options : sequence of str
        As typed.
    is_process : bool
        Whether the step is a process for cells (``%%remote``).

    Raises
    ------
    UsageError
        A step cannot have one of the options.
    """
    if any("\0" in word for word in options):
        raise UsageError("A command line cannot hold a NUL byte.", hint="Remove the NUL byte.")
    split = table.split(options)
    if split.rest:
        raise OptionError(
            f"{split.rest[0]!r} is not an option of srun.",
            hint="Write the command and its arguments after the options of srun.",
            option=split.rest[0],
        )
    check_terminal(split)
    for option in split.options:
        if option.name in _UNSUPPORTED_OPTIONS:
            raise OptionError(
                f"--{option.name} cannot be used: {_UNSUPPORTED_OPTIONS[option.name]}.",
                hint=f"Leave --{option.name} out.",
                option=option.tokens[0],
            )
        if is_process and option.name in _UNSUPPORTED_PROCESS_OPTIONS:
            why = _UNSUPPORTED_PROCESS_OPTIONS[option.name]
            raise OptionError(
                f"--{option.name} cannot be used: {why}.", hint=f"Leave --{option.name} out.", option=option.tokens[0]
            )
    return {option.name for option in split.options}
