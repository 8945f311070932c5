"""Options of the Slurm commands: which of them take a value, and which option a word means.

sbatch decides which options it accepts. This module only finds where an option ends and the next word begins, as
getopt_long(3) does for sbatch. sbatch also refuses every word that this module refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from jupyter_slurm.domain.options.option_tables import OPTIONS, PERMUTING
from jupyter_slurm.errors import OptionError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = [
    "HET",
    "Arity",
    "Option",
    "OptionSpec",
    "OptionTable",
    "QuotedColon",
    "SplitArgv",
    "option_meant",
    "words_of",
]

Version = tuple[int, int]

#: Separator of the components of a heterogeneous job, on the line of a command that allocates.
HET: Final = ":"


class QuotedColon(str):
    """A colon that was quoted in a ``#SBATCH`` line: a word like any other, which separates nothing."""

    __slots__ = ()


#: Dashes that editors and web pages put in place of one or two hyphens: U+2010 to U+2015, the minus sign, the small and
#: the fullwidth hyphen.
_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"

_NO_TERMINAL: Final = (
    "A cell has no terminal. Use `%salloc [options] as=node`, then `jupyter slurm shell node` in a terminal, or "
    "`Open Terminal` in JupyterLab."
)


def option_meant(text: str) -> str | None:
    """Return the intended option of a word that begins with a typographic dash; None for any other word."""
    name = text.lstrip(_DASHES + "-")
    if name == text or not name or not set(text[: len(text) - len(name)]) & set(_DASHES):
        return None
    return ("-" if len(name.partition("=")[0]) == 1 else "--") + name


class Arity(Enum):
    """Kind of value that follows an option."""

    NONE = "."
    REQUIRED = "="
    OPTIONAL = "?"


class OptionSpec(NamedTuple):
    """One option of one command.

    Attributes
    ----------
    names : tuple of str
        Long names without dashes, the canonical name first; empty if the option has only a letter.
    short : str
        The letter, or the empty string.
    arity : Arity
        Kind of value.
    help : str
        Description in the command's ``--help``, if any.
    """

    names: tuple[str, ...]
    short: str
    arity: Arity
    help: str = ""

    @property
    def name(self) -> str:
        """Return the canonical name: the first long name, else the letter."""
        return self.names[0] if self.names else self.short


@dataclass(frozen=True)
class Option:
    """An option as typed.

    Attributes
    ----------
    name : str
        Canonical long name, even if an abbreviation or letter was typed; :data:`HET` between components of a
        heterogeneous job.
    value : str or None
        Its value, if any.
    tokens : tuple of str
        The typed words. Letters in a bundle (``-Hs``) share one word, which the first letter has.
    index : int
        Position of its first word, or of its bundle's word, in the command line.
    """

    name: str
    value: str | None
    tokens: tuple[str, ...]
    index: int


class SplitArgv(NamedTuple):
    """A parsed command line; ``rest`` is the script or command and its arguments."""

    options: list[Option]
    rest: list[str]


