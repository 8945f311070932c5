"""Mark of the faulty part of a magic line in an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from jupyter_slurm.domain.magic_line.parser import MagicLine
from jupyter_slurm.domain.options.option_parser import Option, OptionTable
from jupyter_slurm.domain.scripts.header_words import header_words
from jupyter_slurm.domain.scripts.pbs_and_lsf_headers import other_options
from jupyter_slurm.errors import SlurmError

__all__ = ["add_blame", "blamed", "pointing_at", "underline"]

_GPUS = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
_PER_NODE_OPTIONS = ("ntasks-per-node", "mincpus")

# Messages of sbatch (slurm_strerror and its own), and the options that they concern.
_REFUSED_OPTIONS: Sequence[tuple[str, Sequence[str]]] = (
    ("partition", ("partition",)),
    ("account", ("account",)),
    ("qos", ("qos",)),
    ("generic resource|gres", _GPUS),
    ("time limit", ("time", "time-min", "qos", "partition")),
    ("memory", _MEMORY),
    (
        "node configuration",
        ("constraint", "nodelist", *_GPUS, *_MEMORY, "cpus-per-task", "ntasks", "nodes", *_PER_NODE_OPTIONS),
    ),
    ("more processors|cpu count", ("ntasks", "cpus-per-task", "ntasks-per-node", "nodes")),
    ("node count|too many nodes", ("nodes",)),
    ("node name|invalid node", ("nodelist", "exclude")),
    ("dependency", ("dependency",)),
    ("reservation", ("reservation",)),
    ("feature|constraint", ("constraint",)),
    ("license", ("licenses",)),
    ("array", ("array",)),
    ("burst buffer", ("bb", "bbf")),
    ("working directory|chdir", ("chdir",)),
    ("begin time|date", ("begin", "deadline")),
    ("signal", ("signal",)),
    ("wckey", ("wckey",)),
)

_HEADER = re.compile(r"#SBATCH|#SLURM")
_DIRECTIVE = re.compile(r"Invalid directive found in batch script: (.+)")


def underline(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return the line with marks below the faulty parts.

    Parameters
    ----------
    text : str
        The line as typed.
    spans : sequence of (int, int)
        Start and end of each part, in characters.
    """
    marks = [" "] * len(text)
    for start, end in spans:
        marks[start : max(end, start + 1)] = "^" * (max(end, start + 1) - start)
    shown = "".join(char if char.isprintable() else " " for char in text)
    return f"    {shown}\n    {''.join(marks).rstrip()}"


@contextmanager
def pointing_at(prefix: str, line: str) -> Iterator[None]:
    """Add the line, with its faulty part marked, to an error with ``details["span"]``."""
    try:
        yield
    except SlurmError as error:
        span = error.details.get("span")
        if span:
            _add(error, underline(prefix + line, [(span[0] + len(prefix), span[1] + len(prefix))]))
        raise


def add_blame(error: SlurmError, prefix: str, line: str, parsed: MagicLine, cell: str) -> None:
    """Add the faulty part of the line, or the faulty ``#SBATCH`` line, to a refusal of sbatch."""
    said = str(error.details.get("stderr") or error.message)
    if re.search(r"\bS(?:BATCH|LURM)_[A-Z_]+=", error.hint or ""):
        return  # an environment variable is the cause, not the line
    is_directive = _DIRECTIVE.search(said) is not None  # a word of a header line, which no option of the line explains
    options = [] if is_directive else blamed(said, parsed.parsed.options)
    spans = [(s + len(prefix), e + len(prefix)) for option in options for s, e in _spans(option, parsed)]
    if spans:
        _add(error, underline(prefix + line, spans))
    if spans and not _named(said):
        return  # a refusal of slurmctld concerns the value that counts, which is that of the line
    word = str(error.details.get("option") or "")  # as typed, for a word that is not an option of sbatch
    place = "script" if prefix.startswith("%sbatch") else "cell"
    for number, text in enumerate(cell.split("\n"), 1):
        if found := _in_header(said, text, word):
            _add(error, f"line {number} of the {place}:\n" + underline(text, found))
            if not _named(said):
                return


def blamed(message: str, options: Sequence[Option]) -> list[Option]:
    """Return the options that a message concerns: the named ones, else those whose value or subject it names."""
    low = message.lower()
    if found := [option for option in options if option.name in _named(message)]:
        return found
    quoted = {text.strip("\"'.,:") for text in re.findall(r"\S+", message)}
    if found := [option for option in options if option.value and option.value in quoted]:
        return found
    for pattern, names in _REFUSED_OPTIONS:
        if re.search(pattern, low) and (found := [option for option in options if option.name in names]):
            return found
    return []


def _spans(option: Option, parsed: MagicLine) -> list[tuple[int, int]]:
    """Return the positions of an option's words in the line."""
    position = 0
    for candidate in parsed.parsed.options:
        count = len(candidate.tokens)
        if candidate is option:
            found = parsed.spans[position : position + count] or parsed.spans[position - 1 : position]
            return [(found[0][0], found[-1][1])] if found else []
        position += count
    return []


def _named(message: str) -> set[str]:
    """Return the options that a message names."""
    return set(re.findall(r"--([a-z][a-z-]+)", message.lower()))


def _in_header(message: str, text: str, word: str) -> list[tuple[int, int]]:
    """Return the positions of the faulty parts in a line of a script."""
    if text.startswith(("#PBS", "#BSUB")):
        meant = [Option(name, value, (), 0) for name, value in other_options(text).items()]
        return [(0, len(text.rstrip()))] if blamed(message, meant) else []
    if not (mark := _HEADER.match(text)):
        return []
    directive = _DIRECTIVE.search(message)
    if directive or word.startswith("-"):
        found = re.search(rf"(?<![^\s]){re.escape(directive[1] if directive else word)}(?!\S)", text[mark.end() :])
        return [(found.start() + mark.end(), found.end() + mark.end())] if found else []
    try:
        options = OptionTable.for_command("sbatch").split(list(header_words(text[mark.end() :], 0))).options
    except SlurmError:
        return []  # an option of a plugin
    return [_span(option, options, text, mark.end()) for option in blamed(message, options)]


def _span(option: Option, options: Sequence[Option], text: str, start: int) -> tuple[int, int]:
    """Return the position of an option in a header line, up to the next option: quotes are not among its words."""
    starts = []
    for one in options:
        start = max(text.find(one.tokens[0].partition("=")[0], start), start) if one.tokens else start
        starts.append(start)
    at = options.index(option)
    end = next((later for later in starts[at + 1 :] if later > starts[at]), len(text))
    return starts[at], len(text[:end].rstrip())


def _add(error: SlurmError, block: str) -> None:
    error.message = f"{error.message}\n{block}"
    error.args = (error.message,)
