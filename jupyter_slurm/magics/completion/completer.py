"""Completion of a magic line: options, keywords, names of the cluster. No key press causes a query to Slurm."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypedDict

from jupyter_slurm.client.clusters import name_completion
from jupyter_slurm.client.clusters.option_tables import known_table, named_options
from jupyter_slurm.client.images.image import WORDS as IMAGE_WORDS
from jupyter_slurm.client.kernels.kernelspecs import listed
from jupyter_slurm.client.sessions.launch import WORDS as LAUNCH_WORDS
from jupyter_slurm.domain.cluster_facts import NamedEntity
from jupyter_slurm.domain.magic_line.parser import tokenize
from jupyter_slurm.domain.options.choices import Choices, choices_for_operand, choices_for_option, is_path
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.errors import OptionError, UsageError
from jupyter_slurm.magics import COMMANDS
from jupyter_slurm.magics.completion.values import Suggestion, values_of_word
from jupyter_slurm.magics.help import about_words
from jupyter_slurm.magics.kernels import ACTS
from jupyter_slurm.magics.remote import CELL_WORDS as REMOTE_WORDS
from jupyter_slurm.magics.remote import LINE_WORDS as PROCESS_WORDS
from jupyter_slurm.magics.salloc import WORDS as ALLOCATION_WORDS
from jupyter_slurm.magics.sbatch import CELL_WORDS, FILE_WORDS
from jupyter_slurm.magics.slurm import USES
from jupyter_slurm.magics.srun import CELL_WORDS as STEP_WORDS
from jupyter_slurm.magics.srun import LINE_WORDS

__all__ = ["complete"]

_MOST = 500  # more than a front end shows
_LONGEST = 72  # characters of the description of a name

# Keywords allowed anywhere in the line, and those allowed only at its start.
_ANYWHERE: Final[dict[str, Mapping[str, bool | None]]] = {
    "%%sbatch": CELL_WORDS,
    "%%srun": STEP_WORDS,
    "%%remote": REMOTE_WORDS,
    "%remote": PROCESS_WORDS,
    "%salloc": ALLOCATION_WORDS,
    "%slurm launch": LAUNCH_WORDS,
    "%slurm image": IMAGE_WORDS,
}
_FIRST: Final[dict[str, Mapping[str, bool | None]]] = {"%sbatch": FILE_WORDS, "%srun": LINE_WORDS}
# The holder of an allocation or a session is a batch job, a process is a step.
_TABLES: Final = {
    "salloc": "sbatch",
    "slurm launch": "sbatch",
    "slurm image": "sbatch",
    "remote": "srun",
}


class MatcherResult(TypedDict, total=False):
    """What IPython takes from a matcher (its Matcher API, version 2)."""

    completions: Sequence[Any]
    matched_fragment: str
    ordered: bool
    suppress: bool


class _CursorContext(NamedTuple):
    """Context of the cursor: the magic, the words before, the unfinished word and its open quote."""

    magic: str
    words: list[str]
    raw: str
    text: str
    quote: str


def complete(shell: Any, line: str, cell: str) -> MatcherResult:
    """Return the completions at the cursor, in IPython's form.

    Parameters
    ----------
    shell : InteractiveShell
        Shell whose variables are offered.
    line : str
        The line up to the cursor, the magic's name included.
    cell : str
        The text of the cell below the line.
    """
    from IPython.core.completer import SimpleCompletion

    place = _place(line)
    offer = _offer(place, shell, cell) if place is not None else None
    if place is None or offer is None:
        return {"completions": []}
    fragment = offer.item if place.raw.endswith(offer.item) else ""  # not in a quoted word
    found: list[SimpleCompletion] = []
    for name, about in offer.names:
        rest = _escaped(name[len(offer.item) :], place.quote) if name.startswith(offer.item) else None
        if rest is not None and fragment + rest and len(found) < _MOST:
            found.append(SimpleCompletion(fragment + rest, type=_short(about)))
    given = found or ([] if _may_be_other(place) else _NoCompletion())
    return {"completions": given, "matched_fragment": fragment, "ordered": True, "suppress": True}


class _NoCompletion(list[Any]):
    """No completion at all: for an empty list, IPython offers names of Python and files instead."""

    def __len__(self) -> int:
        return 1


def _may_be_other(place: _CursorContext) -> bool:
    """Return whether a word may be a file or a Python name, because no completion begins with it."""
    return any(sign in place.text for sign in "/{$") or (place.magic in _FIRST and "=" not in place.text)


def _place(line: str) -> _CursorContext | None:
    """Parse an unfinished line; return None if it cannot be parsed."""
    at = start = 0
    quote = ""
    while at < len(line):
        char = line[at]
        if char == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char.isspace():
            start = at + 1
        at += 1
    raw = line[start:]
    try:
        magic, *words = [token.text for token in tokenize(line[:start])]
        text = "".join(token.text for token in tokenize(raw + quote))
    except (UsageError, ValueError):
        return None
    return _CursorContext(magic, words, raw, text, quote)


def _escaped(text: str, quote: str) -> str | None:
    """Return the rest of a name with the needed escapes; None if it cannot be typed."""
    if not text.isprintable() or (quote == "'" and "'" in text):
        return None
    special = {"": r"""([\s\\'"$`{])""", '"': r"""([\\"$`{])"""}.get(quote)
    return re.sub(special, r"\\\1", text) if special else text


def _short(text: str) -> str:
    """Shorten a description: front ends show it as the name's type, on one line."""
    shown = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return shown.replace(" ", "\N{NO-BREAK SPACE}") or "word"


def _offer(place: _CursorContext, shell: Any, cell: str) -> Suggestion | None:
    """Return the completions at the cursor; None if files and Python names are as likely."""
    magic, words, last = place.magic, place.words, place.text
    if magic == "%slurm":
        if words[:1] == ["image"] and len(words) < 3 + (words[1:2] == ["build"]):
            return _of_image(words, last)
        if words[:1] == ["kernel"]:
            return _of_kernel(words[1:], last, shell)
        if words[:1] not in (["launch"], ["image"]):
            return _of_slurm(words, last)
        magic, words = f"%slurm {words[0]}", words[1:]
    command = magic.lstrip("%")
    if "--" in words:
        return None  # arguments of the script
    table = known_table(_TABLES.get(command, command))
    if (valued := _valued(table, words, last)) is not None:
        chosen = _chosen(choices_for_option(table.command, *valued), valued[1], _typed(table, words, "partition"))
        return chosen or (None if is_path(table.command, valued[0]) else Suggestion(valued[1], []))
    if last.startswith("-"):  # the options of all versions, until those of the cluster are known
        offered = [] if "=" in last else name_completion.options(table.command) or named_options(table)
        return Suggestion(last, offered)
    ours = _own_words(magic, words, last)
    if ours is not None:
        name, equals, value = last.partition("=")
        if equals:
            return values_of_word(name, value, shell, cell) if name in ours else None
        return Suggestion(last, _words(magic, ours, words))
    if command in COMMANDS:
        return _chosen(choices_for_operand(command, _operands(table, words), last), last)
    return None


def _of_image(words: Sequence[str], last: str) -> Suggestion | None:
    """Return the completions of an image line: action, name and file. After a name, a file is as likely."""
    acts = {"build": "from a file or a Python", "pull": "from a registry", "list": "what there is", "remove": ""}
    return Suggestion(last, [NamedEntity(act, about) for act, about in acts.items()]) if len(words) == 1 else None


def _of_kernel(words: Sequence[str], last: str, shell: Any) -> Suggestion | None:
    """Return the completions of a kernel line: an action, a kernel that is not in the line yet, or variables."""
    name, equals, value = last.partition("=")
    if not words:
        return Suggestion(last, [NamedEntity(act, about) for act, about in ACTS.items()])
    if words[0] != "switch":
        return None
    if equals:
        return values_of_word("in", value, shell, "") if name == "in" else None
    is_named = any(not word.startswith("in=") for word in words[1:])
    kernels = [] if is_named else [NamedEntity(spec.name, spec.display_name) for spec in listed()]
    return Suggestion(last, [*kernels, NamedEntity("in=", "variables that come along")])


def _of_slurm(words: Sequence[str], last: str) -> Suggestion | None:
    if not words:
        return Suggestion(last, [NamedEntity(word, about) for word, about in USES.items()])
    return (
        Suggestion(last, name_completion.clusters()) if words[0] in ("use", "disconnect") and len(words) == 1 else None
    )


def _valued(table: OptionTable, words: Sequence[str], last: str) -> tuple[str, str] | None:
    """Return the option whose value is unfinished, and that value: joined to the option, or the next word."""
    try:
        if table.is_option(last):
            if last.startswith("--") and "=" not in last:
                return None
            option = table.take([last], 0)[-1]
            return (option.name, option.value or "") if option.value is not None else None
        if words and table.is_option(words[-1]):
            option = table.take([words[-1], last], 0)[-1]
            return (option.name, last) if option.value is last else None
    except OptionError:
        pass
    return None


def _typed(table: OptionTable, words: Sequence[str], option: str) -> str:
    """Return the value of an option in the line."""
    for known in (words, words[:-1]):  # the last word may be an option without its value
        with contextlib.suppress(OptionError):
            return next((one.value or "" for one in reversed(table.split(known).options) if one.name == option), "")
    return ""


def _chosen(choices: Choices | None, value: str, partition: str = "") -> Suggestion | None:
    """Return the completions of the last part of a value."""
    if choices is None:
        return None
    separators = choices.separators
    if "node" in choices.kinds and value.rfind("[") > value.rfind("]"):
        return None  # within the brackets of a node list
    item = re.split(f"[{re.escape(separators)}]", value)[-1] if separators else value
    is_gres = bool({"gres", "gpu", "gpu-of-node"}.intersection(choices.kinds))
    is_theirs = is_gres or bool({"memory", "time-limit"}.intersection(choices.kinds))
    names = name_completion.names(*choices.kinds, partition=partition if is_theirs else "")
    found = [*(NamedEntity(word, "") for word in choices.fixed), *names]
    if is_gres:
        depth = max(1, item.count(":"))
        found = [name for name in found if name.name.count(":") <= depth]
    return Suggestion(item, found)


def _own_words(magic: str, words: Sequence[str], last: str) -> Mapping[str, bool | None] | None:
    """Return the keywords if a keyword may follow."""
    if magic in _ANYWHERE:
        return _ANYWHERE[magic]
    if magic in _FIRST and last and all(word.partition("=")[0] in _FIRST[magic] for word in words):
        return _FIRST[magic]
    return None


def _words(magic: str, ours: Mapping[str, bool | None], words: Sequence[str]) -> list[NamedEntity]:
    used, about = {word.partition("=")[0] for word in words}, about_words(magic.lstrip("%"))
    return [
        NamedEntity(word + ("=" if takes_value else ""), about.get(word, ""))
        for word, takes_value in ours.items()
        if word not in used
    ]


def _operands(table: OptionTable, words: Sequence[str]) -> list[str]:
    """Return the words that are neither options nor their values."""
    try:
        return table.split(words).rest
    except OptionError:
        return list(words)
