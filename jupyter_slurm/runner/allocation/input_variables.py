"""Variables that Slurm's commands read in place of options, found behind a refusal of an option that nobody typed.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import re
from typing import Collection, Mapping

_OF_TASKS = "SLURMD?_[A-Z0-9_]+|CUDA_VISIBLE_DEVICES"
# ``$NAME`` and ``${NAME}`` of the variables that Slurm sets for a task: no other computer than its node has them.
NODE_VARIABLE = re.compile(rf"\$(?:\{{(?P<braced>{_OF_TASKS})\}}|(?P<name>{_OF_TASKS})(?![A-Za-z0-9_]))")
# Options whose names differ from those of their variables; without the prefixes SBATCH_, SLURM_ and SRUN_.
_OPTIONS = {
    "ARRAY_INX": "array",
    "BURST_BUFFER": "bb",
    "CPU_FREQ_REQ": "cpu-freq",
    "DEBUG": "verbose",
    "EXPORT_ENV": "export",
    "IMMEDIATE": "immediate",
    "KILL_BAD_EXIT": "kill-on-bad-exit",
    "LABELIO": "label",
    "MEM_PER_NODE": "mem",
    "MPI_TYPE": "mpi",
    "NNODES": "nodes",
    "NPROCS": "ntasks",
    "SEGMENT_SIZE": "segment",
    "REMOTE_CWD": "chdir",
    "REQ_SWITCH": "switches",
    "STDERRMODE": "error",
    "STDINMODE": "input",
    "STDOUTMODE": "output",
    "STEP_GRES": "gres",
    "TIMELIMIT": "time",
    "UNBUFFEREDIO": "unbuffered",
    "WAIT4SWITCH": "switches",
}
_PREFIXES = {"sbatch": ("SBATCH_",), "srun": ("SLURM_", "SRUN_")}
_SHARED = ("SLURM_CLUSTERS", "SLURM_HINT")  # read by sbatch, too
_NODES = "node configuration"
# Words of a refusal that names no option.
_SIGNS = {
    "account": ("account",),
    "array": ("array",),
    "clusters": ("cluster",),
    "constraint": ("feature", "constraint", _NODES),
    "gres": ("generic resource", "gres", _NODES),
    **dict.fromkeys(
        ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"), ("generic resource", "gres", "gpu", _NODES)
    ),
    **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu"), ("memory", _NODES)),
    **dict.fromkeys(("core-spec", "thread-spec", "threads-per-core", "cpus-per-gpu"), (_NODES,)),
    "partition": ("partition",),
    "qos": ("qos",),
    "reservation": ("reservation",),
    "time": ("time limit", "timelimit"),
    **dict.fromkeys(("tres-bind", "tres-per-task"), ("trackable resource",)),
    "wckey": ("wckey",),
}
_MAX_SHOWN = 60

ENVIRONMENT = " of the environment"
"""Mark of a message that names variables."""


def blamed_variables(command: str, message: str, env: Mapping[str, str], options: Collection[str] = ()) -> list[str]:
    """Return the variables behind a refusal, as ``NAME=value``; the most certain ones only.

    Parameters
    ----------
    command : str
        ``sbatch`` or ``srun``.
    message : str
        Text of the refusal.
    env : dict
        Environment of the command.
    options : sequence of str
        Long names of the options on its command line: they count over variables.

    Returns
    -------
    list of str
    """
    read = {
        name: _option(name)
        for name in env
        if env[name] and (name.startswith(_PREFIXES[command]) or (command == "sbatch" and name in _SHARED))
    }
    read = {name: option for name, option in read.items() if option not in options}
    text = message.lower()
    ways = (
        lambda name, option: re.search(rf"--{re.escape(option)}(?![\w-])", text) or name.lower() in text,
        lambda name, option: len(env[name]) > 1 and re.search(rf"(?<!\w){re.escape(env[name].lower())}(?!\w)", text),
        lambda name, option: any(sign in text for sign in _SIGNS.get(option, (f" {option.replace('-', ' ')} ",))),
    )
    for fits in ways:
        found = sorted(name for name, option in read.items() if fits(name, option))
        if found:
            return [f"{name}={_shown(env[name])}" for name in found]
    return []


def _option(name: str) -> str:
    word = name.split("_", 1)[1]
    return _OPTIONS.get(word, word.lower().replace("_", "-"))


def _shown(value: str) -> str:
    return value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}…"
