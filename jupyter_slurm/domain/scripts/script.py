"""Cells and batch scripts: the kind of a cell, its ``#SBATCH`` lines, and the script that runs a Python cell.

Source: sbatch(1), and the observed behaviour of sbatch 22.05 and 26.05.
"""

from __future__ import annotations

import ast
import builtins
import re
import shlex
import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Final, Literal

from jupyter_slurm.domain.scripts.header_words import BLANKS, header_words
from jupyter_slurm.domain.scripts.pbs_and_lsf_headers import other_lines
from jupyter_slurm.errors import CellError
from jupyter_slurm.runner.cell.sweep_parameters import INDEX

__all__ = [
    "MAX_SCRIPT_BYTES",
    "RUNNER_NAMES",
    "classify",
    "head_lines",
    "header_lines",
    "header_lines_by_number",
    "header_options",
    "ignored_headers",
    "interpreter_words",
    "job_script",
    "quote_argv",
]

Kind = Literal["script", "python"]

RUNNER_NAMES: Final = frozenset({*dir(builtins), "In", "Out", "display", "exit", "get_ipython", "quit", INDEX})
"""Names that a cell has in any job: of Python, of IPython, and of the runner."""

MAX_SCRIPT_BYTES = 4 * 1024 * 1024
"""Bytes of the largest script.

Slurm refuses scripts over ``max_script_size`` (4 MiB by default) with a misleading message.
"""

_VERSION = "-c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'"
_SHEBANG_HINT = "Add #!/bin/bash as its first line if it is a shell script."
_COMMAND_LIKE = (
    *(ast.Attribute, ast.BinOp, ast.Compare, ast.Constant, ast.Expr, ast.Name, ast.UnaryOp),
    *(ast.cmpop, ast.expr_context, ast.operator, ast.unaryop),
)
_MISPLACED_SHEBANG = re.compile(r"\ufeff?\s*#!\s*/")
_HEADER = re.compile(r"#SBATCH|#SLURM")  # the old name still counts; sbatch prints a warning


def quote_argv(argv: Sequence[str]) -> str:
    """Quote words as shell text. Every text that becomes shell passes through this function.

    Raises
    ------
    CellError
        A word contains a NUL byte, which a command line cannot contain.
    """
    if any("\0" in word for word in argv):
        raise CellError("A command line cannot hold a NUL byte.", hint="Remove the NUL byte.")
    return shlex.join(argv)


def classify(cell: str, transform: Callable[[str], str] = str, names: Container[str] | None = None) -> Kind:
    """Return the kind of a cell: a script if its first line begins with ``#!``, else Python that compiles.

    Parameters
    ----------
    cell : str
        Text of the cell.
    transform : callable, optional
        Converts IPython's magics and ``!commands`` to Python.
    names : container of str, optional
        Names that the cell has without an assignment. A cell that would fail because its first line has another name
        is refused: ``nvidia-smi`` is Python, too. By default names are not checked.

    Raises
    ------
    CellError
        The cell is neither, is empty, or is not acceptable to Slurm. ``details["variable"]`` has the missing name.
    """
    if not cell.strip():
        raise CellError("The cell is empty.", hint="Write a script that begins with #!/bin/bash, or Python.")
    if "\0" in cell:
        line = cell[: cell.index("\0")].count("\n") + 1
        raise CellError(f"Line {line} of the cell holds a NUL byte, which Slurm refuses.", hint="Remove the NUL byte.")
    if _size(cell) > MAX_SCRIPT_BYTES:
        raise CellError("The cell is longer than 4 MiB, which Slurm refuses.", hint="Put its data into a file.")
    if cell.startswith("#!"):
        if "\r\n" in cell:
            raise CellError(
                "The script has Windows line ends (CR LF), which Slurm refuses.", hint="Save it with Unix line ends."
            )
        return "script"
    if _MISPLACED_SHEBANG.match(cell):
        raise CellError(
            "The #! is not at the beginning of the cell, so Slurm would not accept the cell as a script.",
            hint="Delete everything before it, including blank lines.",
        )
    text, tree = _parse_python(cell, transform)
    if names is not None:
        _check_names(text, tree, names)
    return "python"


