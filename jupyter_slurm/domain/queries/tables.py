"""Tables of the pass-through commands, requested in a form that no name or reason can disturb.

The command's own text is shown if a user chose a format (``-o``, ``--json``, ``-P``, ``--noheader`` …), or if the
command prints no table (or one for each cluster). Otherwise the query has the columns that the command shows by default
with these options.

squeue, sinfo, sprio and sacct print a random mark at the end of each field, so that the fields are unambiguous. sshare,
sacctmgr, sreport and sstat only have a bar between fields. If a row of theirs has not as many fields as the head, the
parser raises an error, and the command's own text can be shown.

Sources: squeue(1), sinfo(1), sacct(1), sprio(1), sshare(1), sacctmgr(1), sreport(1), sstat(1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from jupyter_slurm.domain.options.option_parser import OptionTable, SplitArgv
from jupyter_slurm.domain.queries.output_frames import check_mark, decode, field_end, long_format, record_end
from jupyter_slurm.errors import ParseError, UsageError

__all__ = ["FORMAT_VARIABLES", "Table", "parse_table", "tabular_argv"]

#: Variables by which a user chooses a format for every call. If one is set, the command's own text is shown.
FORMAT_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "squeue": ("SQUEUE_FORMAT", "SQUEUE_FORMAT2"),
        "sinfo": ("SINFO_FORMAT",),
        "sacct": ("SACCT_FORMAT",),
        "sprio": ("SPRIO_FORMAT",),
    }
)


# Canonical names of the given options.
Names = Set[str]


@dataclass
class Table:
    """A table as Slurm shows it.

    Parameters
    ----------
    columns : list of str
        Slurm's column heads; some commands use a head twice.
    rows : list of list of str
        Each row has as many cells as the table has columns. Texts that were not UTF-8 contain surrogate escapes.
    title : str
        Text above the table (``sreport``).
    """

    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    title: str = ""


# Options that request text, or output that is not a table.
_NO_TABLE: Final = frozenset(
    {
        *("autocomplete", "clusters", "cluster", "federation", "format", "fields", "Format", "help", "helpformat"),
        *("helpFormat", "helpstate", "helpreason", "json", "noheader", "parsable", "parsable2", "usage", "verbose"),
        *("version", "yaml"),
    }
)


def tabular_argv(command: str, args: Sequence[str], mark: str) -> list[str] | None:
    """Return the command that prints the requested table in a form that :func:`parse_table` can read.

    Parameters
    ----------
    command : str
        ``squeue``, ``sinfo`` …
    args : sequence of str
        As typed, without the command.
    mark : str
        Fresh random hexadecimal digits.

    Returns
    -------
    list of str or None
        ``None``: run the command as typed and show its text.
    """
    check_mark(mark)
    if command not in _STRATEGIES:
        return None
    try:
        given = OptionTable.for_command(command).split(args)
    except UsageError:
        # The command's own message is the best.
        return None
    names = {option.name for option in given.options}
    extra = None if names & _NO_TABLE else _STRATEGIES[command](names, given.rest, mark)
    if extra is None:
        return None
    # sinfo and sprio refuse "long" beside a format, which then gets the columns of the long list.
    rest = _drop_long(given) if command in ("sinfo", "sprio") else args
    # The added options come first: no word after "--" may be taken for an option.
    return [command, *extra, *rest]


def _drop_long(split: SplitArgv) -> list[str]:
    argv = []
    for name, value in ((option.name, option.value) for option in split.options if option.name != "long"):
        dashes, equals = ("-", "") if len(name) == 1 else ("--", "=")
        argv.append(f"{dashes}{name}" if value is None else f"{dashes}{name}{equals}{value}")
    return [*argv, "--", *split.rest] if split.rest else argv


def _short_format(letters: str, mark: str) -> str:
    """Return the value of ``-o`` of squeue and sprio: fields named by single letters."""
    return "".join(
        f"%{letter}{record_end(mark) if position == len(letters) - 1 else field_end(mark)}"
        for position, letter in enumerate(letters)
    )


def _squeue(names: Names, _rest: Sequence[str], mark: str) -> list[str] | None:
    # "iterate" never ends.
    if names & {"iterate", "only-job-state"}:
        return None
    long = "long" in names
    if "steps" in names:
        return None if long else [f"--format={_short_format('ijPuMN', mark)}"]
    if "start" in names:
        return None if long else [f"--format={_short_format('iPjutSDYR', mark)}"]
    head, tail = ["jobarrayid", "partition", "name", "username"], ["numnodes", "reasonlist"]
    middle = ["state", "timeused", "timelimit"] if long else ["statecompact", "timeused"]
    return [f"--Format={long_format([*head, *middle, *tail], mark)}"]


# Fields that sinfo shows by default, with the option that chooses each, short and long.
_SINFO_FIELDS: Final = {
    "summarize": ("partition available time nodeaiot nodelist",) * 2,
    "Node": (
        "nodelist nodes partition statecompact",
        "nodelist nodes partition statelong cpus socketcorethread memory disk weight features reason",
    ),
    "list-reasons": ("reason user timestamp nodelist", "reason userlong timestamp statecompact nodelist"),
    "": (
        "partition available time nodes statecompact nodelist",
        "partition available time size root oversubscribe groups nodes statelong nodelist",
    ),
}


def _sinfo(names: Names, _rest: Sequence[str], mark: str) -> list[str] | None:
    # "reservation" lists reservations, in another form.
    if names & {"iterate", "reservation"}:
        return None
    chosen = next((name for name in _SINFO_FIELDS if name in names), "")
    fields = _SINFO_FIELDS[chosen]["long" in names]
    return [f"--Format={long_format(fields.split(), mark)}"]


def _sacct(names: Names, _rest: Sequence[str], mark: str) -> list[str] | None:
    if names & {"batch-script", "completion", "delimiter", "env-vars"}:
        return None
    return ["--parsable", f"--delimiter={field_end(mark)}"]


# Factors in the order of sprio's own tables, weighted and normalised.
_SPRIO_WEIGHTED: Final = "YSABFJPQ"
_SPRIO_NORMALISED: Final = "yabfjpq"


def _sprio(names: Names, _rest: Sequence[str], mark: str) -> list[str] | None:
    if "sib" in names:
        return None
    long = "long" in names
    letters = "ir" + ("u" if long or "user" in names else "")
    if "norm" in names:
        letters += _SPRIO_NORMALISED + "t"
    else:
        letters += _SPRIO_WEIGHTED + ("N" if long else "") + "T"
    return [f"--format={_short_format(letters, mark)}"]


def _sshare(names: Names, _rest: Sequence[str], _mark: str) -> list[str] | None:
    return None if "h" in names else ["--parsable2"]


# sacctmgr accepts any abbreviation from the given length on. "runawayjobs" asks whether to repair, "stats" and
# "configuration" are not tables.
_SACCTMGR_VERBS: Final = (("show", 3), ("list", 3))
_SACCTMGR_ENTITIES: Final = (
    ("accounts", 2),
    ("acct", 4),
    ("associations", 2),
    ("clusters", 2),
    ("events", 1),
    ("federation", 1),
    ("problems", 1),
    ("qos", 1),
    ("reservations", 4),
    ("resource", 4),
    ("resv", 4),
    ("transactions", 1),
    ("tres", 2),
    ("txn", 1),
    ("users", 1),
    ("wckeys", 1),
)
_SREPORT_GROUPS: Final = (("cluster", 1), ("job", 1), ("reservation", 2), ("resv", 4), ("user", 1))


def _has_name(text: str, names: Sequence[tuple[str, int]]) -> bool:
    lower = text.lower()
    return any(name.startswith(lower) and len(lower) >= least for name, least in names)


def _is_format_word(arguments: Sequence[str]) -> bool:
    """Return whether a word is ``format=…``, which may be as short as ``f=``."""
    return any(
        "format".startswith(name.lower())
        for name, equals, _ in (word.partition("=") for word in arguments)
        if name and equals
    )


def _sacctmgr(names: Names, rest: Sequence[str], _mark: str) -> list[str] | None:
    if names & {"associations", "oneliner", "readonly"} or len(rest) < 2 or _is_format_word(rest):
        return None
    if not _has_name(rest[0], _SACCTMGR_VERBS) or not _has_name(rest[1], _SACCTMGR_ENTITIES):
        return None
    return ["--parsable2"]


def _sreport(_names: Names, rest: Sequence[str], _mark: str) -> list[str] | None:
    if len(rest) < 2 or _is_format_word(rest) or not _has_name(rest[0], _SREPORT_GROUPS):
        return None
    return ["--parsable2"]


def _sstat(names: Names, rest: Sequence[str], _mark: str) -> list[str] | None:
    if "pidformat" in names or not (rest or "jobs" in names):
        return None
    # Without the option, a batch job has no step to show.
    return ["--parsable2", *([] if "allsteps" in names else ["--allsteps"])]


_STRATEGIES: Final[Mapping[str, Callable[[Names, Sequence[str], str], list[str] | None]]] = {
    "sacct": _sacct,
    "sacctmgr": _sacctmgr,
    "sinfo": _sinfo,
    "sprio": _sprio,
    "squeue": _squeue,
    "sreport": _sreport,
    "sshare": _sshare,
    "sstat": _sstat,
}


def parse_table(command: str, output: bytes, mark: str) -> Table:
    """Parse the output of the command of :func:`tabular_argv`.

    Raises
    ------
    ParseError
        The output is incomplete, or a text in it contains the only separator that the command has.
    """
    check_mark(mark)
    text = decode(output)
    if command == "sacct":
        return _delimited_table(text, mark)
    if command in ("squeue", "sinfo", "sprio"):
        table = _framed_table(text, mark)
        return _without_unused_factors(table) if command == "sprio" else table
    return _barred_table(text)


def _framed_table(text: str, mark: str) -> Table:
    *records, rest = text.split(record_end(mark))
    if not records or field_end(mark) in rest:
        raise ParseError("The table of Slurm is incomplete.")
    rows = [record.split(field_end(mark)) for record in records]
    for row in rows:
        # The newline of the previous row; above the head also the date of a long list.
        row[0] = row[0].rpartition("\n")[2]
    return _checked(rows)


def _delimited_table(text: str, mark: str) -> Table:
    *fields, _ = text.split(field_end(mark))
    # Heads contain no newline, so the first field that begins with a newline begins the first row.
    width = next((index for index, cell in enumerate(fields) if index and cell.startswith("\n")), len(fields))
    if not fields or len(fields) % width:
        raise ParseError("The table of Slurm is incomplete.")
    rows = [fields[start : start + width] for start in range(0, len(fields), width)]
    for row in rows:
        row[0] = row[0].rpartition("\n")[2]
    return _checked(rows)


_RULE = re.compile(r"-{20,}")


def _barred_table(text: str) -> Table:
    lines = text.split("\n")
    title: list[str] = []
    rules = [index for index, line in enumerate(lines) if _RULE.fullmatch(line)]
    if rules:
        if len(rules) != 2:
            raise ParseError("Slurm printed more than one table.")
        title = lines[rules[0] + 1 : rules[1]]
        lines = lines[rules[1] + 1 :]
    rows = [line.split("|") for line in lines if line]
    if not rows:
        raise ParseError("Slurm printed no table.")
    return _checked(rows, "\n".join(title))


def _checked(rows: list[list[str]], title: str = "") -> Table:
    columns, *body = rows
    for row in body:
        if len(row) != len(columns):
            raise ParseError(f"A row of Slurm's table has {len(row)} fields, not {len(columns)}.")
    return Table([column.strip() for column in columns], body, title)


_ZERO: Final = re.compile(r"\s*(?:(?:[0.,-]+|\(null\))\s*)?")


def _without_unused_factors(table: Table) -> Table:
    """Remove factors that are zero in every row: sprio shows those that have a weight, with -l all of them."""
    if "NICE" in table.columns:
        return table
    kept = [
        index
        for index, column in enumerate(table.columns)
        if index < 2
        or column in ("USER", "PRIORITY", "SITE", "AGE", "FAIRSHARE")
        or not all(_ZERO.fullmatch(row[index]) for row in table.rows)
    ]
    return Table([table.columns[index] for index in kept], [[row[index] for index in kept] for row in table.rows])
