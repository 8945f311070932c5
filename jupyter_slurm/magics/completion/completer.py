"""Completion of a magic line: options, keywords, names of the cluster. No key press causes a query to Slurm."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypedDict

from jupyter_slurm.client.clusters import name_completion
from jupyter_slurm.client.clusters.option_tables import local_option_table, named_options
from jupyter_slurm.client.environments.environment import KEYWORDS as ENVIRONMENT_WORDS
from jupyter_slurm.client.images.image import KEYWORDS as IMAGE_WORDS
from jupyter_slurm.client.kernels.kernelspecs import listed
from jupyter_slurm.client.sessions.launch import WORDS as LAUNCH_WORDS
from jupyter_slurm.client.transfers.request import COPY_KEYWORDS
from jupyter_slurm.domain.cluster_facts import NamedEntity
from jupyter_slurm.domain.magic_line.tokenizer import tokenize
from jupyter_slurm.domain.options.choices import Choices, choices_for_operand, choices_for_option, is_path
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.errors import OptionError, UsageError
from jupyter_slurm.magics import COMMANDS
from jupyter_slurm.magics.completion.keyword_values import Suggestion, keyword_values
from jupyter_slurm.magics.help import keyword_help
from jupyter_slurm.magics.kernels import ACTIONS
from jupyter_slurm.magics.remote import CELL_KEYWORDS as REMOTE_WORDS
from jupyter_slurm.magics.remote import LINE_KEYWORDS as PROCESS_WORDS
from jupyter_slurm.magics.salloc import KEYWORDS as ALLOCATION_WORDS
from jupyter_slurm.magics.sbatch import CELL_KEYWORDS, FILE_KEYWORDS
from jupyter_slurm.magics.slurm import USAGES
from jupyter_slurm.magics.srun import CELL_KEYWORDS as STEP_WORDS
from jupyter_slurm.magics.srun import LINE_KEYWORDS

__all__ = ["complete"]

_MAX_SUGGESTIONS = 500  # more than a front end shows
_MAX_TYPE_CHARACTERS = 72  # characters of the description of a name

# Keywords allowed anywhere in the line, and those allowed only at its start.
_KEYWORDS_ANYWHERE: Final[dict[str, Mapping[str, bool | None]]] = {
    "%%sbatch": CELL_KEYWORDS,
    "%%srun": STEP_WORDS,
    "%%remote": REMOTE_WORDS,
    "%remote": PROCESS_WORDS,
    "%salloc": ALLOCATION_WORDS,
    "%slurm launch": LAUNCH_WORDS,
    "%slurm env": ENVIRONMENT_WORDS,
    "%slurm image": IMAGE_WORDS,
    "%slurm copy": COPY_KEYWORDS,
}
_KEYWORDS_FIRST: Final[dict[str, Mapping[str, bool | None]]] = {"%sbatch": FILE_KEYWORDS, "%srun": LINE_KEYWORDS}
# The holder of an allocation or a session is a batch job, a process is a step.
_TABLES: Final = {
    "salloc": "sbatch",
    "slurm launch": "sbatch",
    "slurm env": "sbatch",
    "slurm image": "sbatch",
    "slurm copy": "sbatch",
    "remote": "srun",
}


class MatcherResult(TypedDict, total=False):
    """Result of a matcher for IPython (its Matcher API, version 2)."""

    completions: Sequence[Any]
    matched_fragment: str
    ordered: bool
    suppress: bool


class _CursorContext(NamedTuple):
    """Context of the cursor: the magic, the words before, the unfinished word and its open quote."""

    magic: str
    words_before: list[str]
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
        if rest is not None and fragment + rest and len(found) < _MAX_SUGGESTIONS:
            found.append(SimpleCompletion(fragment + rest, type=_type_text(about)))
    given = found or ([] if _may_be_python_name(place) else _NoCompletion())
    return {"completions": given, "matched_fragment": fragment, "ordered": True, "suppress": True}


class _NoCompletion(list[Any]):
    """No completion at all: for an empty list, IPython offers names of Python and files instead."""

    def __len__(self) -> int:
        return 1


def _may_be_python_name(place: _CursorContext) -> bool:
    """Return whether a word may be a file or a Python name, because no completion begins with it."""
    return any(sign in place.text for sign in "/{$") or (place.magic in _KEYWORDS_FIRST and "=" not in place.text)


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


def _type_text(text: str) -> str:
    """Shorten a description: front ends show it as the name's type, on one line."""
    shown = text if len(text) <= _MAX_TYPE_CHARACTERS else text[: _MAX_TYPE_CHARACTERS - 1] + "…"
    return shown.replace(" ", "\N{NO-BREAK SPACE}") or "word"


