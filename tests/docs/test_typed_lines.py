"""Lines that a reader types: commands and magics in the documentation, in hints and in help, read by the real parsers."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jupyter_slurm
from jupyter_slurm.cli import main as command_line
from jupyter_slurm.client.environments.environment import KEYWORDS as ENVIRONMENT_KEYWORDS
from jupyter_slurm.client.images.image import KEYWORDS as IMAGE_KEYWORDS
from jupyter_slurm.client.kernels.kernel import KEYWORDS as KERNEL_KEYWORDS
from jupyter_slurm.client.sessions.launch import WORDS as LAUNCH_KEYWORDS
from jupyter_slurm.domain.magic_line.parser import command_arguments, parse_cell_line, parse_line_magic
from jupyter_slurm.domain.magic_line.shell_operators import without_input
from jupyter_slurm.domain.magic_line.tokenizer import tokenize
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.magics import remote, salloc, sbatch, slurm, srun
from jupyter_slurm.magics.help import _TEXTS as SLURM_COMMANDS

ROOT = Path(__file__).parents[2]
PACKAGE = Path(jupyter_slurm.__file__).parent
PAGES = [
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]
PLACEHOLDER_VALUES = {"COMMAND": "jobs", "PORT": "8888", "JOB": "12345", "JOBID": "12345"}
_BLOCK = re.compile(
    r"^(?P<fence>`{3,})\{?(?P<kind>\w+)\}?[^\n]*\n(?P<text>.*?)^(?P=fence)\s*$", re.MULTILINE | re.DOTALL
)
_MAGIC = re.compile(r"(?:[\w.]+\s*=\s*)?(?P<line>%%?(?:sbatch|salloc|srun|remote|slurm|s\w+)\b.*)")


def with_values(line: str) -> str:
    """Return a line with a value for each placeholder in capitals or braces."""
    line = re.sub(r"\{[^{}]*\}|<[^<>]*>", "x", line)
    return re.sub(r"(?<![\w=:./$-])[A-Z][A-Z_]+(?![\w=:(])", lambda match: PLACEHOLDER_VALUES.get(match[0], "x"), line)


def find_commands(text: str) -> Iterator[str]:
    """Yield the ``jupyter slurm`` lines of a page: of console blocks, and complete ones in the text."""
    prose = _BLOCK.sub("", text)
    for match in _BLOCK.finditer(text):
        if match["kind"] in ("console", "terminal", "bash", "sh"):
            joined = match["text"].replace("\\\n", " ")
            yield from (line[2:] for line in joined.splitlines() if re.match(r"\$ .*\bjupyter slurm\b", line))
    yield from re.findall(r"`(jupyter slurm [^`]+)`", prose)


def find_magics(text: str) -> Iterator[str]:
    """Yield the lines of magics in cells."""
    for match in _BLOCK.finditer(text):
        if match["kind"] in ("ipython", "cell", "ipython3"):
            for line in match["text"].splitlines():
                if found := _MAGIC.match(line):
                    yield found["line"]


def check_command(line: str, is_mention: bool = True) -> None:
    """Read a line with the parser of the command line. A mention in a text may leave out arguments."""
    inner = re.search(r"\$\((jupyter slurm [^)]*)\)", line)  # eval "$(jupyter slurm embedded env)"
    words = shlex.split(with_values(inner[1] if inner else line), comments=True)
    start = next(number for number, word in enumerate(words) if words[number : number + 2] == ["jupyter", "slurm"])
    words = words[start + 2 :]
    ends = [number for number, word in enumerate(words) if word in ("|", ">", "&&", ";", "&", "2>&1")]
    words = words[: ends[0]] if ends else words
    command = next((word for word in words if not word.startswith("-")), None)
    if command and "|" in command:  # `jupyter slurm connect|disconnect` names two commands
        for one in command.split("|"):
            check_command(line.replace(command, one, 1))
        return
    _, parser = command_line._parser(command)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            args = parser.parse_args([part for word in words for part in word.split("|")[:1]])
    except SystemExit as ended:
        if ended.code and not (is_mention and "arguments are required" in printed.getvalue()):
            raise ValueError(printed.getvalue().splitlines()[-1]) from None
        return
    check_rest(words, getattr(args, "words", None) or [])


def check_rest(words: list[str], rest: list[str]) -> None:
    """Read the rest of a line that has options of sbatch and keywords."""
    keywords = {
        "launch": LAUNCH_KEYWORDS,
        "kernel": KERNEL_KEYWORDS,
        "image": IMAGE_KEYWORDS,
        "env": ENVIRONMENT_KEYWORDS,
    }.get(words[0])
    if keywords is None or not rest or words[1:2] in (["list"], ["remove"], ["switch"], ["follow"]):
        return
    start = next(
        (n for n, word in enumerate(rest) if word.startswith("-") or "=" in word or word in keywords), len(rest)
    )
    line = shlex.join(rest[start:])
    parse_cell_line(re.sub(r"'([\w.]+=)", r"\1'", line), OptionTable.for_command("sbatch"), keywords)


def check_magic(line: str) -> None:
    """Read a line with the parser of its magic."""
    name, _, rest = line.partition(" ")
    is_cell, name = name.startswith("%%"), name.lstrip("%").rstrip("?")
    table, lookup = (
        OptionTable.for_command(name if name in SLURM_COMMANDS else "srun" if name in ("srun", "remote") else "sbatch"),
        lambda text: "x",
    )
    if name == "sbatch":
        parse = parse_cell_line if is_cell else parse_line_magic
        rest = rest if is_cell else without_input(rest, lookup)[0]
        parse(rest, table, sbatch.CELL_KEYWORDS if is_cell else sbatch.FILE_KEYWORDS, lookup)
    elif name == "salloc":
        if rest.split()[:1] != ["release"]:
            parse_cell_line(rest, table, salloc.KEYWORDS, lookup)
    elif name == "srun":
        parse = parse_cell_line if is_cell else parse_line_magic
        parse(rest, table, srun.CELL_KEYWORDS if is_cell else srun.LINE_KEYWORDS, lookup)
    elif name == "remote":
        parse_cell_line(rest, table, remote.CELL_KEYWORDS if is_cell else remote.LINE_KEYWORDS, lookup)
    elif name == "slurm":
        check_slurm(rest)
    else:
        assert name in SLURM_COMMANDS, f"%{name} is not a magic"
        command_arguments(rest, table, lookup, {})


def check_slurm(rest: str) -> None:
    """Read the line of ``%slurm``."""
    words = [token.text for token in tokenize(rest)] or ["list"]
    assert words[0] in slurm.USAGES
    if words[0] == "launch":
        named = len(words) > 1 and not (words[1].startswith("-") or "=" in words[1] or words[1] in LAUNCH_KEYWORDS)
        line = rest.split(maxsplit=2 if named else 1)
        parse_cell_line(
            line[-1] if len(line) > 1 + named else "",
            OptionTable.for_command("sbatch"),
            LAUNCH_KEYWORDS,
            lambda text: "x",
        )
    elif words[0] in ("use", "disconnect"):
        assert len(words) == 2


def faults_of(lines: Iterator[str], check: Any) -> list[str]:
    """Return a line for each typed line that its parser refuses."""
    found = []
    for line in lines:
        if "…" in line or "..." in line or line.endswith("?"):
            continue
        try:
            check(line)
        except (SlurmError, AssertionError, StopIteration, ValueError) as error:
            found.append(f"{line}\n    {error}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_of_a_page_are_valid(page: Path) -> None:
    text = page.read_text("utf-8")
    found = [*faults_of(find_commands(text), check_command), *faults_of(find_magics(text), check_magic)]
    assert not found, "\n".join(found)


def find_product_lines() -> Iterator[str]:
    """Yield the quoted commands in texts of the package: hints, messages and help."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                text = "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            yield from re.findall(r"`(jupyter slurm [^`\n]+)`", text)


def test_commands_in_hints_and_help_are_valid() -> None:
    lines = sorted({*find_product_lines()})
    assert len(lines) > 20
    found = faults_of(iter(lines), check_command)
    assert not found, "\n".join(found)


def test_wrong_lines_are_refused() -> None:
    text = (
        "```console\n$ jupyter slurm launch --no-such-option x\n$ jupyter slurm nothing\n```\n"
        "```ipython\n%%sbatch --gpu 1 wiat\n%slurm used mycluster\n```\n"
    )
    assert len(faults_of(find_commands(text), check_command)) == 2
    assert len(faults_of(find_magics(text), check_magic)) == 2