class OptionTable:
    """The options of one command of one version of Slurm.

    Parameters
    ----------
    command : str
        ``sbatch``, ``salloc``, ``srun``, ``squeue`` …
    specs : sequence of OptionSpec
        Its options.
    foreign : collection of str
        Long names that only other versions have. The help may still show such a name (26.05: ``--power``), but the
        command refuses it.
    """

    def __init__(self, command: str, specs: Sequence[OptionSpec], foreign: Collection[str] = ()) -> None:
        self.command = command
        self._foreign = foreign
        self.specs = tuple(specs)
        self._permuting = command in PERMUTING
        self._long = {name: spec for spec in self.specs for name in spec.names}
        self._short = {spec.short: spec for spec in self.specs if spec.short}

    @staticmethod
    def for_command(command: str, version: Version | None = None) -> OptionTable:
        """Return the options of a command; without a version, those of all versions together.

        Raises
        ------
        UsageError
            The command does not exist.
        """
        if command not in OPTIONS:
            raise UsageError(
                f"The options of {command!r} are not known.",
                hint="Use sbatch, salloc, srun, or another command of Slurm.",
            )
        specs = _specs(command, version)
        here = {name for spec in specs for name in spec.names}
        return OptionTable(command, specs, {name for spec in _specs(command, None) for name in spec.names} - here)

    def with_help(self, text: str) -> OptionTable:
        """Add the options in the command's own ``--help``: those of plugins, and of versions newer than this table.

        The table's kind of value takes precedence, because help texts are not always right about it.
        """
        from jupyter_slurm.domain.options.option_help import read_help

        specs = list(self.specs)
        at = {name: index for index, spec in enumerate(specs) for name in spec.names}
        for entry in read_help(text):
            known = at.get(entry.name)
            letter = self._short.get(entry.short)
            if known is None and letter and letter.name.startswith(entry.name):
                known = at[letter.name]  # squeue shows --job, but the option is --jobs
            if known is None and entry.name not in self._foreign:
                short = "" if letter else entry.short
                at[entry.name] = len(specs)
                specs.append(OptionSpec((entry.name,), short, Arity(entry.takes), entry.help))
            elif known is not None and not specs[known].help:
                specs[known] = specs[known]._replace(help=entry.help)
        return OptionTable(self.command, specs, self._foreign)

    def as_list(self) -> list[api.Option]:
        """Return the table for the API."""
        return [
            {
                "name": spec.name,
                "names": list(spec.names),
                "short": spec.short or None,
                "takes_value": {"=": "yes", "?": "optional", ".": "no"}[spec.arity.value],
                "help": spec.help,
            }
            for spec in self.specs
        ]

    def name_length(self, text: str) -> int:
        """Return the length of an option word's name or letters, including the ``=`` but not the value."""
        if text.startswith("--"):
            return text.find("=") + 1 or len(text)
        for at, letter in enumerate(text[1:], 1):
            spec = self._short.get(letter)
            if spec is not None and spec.arity is not Arity.NONE:
                return at + 1
        return len(text)

    def takes_glued_value(self, text: str) -> bool:
        """Return whether a word is a long option without its value, whose value is never the next word."""
        try:
            return text.startswith("--") and "=" not in text and self._find(text[2:], text, 0).arity is Arity.OPTIONAL
        except OptionError:
            return False

    def option_named(self, text: str) -> str | None:
        """Return the option with exactly the name of a word without dashes, and its value; None if no option has it."""
        return f"--{text}" if text.partition("=")[0] in self._long else None

    def nearest(self, name: str) -> str | None:
        """Return the probably intended option, with its dashes."""
        wanted = name.lstrip("-").partition("=")[0]
        if len(wanted) < 2:
            letter = next((letter for letter in (wanted, wanted.swapcase()) if letter in self._short), None)
            return letter and f"-{letter}"
        if found := [name for name in self._long if name.startswith(wanted)]:
            return f"--{min(found, key=len)}"
        from difflib import get_close_matches  # slow import, needed only after a typing error

        found = get_close_matches(wanted.lower().replace("_", "-"), list(self._long), n=1, cutoff=0.6)
        return f"--{found[0]}" if found else None

    def split(self, argv: Sequence[str]) -> SplitArgv:
        """Split a command line as getopt_long(3) does for this command.

        Raises
        ------
        OptionError
            An option is unknown, lacks its value, or has a value that it does not take. ``details`` have the option
            (``option``, ``index``) and the probably intended option (``suggestion``).
        """
        words = list(argv)
        options: list[Option] = []
        rest: list[str] = []
        for at, word in enumerate(words):
            if "\0" in word:
                text = f"The argument {word!r} holds a NUL byte."
                raise self._error(text, word, at, hint="Remove it.")
        at = 0
        while at < len(words):
            word = words[at]
            if word == "--":
                rest += words[at + 1 :]
                break
            if self.is_separator(word):
                options.append(Option(HET, None, (word,), at))
                at += 1
                continue
            if not self.is_option(word):
                if not self._permuting:
                    rest += words[at:]
                    break
                rest.append(word)
                at += 1
                continue
            found = self.read_option(words, at)
            options += found
            at += sum(len(option.tokens) for option in found)
        return SplitArgv(options, rest)

    def is_option(self, text: str) -> bool:
        """Return whether getopt takes a word at an option's position for an option; a lone ``-`` is not an option."""
        return len(text) > 1 and text.startswith("-")

    def is_separator(self, text: str) -> bool:
        """Return whether a word at an option's position begins the next component of a heterogeneous job."""
        return text == HET and not isinstance(text, QuotedColon) and not self._permuting

    def read_option(self, arguments: Sequence[str], at: int) -> list[Option]:
        """Read the option, or bundle of letters, at a position, with its value. Errors are those of :meth:`split`."""
        return [self._long_option(arguments, at)] if arguments[at].startswith("--") else self._letters(arguments, at)

    def _long_option(self, arguments: Sequence[str], at: int) -> Option:
        typed, equals, value = arguments[at][2:].partition("=")
        spec = self._find(typed, arguments[at], at)
        if spec.arity is Arity.NONE and equals:
            raise self._error(f"--{spec.name} takes no value.", arguments[at], at, hint=f"Write --{spec.name} alone.")
        if spec.arity is Arity.REQUIRED and not equals:
            return self._with_next(spec, arguments, at)
        return Option(spec.name, value if equals else None, (arguments[at],), at)

    def _find(self, typed: str, text: str, at: int) -> OptionSpec:
        """Find a long option by its name or an unambiguous prefix."""
        if typed in self._long:
            return self._long[typed]
        found = {name: spec for name, spec in self._long.items() if typed and name.startswith(typed)}
        kinds = {(spec.name, spec.arity) for spec in found.values()}
        if len(kinds) == 1:
            return next(iter(found.values()))
        if found:
            names = ", ".join(f"--{name}" for name in sorted(found))
            shortest = f"--{min(found, key=len)}"
            raise self._error(f"--{typed} is ambiguous: it could be any of {names}.", text, at, suggestion=shortest)
        suggestion = self.nearest(typed)
        raise self._error(f"{self.command} has no option --{typed}.", text, at, suggestion=suggestion)

    def _letters(self, arguments: Sequence[str], at: int) -> list[Option]:
        """Read a word of letters. The last letter may have a value in the same word or in the next one."""
        word, found = arguments[at], list[Option]()
        for position, letter in enumerate(word[1:], 1):
            spec = self._short.get(letter)
            if spec is None:
                raise self._error(f"{self.command} has no option -{letter}.", word, at, suggestion=self.nearest(letter))
            tokens = (word,) if not found else ()
            rest = word[position + 1 :]
            if spec.arity is Arity.NONE:
                found.append(Option(spec.name, None, tokens, at))
                continue
            if rest or spec.arity is Arity.OPTIONAL:
                found.append(Option(spec.name, rest or None, tokens, at))
            else:
                option = self._with_next(spec, arguments, at)
                found.append(option if tokens else replace(option, tokens=option.tokens[1:]))
            break
        return found

    def _with_next(self, spec: OptionSpec, arguments: Sequence[str], at: int) -> Option:
        if at + 1 >= len(arguments):
            hint = f"Write --{spec.names[0]}=VALUE." if spec.names else f"Write -{spec.short} VALUE."
            raise self._error(f"{arguments[at]} needs a value.", arguments[at], at, hint=hint)
        return Option(spec.name, arguments[at + 1], (arguments[at], arguments[at + 1]), at)

    def _error(
        self, message: str, text: str, at: int, *, suggestion: str | None = None, hint: str | None = None
    ) -> OptionError:
        if hint is None and text in ("--pty", "--interactive"):
            hint = _NO_TERMINAL
        elif hint is None:
            hint = f"Did you mean {suggestion}?" if suggestion else f"List the options with `{self.command} --help`."
        return OptionError(message, hint=hint, option=text, index=at, suggestion=suggestion)


