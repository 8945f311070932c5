"""Cells that IPython would read otherwise: comments above a cell magic, and ``%slurm WORD?``."""

from __future__ import annotations

import re

__all__ = ["move_magic_up", "read_question"]

_MAGIC_LINE = re.compile(r"%%(?P<name>sbatch|srun|remote|slurm)(?:\s|$)")
_QUESTION = re.compile(r"\s*%{1,2}slurm\s+(?P<word>[a-z]+)\s*\?{1,2}\s*")
_SKIPPED_LINE = re.compile(r"\s*(?:#(?!!).*)?$")


def move_magic_up(lines: list[str]) -> list[str]:
    """Move the line of a cell magic above blank lines and comments; the cell keeps its number of lines.

    IPython calls it for each cell before its own transformations (``input_transformers_cleanup``).

    Parameters
    ----------
    lines : list of str
        Lines of the cell with their ends.

    Raises
    ------
    SyntaxError
        Code stands above the magic.
    """
    at = next((number for number, line in enumerate(lines) if _MAGIC_LINE.match(line)), 0)
    if at == 0 or lines[0].startswith("%%"):  # another cell magic may have such a line in its text
        return lines
    above = lines[:at]
    code = next((number for number, line in enumerate(above) if not _SKIPPED_LINE.match(line.rstrip("\n"))), None)
    if code is not None:
        if _is_python(lines):  # the line stands in a string
            return lines
        raise SyntaxError(
            f"%%{_name(lines[at])} must be the first line of its cell. Move the code above it to a cell of its own.",
            ("<cell>", at + 1, 1, lines[at]),
        )
    magic = lines[at] if lines[at].endswith("\n") else f"{lines[at]}\n"
    body = lines[at + 1 :]
    if body and body[0].startswith("#!"):  # the first line of a script says what runs it
        return [magic, body[0], *above, *body[1:]]
    return [magic, *above, *body]


def read_question(lines: list[str]) -> list[str]:
    """Turn ``%slurm WORD?`` into a request for the help of WORD: IPython would look for an object of that name."""
    found = _QUESTION.fullmatch(lines[0]) if len(lines) == 1 else None
    return lines if found is None else [f"%slurm {found['word']} --help\n"]


def _name(line: str) -> str:
    found = _MAGIC_LINE.match(line)
    return found["name"] if found else ""


def _is_python(lines: list[str]) -> bool:
    """Return whether a cell is Python, apart from its line magics and shell commands."""
    import ast

    plain = [re.sub(r"^(\s*)(?:%(?!%)|!).*", r"\1pass", line) for line in lines]
    try:
        ast.parse("".join(plain))
    except SyntaxError:
        return False
    return True