def _size(cell: str) -> int:
    """Return the size of a cell in bytes. A byte that was not UTF-8 in a file is restored (PEP 383)."""
    try:
        return len(cell.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        line = cell.count("\n", 0, error.start) + 1
        text = f"Line {line} of the cell holds half a character ({cell[error.start]!r}), which a file cannot hold."
        raise CellError(text, hint="Remove it.", line=line) from None


def _parse_python(cell: str, transform: Callable[[str], str]) -> tuple[str, ast.Module]:
    """Return a cell as Python, and its syntax tree."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the job shows the warnings once
            text = transform(cell)
            compile(text, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            return text, ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        number = getattr(error, "lineno", None)
        lines = cell.splitlines()
        shown = lines[number - 1].strip() if number and number <= len(lines) else ""
        where = f" (line {number}: {shown[:80]!r})" if number else ""
        reason = getattr(error, "msg", None) or str(error)
        raise CellError(
            f"The cell is neither a script nor Python: {reason}{where}.", hint=_SHEBANG_HINT, line=number
        ) from None


def _check_names(text: str, tree: ast.Module, names: Container[str]) -> None:
    """Refuse a cell whose first statements need a name that it does not have, as the commands of a shell do.

    The check ends at the first statement that is more than names, constants and operators, and may bind a name.
    """
    for statement in tree.body:
        nodes = list(ast.walk(statement))
        if not isinstance(statement, ast.Expr) or not all(isinstance(node, _COMMAND_LIKE) for node in nodes):
            return
        used = [(node.lineno, node.col_offset, node.id) for node in nodes if isinstance(node, ast.Name)]
        for number, _, name in sorted(used):
            if name not in names and not name.startswith("_"):
                shown = text.split("\n")[number - 1].strip()[:80]
                raise CellError(
                    f"The cell would fail at {shown!r}, because it has no variable {name}.",
                    hint=_SHEBANG_HINT,
                    variable=name,
                )


def header_options(text: str) -> list[str]:
    """Return the words of the ``#SBATCH`` lines as sbatch parses them.

    The lines count until the first line that is neither blank nor a comment. Quotes group, and a backslash takes the
    next character literally (also within quotes). An unquoted ``#`` ends the line, and so does an empty word. ``#SBATCH
    hetjob`` becomes :data:`~jupyter_slurm.domain.options.option_parser.HET`, as on the command line. A quoted colon
    is a word of its own: :class:`~jupyter_slurm.domain.options.option_parser.QuotedColon`.

    Raises
    ------
    CellError
        A quote is not closed, or a word begins with a colon: sbatch stops at both. ``details["line"]`` has the line.
    """
    return [word for number, line in header_lines_by_number(text) for word in header_words(line, number)]


def header_lines(text: str) -> list[str]:
    """Return the ``#SBATCH`` lines that count, and other lines that Slurm reads, for use in another script."""
    return [*(f"#SBATCH{line}" for _, line in header_lines_by_number(text)), *other_lines(text)]


def interpreter_words(text: str) -> list[str]:
    """Return the interpreter in a script's first line, as the kernel parses it: a program and at most one argument."""
    return text.split("\n", 1)[0][2:].strip().split(None, 1) or ["/bin/sh"]


def ignored_headers(text: str) -> list[int]:
    """Return the numbers of the ``#SBATCH`` lines that Slurm ignores because they follow the first command."""
    counted = {number for number, _ in header_lines_by_number(text)}
    lines = enumerate(text.split("\n"), 1)
    return [number for number, line in lines if line.startswith("#SBATCH") and number not in counted]


def header_lines_by_number(text: str) -> list[tuple[int, str]]:
    """Return the ``#SBATCH`` lines that count: their number, and the text after the mark."""
    return [
        (number, line[mark.end() :].rstrip("\r")) for number, line in head_lines(text) if (mark := _HEADER.match(line))
    ]


def head_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the blank lines and comments before the first command, each with its number."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip(BLANKS) and not line.lstrip(BLANKS).startswith("#"):
            return
        yield number, line


def job_script(argv: Sequence[str], *, header: str = "", environment: str = "", otherwise: str = "") -> str:
    """Return the batch script that runs a program with the script's own arguments.

    Parameters
    ----------
    argv : sequence of str
        The interpreter (a path or a name) and its first arguments.
    header : str
        Text whose ``#SBATCH`` lines are copied.
    environment : str
        Shell text (bash) that activates the environment; see
        :class:`jupyter_slurm.domain.scripts.environments.Environment`.
    otherwise : str
        Interpreter to use if the node does not have the first one, for a program that any Python can run.

    Returns
    -------
    str
        A shell script: POSIX, or bash if it has an environment. If the node does not have the interpreter, the script
        prints an error and exits 127. If the interpreter is too old, it prints an error and exits 1.
    """
    lines = ["#!/bin/bash" if environment else "#!/bin/sh", *header_lines(header)]
    if environment:
        lines.append(f"{{\n{environment}}} >&2")  # its output is not output of the cell
    python, advice = quote_argv(argv[:1]), "Use python=PATH with a Python that the node sees"
    if otherwise:
        lines.append(f'python={python}; command -v "$python" >/dev/null 2>&1 || python={quote_argv([otherwise])}')
        python, advice = '"$python"', "The job needs one to start"
    lines += [
        *_refusals(python, advice),
        f'exec {python} {quote_argv(argv[1:])} "$@"',
    ]
    return "\n".join(lines) + "\n"


def _refusals(python: str, advice: str) -> list[str]:
    """Return the lines that end the script if the interpreter is not Python, or too old to read the runner's files.

    A program that is not Python may exit 0 for any argument, so that the cell would seem to have run. A Python that
    needs its variables to start is also tried without ``-E``.
    """
    node, version = "${SLURMD_NODENAME:-$(uname -n)}", f"$({python} -ES {_VERSION} 2>/dev/null)"
    return [
        f"if ! command -v {python} >/dev/null 2>&1; then",
        f"    printf '%s\\n' \"Node {node} has no \"{python} '{advice}' >&2",
        "    exit 127",
        "fi",
        f"case {version} in 2.* | 3.[0-7])",
        f"    printf '%s\\n' \"Python {version} of node {node} is too old for cells\" '{advice}, 3.8 or newer' >&2",
        "    exit 1 ;;",
        f"*[0-9].[0-9]*) ;; *) case $({python} {_VERSION}) in *[0-9].[0-9]*) ;; *)",
        f"    printf '%s\\n' \"Node {node} has no working Python at \"{python} '{advice}' >&2",
        "    exit 1 ;;",
        "esac; esac",
    ]