def words_of(options: Sequence[Option], names: Callable[[str], bool]) -> list[str]:
    """Return the words of those options whose name is wanted; the letters of a divided bundle are written out.

    Parameters
    ----------
    options : sequence of Option
        All options of a line.
    names : callable
        Returns whether an option of that long name is wanted.
    """
    divided = {option.index for option in options if not names(option.name)}
    words = list[str]()
    for option in options:
        if names(option.name) and option.index in divided:
            words.append(f"--{option.name}" if option.value is None else f"--{option.name}={option.value}")
        elif names(option.name):
            words += option.tokens
    return words


@lru_cache(maxsize=64)
def _specs(command: str, version: Version | None) -> tuple[OptionSpec, ...]:
    specs = []
    for line in OPTIONS[command].split(";"):
        names, short, arity, *when = line.split()
        if version is None or all(_contains_option(condition, version) for condition in when):
            long = tuple(name for name in names.split(",") if name != "-")
            specs.append(OptionSpec(long, "" if short == "-" else short, Arity(arity)))
    if version is None:
        specs = _merged(specs)
    return tuple(specs)


def _merged(specs: Sequence[OptionSpec]) -> list[OptionSpec]:
    """Merge the options of several versions. If their kinds of value differ, the more permissive kind is used."""
    merged: dict[tuple[str, ...], OptionSpec] = {}
    for spec in specs:
        key = spec.names or (spec.short,)
        have = merged.get(key)
        merged[key] = spec if have is None or spec.arity is Arity.OPTIONAL else have
    return list(merged.values())


def _contains_option(condition: str, version: Version) -> bool:
    year, month = condition[1:].split(".")
    bound = (int(year), int(month))
    return version >= bound if condition[0] == ">" else version < bound
