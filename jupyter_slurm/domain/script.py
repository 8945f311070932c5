"""Cells and batch scripts: what a cell is, what its ``#SBATCH`` lines say, and the script that runs a Python cell.

Source: sbatch(1); ``_opt_batch_script`` and ``_get_next_option``'s behaviour, tried on 22.05 and 26.05.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Sequence
from typing import Literal

from jupyter_slurm.errors import CellError

__all__ = ["MAX_SCRIPT_BYTES", "classify", "header_options", "ignored_headers", "job_script", "quote_argv"]

Kind = Literal["script", "python"]

MAX_SCRIPT_BYTES = 4 * 1024 * 1024
"""Slurm refuses scripts over ``max_script_size`` (4 MiB unless the site says otherwise) with a misleading message."""

_ADD = "Add #!/bin/bash as its first line if it is a shell script."
_CELL_MAGIC = re.compile(r"^\s*(%%?|!)\s*\w*")


def quote_argv(argv: Sequence[str]) -> str:
    """Return words as shell text: the only place where text becomes shell.

    Raises
    ------
    CellError
        A word holds a NUL byte, which no command line can carry.
    """
    if any("\0" in word for word in argv):
        raise CellError("a NUL byte cannot be part of a command line", hint="Take it out.")
    return shlex.join(argv)


def classify(cell: str) -> Kind:
    """Tell what a cell is: a script when its first line begins with ``#!``, else Python that compiles.

    Raises
    ------
    CellError
        It is neither, it is empty, or Slurm could not take it.
    """
    if not cell.strip():
        raise CellError("the cell is empty", hint="Write a script that begins with #!/bin/bash, or Python.")
    if "\0" in cell:
        line = cell[: cell.index("\0")].count("\n") + 1
        raise CellError(f"line {line} of the cell holds a NUL byte, which Slurm refuses", hint="Take it out.")
    if len(cell.encode("utf-8", "surrogateescape")) > MAX_SCRIPT_BYTES:
        raise CellError("the cell is longer than 4 MiB, which Slurm refuses", hint="Put its data into a file.")
    if cell.startswith("#!"):
        if "\r\n" in cell:
            raise CellError(
                "the script has Windows line ends (CR LF), which Slurm refuses", hint="Save it with Unix line ends."
            )
        return "script"
    _check_python(cell)
    return "python"


def _check_python(cell: str) -> None:
    try:
        compile(cell, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        number = getattr(error, "lineno", None)
        lines = cell.splitlines()
        shown = lines[number - 1].strip() if number and number <= len(lines) else ""
        where = f" (line {number}: {shown[:80]!r})" if number else ""
        if _CELL_MAGIC.match(shown):
            raise CellError(
                f"a job's Python cell cannot use IPython's magics or !commands{where}",
                hint="Write it in plain Python (subprocess), or as a script: #!/bin/bash as the first line.",
            ) from None
        reason = getattr(error, "msg", None) or str(error)
        raise CellError(f"the cell is neither a script nor Python: {reason}{where}", hint=_ADD, line=number) from None


def header_options(text: str) -> list[str]:
    """Return the words of the ``#SBATCH`` lines as sbatch reads them.

    They count until the first line that is neither empty nor a comment. Quotes work as in a shell; what follows an
    unquoted ``#`` is a comment.

    Raises
    ------
    CellError
        A quote is not closed.
    """
    words: list[str] = []
    for number, line in _header_lines(text):
        words += _words(line, number)
    return words


def ignored_headers(text: str) -> list[int]:
    """Return the numbers of the ``#SBATCH`` lines that Slurm ignores, since they come after the first command."""
    counted = {number for number, _ in _header_lines(text)}
    lines = text.split("\n")
    return [number for number, line in enumerate(lines, 1) if line.startswith("#SBATCH ") and number not in counted]


def _header_lines(text: str) -> list[tuple[int, str]]:
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("#SBATCH") and (len(line) == 7 or line[7].isspace()):
            found.append((number, line[7:]))
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return found


def _words(line: str, number: int) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, "#"
    try:
        return list(lexer)
    except ValueError as error:
        raise CellError(
            f"line {number} of the cell: {str(error).lower()} in #SBATCH{line}", hint="Close the quote.", line=number
        ) from None


def job_script(argv: Sequence[str], *, header: str = "") -> str:
    """Return the batch script that runs a program with the script's own arguments.

    Parameters
    ----------
    argv : sequence of str
        The interpreter (a path or a name) and its first arguments.
    header : str
        Text whose ``#SBATCH`` lines are taken over.

    Returns
    -------
    str
        A POSIX shell script. Where the node does not have the interpreter, it says so in plain words and exits 127.
    """
    lines = ["#!/bin/sh", *(f"#SBATCH{line}" for _, line in _header_lines(header))]
    python = quote_argv(argv[:1])
    lines += [
        f"if ! command -v {python} >/dev/null 2>&1; then",
        f"    printf '%s\\n' \"node ${{SLURMD_NODENAME:-$(uname -n)}} has no \"{python} "
        "'say python=PATH with a Python that the node sees' >&2",
        "    exit 127",
        "fi",
        f'exec {quote_argv(argv)} "$@"',
    ]
    return "\n".join(lines) + "\n"