def _offer(place: _CursorContext, shell: Any, cell: str) -> Suggestion | None:
    """Return the completions at the cursor; None if files and Python names are as likely."""
    magic, words, last = place.magic, place.words_before, place.text
    if magic == "%slurm":
        if words[:1] == ["image"] and len(words) < 3 + (words[1:2] == ["build"]):
            return _suggest_image(words, last)
        if words[:1] == ["env"] and len(words) < 3:
            return _suggest_environment(words, last)
        if words[:1] == ["kernel"]:
            return _suggest_kernel(words[1:], last, shell)
        if words[:1] not in (["launch"], ["image"], ["env"], ["copy"]):
            return _suggest_slurm(words, last)
        magic, words = f"%slurm {words[0]}", words[1:]
    command = magic.lstrip("%")
    if "--" in words:
        return None  # arguments of the script
    table = local_option_table(_TABLES.get(command, command))
    if (valued := _valued(table, words, last)) is not None:
        chosen = _chosen(choices_for_option(table.command, *valued), valued[1], _typed(table, words, "partition"))
        return chosen or (None if is_path(table.command, valued[0]) else Suggestion(valued[1], []))
    if last.startswith("-"):  # the options of all versions, until those of the cluster are known
        offered = [] if "=" in last else name_completion.options(table.command) or named_options(table)
        return Suggestion(last, offered)
    ours = _allowed_keywords(magic, words, last)
    if command == "slurm copy" and not any(last and word.startswith(last.partition("=")[0]) for word in COPY_KEYWORDS):
        return None  # a file
    if ours is not None:
        name, equals, value = last.partition("=")
        if equals:
            return keyword_values(name, value, shell, cell) if name in ours else None
        return Suggestion(last, _keyword_entities(magic, ours, words))
    if command in COMMANDS:
        return _chosen(choices_for_operand(command, _operands(table, words), last), last)
    return None


def _suggest_image(arguments: Sequence[str], last: str) -> Suggestion | None:
    """Return the completions of an image line: action, name and file. After a name, a file is as likely."""
    acts = {"build": "from a file or a Python", "pull": "from a registry", "list": "list images", "remove": ""}
    return Suggestion(last, [NamedEntity(act, about) for act, about in acts.items()]) if len(arguments) == 1 else None


def _suggest_environment(arguments: Sequence[str], last: str) -> Suggestion | None:
    """Return the completions of an env line: the action. A name is new, or one of the list."""
    acts = {"create": "from a file or this Python", "list": "list environments", "remove": ""}
    return Suggestion(last, [NamedEntity(act, about) for act, about in acts.items()]) if len(arguments) == 1 else None


def _suggest_kernel(arguments: Sequence[str], last: str, shell: Any) -> Suggestion | None:
    """Return the completions of a kernel line: an action, a kernel that is not in the line yet, or variables."""
    name, equals, value = last.partition("=")
    if not arguments:
        return Suggestion(last, [NamedEntity(act, about) for act, about in ACTIONS.items()])
    if arguments[0] != "switch":
        return None
    if equals:
        return keyword_values("in", value, shell, "") if name == "in" else None
    is_named = any(not word.startswith("in=") and word != "release" for word in arguments[1:])
    kernels = [] if is_named else [NamedEntity(spec.name, spec.display_name) for spec in listed()]
    return Suggestion(
        last, [*kernels, NamedEntity("in=", "variables to send"), NamedEntity("release", "release its allocations")]
    )


def _suggest_slurm(arguments: Sequence[str], last: str) -> Suggestion | None:
    if not arguments:
        return Suggestion(last, [NamedEntity(word, about) for word, about in USAGES.items()])
    return (
        Suggestion(last, name_completion.clusters())
        if arguments[0] in ("use", "disconnect") and len(arguments) == 1
        else None
    )


def _valued(table: OptionTable, arguments: Sequence[str], last: str) -> tuple[str, str] | None:
    """Return the option whose value is unfinished, and that value: joined to the option, or the next word."""
    try:
        if table.is_option(last):
            if last.startswith("--") and "=" not in last:
                return None
            option = table.read_option([last], 0)[-1]
            return (option.name, option.value or "") if option.value is not None else None
        if arguments and table.is_option(arguments[-1]):
            option = table.read_option([arguments[-1], last], 0)[-1]
            return (option.name, last) if option.value is last else None
    except OptionError:
        pass
    return None


def _typed(table: OptionTable, arguments: Sequence[str], option: str) -> str:
    """Return the value of an option in the line."""
    for known in (arguments, arguments[:-1]):  # the last word may be an option without its value
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


def _allowed_keywords(magic: str, arguments: Sequence[str], last: str) -> Mapping[str, bool | None] | None:
    """Return the keywords if a keyword may follow."""
    if magic in _KEYWORDS_ANYWHERE:
        return _KEYWORDS_ANYWHERE[magic]
    if (
        magic in _KEYWORDS_FIRST
        and last
        and all(
            word.partition("=")[0] in _KEYWORDS_FIRST[magic] and ("=" in word or not _KEYWORDS_FIRST[magic][word])
            for word in arguments
        )
    ):
        return _KEYWORDS_FIRST[magic]
    return None


def _keyword_entities(
    magic: str, found_keywords: Mapping[str, bool | None], arguments: Sequence[str]
) -> list[NamedEntity]:
    used, about = {word.partition("=")[0] for word in arguments}, keyword_help(magic.lstrip("%"))
    return [
        NamedEntity(word + ("=" if takes_value else ""), about.get(word, ""))
        for word, takes_value in found_keywords.items()
        if word not in used
    ]


def _operands(table: OptionTable, arguments: Sequence[str]) -> list[str]:
    """Return the words that are neither options nor their values."""
    try:
        return table.split(arguments).rest
    except OptionError:
        return list(arguments)
