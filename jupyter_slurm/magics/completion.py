"""What the Tab key offers in the line of a magic: options, our words, partitions. No key press asks Slurm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_slurm.domain.options import OptionTable
from jupyter_slurm.errors import OptionError
from jupyter_slurm.handles.facts import partitions
from jupyter_slurm.handles.options import known_table
from jupyter_slurm.magics.allocate import WORDS as ALLOCATION_WORDS
from jupyter_slurm.magics.batch import CELL_WORDS, FILE_WORDS
from jupyter_slurm.magics.steps import CELL_WORDS as STEP_WORDS
from jupyter_slurm.magics.steps import LINE_WORDS

__all__ = ["complete"]


def complete(line: str, token: str) -> dict[str, Any]:
    """Return what could stand at the cursor, in IPython's words.

    Parameters
    ----------
    line : str
        The line up to the cursor, the magic's name included.
    token : str
        The part of it that a completion replaces.
    """
    from IPython.core.completer import SimpleCompletion

    found = [SimpleCompletion(text) for text in _candidates(line) if text.startswith(token)]
    return {"completions": found, "ordered": True, "suppress": True}


def _candidates(line: str) -> list[str]:
    """Return what may stand there; nothing where files and Python's names are as good a guess."""
    magic, *words = line.split()
    last = words.pop() if words and not line[-1].isspace() else ""
    if "--" in words:
        return []  # arguments of the script
    table = known_table({"%salloc": "sbatch"}.get(magic, magic.lstrip("%")))
    option = _valued(table, words, last)
    if option is not None:
        return partitions() if option in ("partition", "partitions") else []
    if last.startswith("-") and "=" not in last:
        return [f"--{name}" for spec in table.specs for name in spec.names]
    if "=" in last:
        return []
    anywhere: dict[str, Mapping[str, bool | None]] = {
        "%%sbatch": CELL_WORDS,
        "%%srun": STEP_WORDS,
        "%salloc": ALLOCATION_WORDS,
    }
    if magic in anywhere:
        return _own(anywhere[magic], words)
    first: dict[str, Mapping[str, bool | None]] = {"%sbatch": FILE_WORDS, "%srun": LINE_WORDS}
    if magic in first and last and not any(word.startswith("-") for word in words):
        return _own(first[magic], words)
    return []


def _valued(table: OptionTable, words: Sequence[str], last: str) -> str | None:
    """Return the option whose value is being typed: behind its equals sign, or as the word after it."""
    try:
        if last.startswith("--") and "=" in last:
            return table.take([last], 0)[0].name
        if words and table.is_option(words[-1]):
            alone = table.take([words[-1], last], 0)[-1]
            return alone.name if alone.value is last else None
    except OptionError:
        pass
    return None


def _own(ours: Mapping[str, bool | None], words: Sequence[str]) -> list[str]:
    used = {word.partition("=")[0] for word in words}
    return [word + ("=" if takes_value else "") for word, takes_value in ours.items() if word not in used]
