"""Parser of magic lines: Slurm options, jupyter_slurm keywords, and arguments of the script.

::

    %%sbatch -p arandu --gpus 1 --time 2:00:00   as=job wait   -- arg1 arg2

A word that begins with a dash is a Slurm option and is sent unchanged. A bare ``word`` or ``word=value`` is a
jupyter_slurm keyword. The arguments of the script follow ``--``. An inserted value never becomes an option or a
keyword: those have to be typed (:mod:`jupyter_slurm.domain.magic_line.tokenizer`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jupyter_slurm.domain.magic_line.equals_signs import check_equals, check_lone_equals
from jupyter_slurm.domain.magic_line.expand import Lookup
from jupyter_slurm.domain.magic_line.shell_operators import (
    as_batch_job,
    as_command,
    as_step,
    check_operators,
    check_placeholders,
)
from jupyter_slurm.domain.magic_line.tokenizer import NO_VARIABLES, Token, tokenize
from jupyter_slurm.domain.options.option_parser import HET, Option, OptionTable, SplitArgv, option_meant
from jupyter_slurm.errors import OptionError, UsageError

__all__ = ["MagicLine", "command_arguments", "parse_cell_line", "parse_line_magic"]

_Keywords = Mapping[str, bool | None]
_KEYWORD = re.compile(r"(?P<word>[A-Za-z_][A-Za-z0-9_]*)(?:=(?P<value>.*))?", re.DOTALL)


class MagicLine(NamedTuple):
    """A parsed magic line.

    Attributes
    ----------
    options : list of str
        Slurm options, unchanged and in their order.
    words : dict
        Keywords with their values (None for a bare keyword).
    args : list of str
        Arguments after ``--``.
    rest : list of str
        For a line magic: the script or command and its arguments.
    parsed : SplitArgv
        The parsed options.
    spans : list of (int, int)
        Position of each of ``options`` in the line.
    node_variables : list of (int, int)
        Where ``rest`` has variables that only a node has: the word, and the character.
    """

    options: list[str]
    keywords: dict[str, str | None]
    args: list[str]
    rest: list[str]
    parsed: SplitArgv
    spans: list[tuple[int, int]]
    node_variables: Sequence[tuple[int, int]] = ()


def parse_cell_line(
    line: str,
    table: OptionTable,
    keywords: _Keywords,
    lookup: Lookup | None = None,
    variables: Mapping[str, str] = NO_VARIABLES,
) -> MagicLine:
    """Parse the line of a cell magic: options and keywords in any order, then ``--`` and arguments.

    Parameters
    ----------
    line : str
        Text after the magic's name.
    table : OptionTable
        The options of the Slurm command.
    keywords : mapping
        Keywords, and whether each takes a value; None: optional.
    lookup, variables : optional
        As for :func:`tokenize`.

    Raises
    ------
    UsageError
        ``details["span"]`` has the position in the line.
    """
    tokens = tokenize(line, lookup, variables, lambda token: _is_end(token) or "sweep" not in keywords)
    check_placeholders(line, itertools.takewhile(lambda token: not _is_end(token), tokens))
    check_operators(line, tokens)
    texts = [token.text for token in tokens]
    options, ours, typed, at = list[Option](), dict[str, str | None](), list[Token](), 0
    while at < len(tokens) and not _is_end(tokens[at]):
        found = _options_at(table, tokens, texts, at)
        used = sum(len(option.tokens) for option in found)
        options += found
        typed += tokens[at : at + used]
        if not found:
            _check_glued(table, tokens, at, line, keywords)
            _add_keyword(table, tokens[at], line, keywords, ours)
        at += used or 1
    _check_arguments(table, tokens[at + 1 :])
    spans = [(token.start, token.end) for token in typed]
    return MagicLine([token.text for token in typed], ours, texts[at + 1 :], [], SplitArgv(options, []), spans)


def parse_line_magic(
    line: str,
    table: OptionTable,
    keywords: _Keywords,
    lookup: Lookup | None = None,
    variables: Mapping[str, str] = NO_VARIABLES,
) -> MagicLine:
    """Parse a line magic: keywords first, then options, then the script or command with its arguments.

    A bare word whose keyword needs a value (``env``) is the script or command.

    Parameters and errors are those of :func:`parse_cell_line`.
    """
    tokens = tokenize(line, lookup, variables, lambda token: not _continues_keywords(token, keywords))
    texts = [token.text for token in tokens]
    ours, at = dict[str, str | None](), 0
    while at < len(tokens) and (
        _continues_keywords(tokens[at], keywords) or _has_apart_value(tokens, at, line, keywords)
    ):
        _add_keyword(table, tokens[at], line, keywords, ours)
        at += 1
    first, options = at, list[Option]()
    while at < len(tokens) and not _is_end(tokens[at]):
        found = _options_at(table, tokens, texts, at)
        if not found:
            _check_order(tokens[at], line, keywords)
            break
        options += found
        at += sum(len(option.tokens) for option in found)
    typed = tokens[first:at]
    operands = tokens[at + 1 :] if at < len(tokens) and _is_end(tokens[at]) else tokens[at:]
    check_placeholders(line, tokens[:at])
    check_operators(line, tokens, as_step(next(iter(operands), None)) if table.command == "srun" else as_batch_job)
    _check_arguments(table, operands[1:])
    rest = [token.text for token in operands]
    spans = [(token.start, token.end) for token in typed]
    places = [(number, at) for number, token in enumerate(operands) for at in token.node_variables]
    return MagicLine([token.text for token in typed], ours, [], rest, SplitArgv(options, rest), spans, places)


def command_arguments(
    line: str, table: OptionTable, lookup: Lookup | None = None, variables: Mapping[str, str] = NO_VARIABLES
) -> list[str]:
    """Return the words of a line for a command that gets them unchanged (``%squeue -u {name}``).

    The command checks its options. This function only refuses a value that would become an option.

    Raises
    ------
    UsageError
        ``details["span"]`` has the position in the line.
    """
    tokens = tokenize(line, lookup, variables)
    check_placeholders(line, tokens)
    check_operators(line, tokens, as_command(table.command))
    texts = [token.text for token in tokens]
    at = 0
    while at < len(tokens) and not _is_end(tokens[at]):
        try:
            found = _options_at(table, tokens, texts, at)
        except OptionError:
            found = []
        at += sum(len(option.tokens) for option in found) or 1
    return texts


def _is_end(token: Token) -> bool:
    return token.text == "--" and token.typed == 2


def _options_at(table: OptionTable, tokens: Sequence[Token], texts: Sequence[str], at: int) -> list[Option]:
    """Return the option, bundle or separator of components at a position; empty for any other word."""
    token = tokens[at]
    if table.is_separator(token.text) and token.typed:
        return [Option(HET, None, (token.text,), at)]
    if not table.is_option(token.text):
        return []
    if token.typed < table.name_length(token.text):
        before = texts[at - 1] if at and table.takes_glued_value(texts[at - 1]) else ""
        raise UsageError(
            f"The value {token.text!r} would become an option.",
            hint=f"Write its value after an equals sign: {before}=…"
            if before
            else "Type the option, and insert only its value with {…}.",
            span=[token.start, token.end],
        )
    try:
        return check_equals(table.read_option(texts, at), tokens, table)
    except OptionError as error:
        error.details.setdefault("span", [token.start, token.end])
        raise


def _check_arguments(table: OptionTable, tokens: Sequence[Token]) -> None:
    """Refuse the one argument that sbatch would lose: sbatch takes every ``:`` for a separator of components."""
    for token in tokens:
        if token.text == HET and table.command == "sbatch":
            raise UsageError(
                "sbatch drops an argument that is only a colon.",
                hint="Put the colon into a longer argument of the script.",
                span=[token.start, token.end],
            )


def _match_keyword(token: Token) -> re.Match[str] | None:
    """Match ``word`` or ``word=``, as far as typed."""
    match = _KEYWORD.fullmatch(token.text)
    return match if match and token.typed >= min(len(token.text), match.end("word") + 1) else None


def _continues_keywords(token: Token, keywords: _Keywords) -> bool:
    """Return whether the keywords of a line magic continue: with a keyword, or a mistyped keyword with a value."""
    match = _match_keyword(token)
    if match is None or match["word"] in keywords:
        return match is not None and (match["value"] is not None or not keywords[match["word"]])
    return bool(match["value"] and _similar_keyword(match["word"], keywords))


def _has_apart_value(tokens: Sequence[Token], at: int, line: str, keywords: _Keywords) -> bool:
    """Return whether a word is a keyword with a blank before its equals sign: ``env = torch``."""
    following = tokens[at + 1 : at + 2]
    return tokens[at].text in keywords and any(line.startswith("=", token.start) for token in following)


def _check_order(token: Token, line: str, keywords: _Keywords) -> None:
    if token.typed and (meant := option_meant(token.text)):
        said = f"{line[token.start : token.end]!r} begins with a dash that is not the one of options."
        raise UsageError(said, hint=f"Did you mean {meant}?", span=[token.start, token.end], suggestion=meant)
    match = _match_keyword(token)
    if match and match["word"] in keywords and keywords[match["word"]] in (None, match["value"] is not None):
        raise UsageError(
            f"The keyword {line[token.start : token.end]!r} must come before Slurm's options.",
            hint=f"Move it to the front, or write ./{token.text} for a file of that name.",
            span=[token.start, token.end],
        )


def _check_glued(table: OptionTable, tokens: Sequence[Token], at: int, line: str, keywords: _Keywords) -> None:
    """Refuse the value of ``--nice 5``: the value of an option with an optional value follows an equals sign."""
    check_lone_equals(tokens, at)
    token, before = tokens[at], tokens[at - 1].text if at else ""
    match = _match_keyword(token)
    if table.takes_glued_value(before) and not (match and _similar_keyword(match["word"], keywords)):
        raise UsageError(
            f"{line[token.start : token.end]!r} is not used as the value of {before}.",
            hint=f"Write the value after an equals sign: {before}={line[token.start : token.end]}",
            span=[token.start, token.end],
        )


def _similar_keyword(name: str, keywords: _Keywords) -> str | None:
    from difflib import get_close_matches  # slow import, needed only after a typing error

    return next(iter(get_close_matches(name, list(keywords), n=1)), None)


def _add_keyword(
    table: OptionTable, token: Token, line: str, keywords: _Keywords, found_keywords: dict[str, str | None]
) -> None:
    """Record a keyword."""
    span = [token.start, token.end]
    match = _match_keyword(token)
    if match is None or match["word"] not in keywords:
        name = match["word"] if match else token.text
        near = option_meant(token.text) or table.option_named(token.text) or _similar_keyword(name, keywords)
        raise UsageError(
            f"{line[token.start : token.end]!r} is neither an option of Slurm nor a keyword of jupyter_slurm.",
            hint=f"Did you mean {near}?"
            if near
            else "Leave out the blank after the comma, or put the value in quotes."
            if line[: token.start].rstrip().endswith(",")
            else f"The keywords are {', '.join(sorted(keywords))}. Write arguments after --.",
            span=span,
            suggestion=near,
        )
    name, value = match["word"], match["value"]
    # `kernel kernel=NAME`
    is_refined = keywords[name] is None and (value is None) != (found_keywords.get(name) is None)
    if name in found_keywords and not is_refined:
        raise UsageError(f"The keyword {name} is given twice.", hint="Give it once.", span=span)
    if keywords[name] is False and value is not None:
        raise UsageError(f"The keyword {name} takes no value.", hint=f"Write only {name}.", span=span)
    if not value and (keywords[name] or value is not None):
        raise UsageError(f"The keyword {name} needs a value.", hint=f"Write {name}=VALUE without spaces.", span=span)
    found_keywords[name] = value or found_keywords.get(name)
