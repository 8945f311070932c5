"""The options of the commands that list things: enough to know whether a person chose a format of their own.

They are read as getopt_long(3) does without "+": options and other words in any order, abbreviations, ``-la``, ``-uX``,
``--x=y``, ``--``. The tables hold what any version from 22.05 to 26.05 knows: a word is the single letter that the
option shares with a short one, or its own name.

Sources: ``src/squeue/opts.c``, ``src/sinfo/opts.c``, ``src/sacct/options.c`` … of Slurm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["TABLE_COMMANDS", "ReadArgs", "read_args"]

# Letters as in getopt: ":" takes a value, "::" may take one. Long names: "=" takes a value, "?" may take one; after a
# slash the letter that means the same.
_SPECS: Final = {
    "squeue": (
        "A:ahi:j::lL:n:M:O:o:p:Pq:R:rs::S:t:u:U:vVw:",
        "accounts=/A all/a array/r array-unique autocomplete= cluster=/M clusters=/M expand-patterns federation"
        " Format=/O format=/o help helpFormat helpformat helpstate hide iterate=/i jobs?/j json? licenses=/L local"
        " long/l me name=/n noconvert node=/w nodelist=/w nodes=/w noheader/h notme only-job-state partitions=/p"
        " priority/P qos=/q reservation=/R running-over= running-under= sib/sibling sibling/sibling sort=/S start"
        " states=/t steps?/s usage user=/u users=/u verbose/v version/V yaml?",
    ),
    "sinfo": (
        "adeFhi:lM:n:No:O:p:rRsS:t:TvV",
        "all/a autocomplete= cluster=/M clusters=/M dead/d exact/e federation Format=/O format=/o future/F help"
        " helpFormat helpformat helpstate hide iterate=/i json? list-reasons/R local long/l noconvert Node/N"
        " nodes=/n noheader/h partition=/p reservation/T responding/r sort=/S states=/t summarize/s usage"
        " verbose/v version/V yaml?",
    ),
    "sacct": (
        "aA:bBcC:DeE:f:F:g:hi:I:j:k:K:lLM:nN:o:pPq:r:R:s:S:Ttu:UvVW:x:X",
        "accounts=/A allclusters/L allocations/X allusers/a array associations=/x autocomplete= batch-script/B"
        " brief/b cluster=/M clusters=/M completion/c constraints=/C delimiter= duplicates/D endtime=/E env-vars"
        " expand-patterns federation fields=/o file=/f flags=/F format=/o gid=/g group=/g help/h help-fields/e"
        " helpformat/e helpreason helpstate jobs=/j json? local long/l name= ncpus=/I nnodes=/i noconvert"
        " nodelist=/N noheader/n parsable/p parsable2/P partition=/r qos=/q reason=/R starttime=/S state=/s"
        " timelimit-max=/K timelimit-min=/k truncate/T uid=/u units= usage/U use-local-uid user=/u verbose/v"
        " version/V wckeys=/W whole-hetjob? yaml?",
    ),
    "sprio": (
        "hj::lM:no:S:p:u:vVw",
        "autocomplete= cluster=/M clusters=/M federation format=/o help helpformat jobs?/j local long/l"
        " noheader/h norm/n partition=/p sib/sibling sibling/sibling sort=/S usage user=/u users=/u verbose/v"
        " version/V weights/w",
    ),
    "sshare": (
        "aA:ehlM:no:pPqUu:t:vVm",
        "accounts=/A all/a autocomplete= cluster=/M clusters=/M format=/o help helpformat/e json? long/l"
        " noheader/n parsable/p parsable2/P partition/m usage Users/U users=/u verbose/v version/V yaml?",
    ),
    "sacctmgr": (
        "hionpPQrsvV",
        "associations/s autocomplete= help/h immediate/i json? noheader/n oneliner/o parsable/p parsable2/P"
        " quiet/Q readonly/r usage/h verbose/v version/V yaml?",
    ),
    "sreport": (
        "aM:hnpPQs:t:T:vV",
        "all_clusters/a autocomplete= cluster=/M federation help/h immediate/i local noheader/n parsable/p"
        " parsable2/P quiet/Q sort/s tres=/T usage/h verbose/v version/V",
    ),
    "sstat": (
        "aehij:no:pPvV",
        "allsteps/a autocomplete= fields=/o format=/o help/h helpformat/e jobs=/j noconvert noheader/n parsable/p"
        " parsable2/P pidformat/i usage verbose/v version/V",
    ),
}

TABLE_COMMANDS: Final = frozenset(_SPECS)


@dataclass
class ReadArgs:
    """What was typed.

    Parameters
    ----------
    options : list of (name, value)
        Letter or name, and its value (``None``: without one), in order.
    words : list of str
        What is no option.
    """

    options: list[tuple[str, str | None]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def has(self, *names: str) -> bool:
        """Whether any of these was given."""
        return any(name in names for name, _ in self.options)

    def argv_without(self, left_out: str) -> list[str]:
        """Return arguments that mean the same, but for one option."""
        argv = []
        for name, value in self.options:
            if name != left_out:
                dashes, equals = ("-", "") if len(name) == 1 else ("--", "=")
                argv.append(f"{dashes}{name}" if value is None else f"{dashes}{name}{equals}{value}")
        return [*argv, "--", *self.words] if self.words else argv


def read_args(command: str, args: Sequence[str]) -> ReadArgs | None:
    """Read the arguments of a command as it would; ``None`` if it would refuse them or they are not understood."""
    if command not in _SPECS:
        return None
    letters, names = _SPECS[command]
    long_names = dict(_long_name(word) for word in names.split())
    read = ReadArgs()
    rest = list(args)
    while rest:
        arg = rest.pop(0)
        if arg == "--":
            read.words += rest
            break
        if arg.startswith("--"):
            understood = _read_long(arg[2:], rest, long_names, read)
        elif arg.startswith("-") and len(arg) > 1:
            understood = _read_short(arg[1:], rest, letters, read)
        else:
            read.words.append(arg)
            continue
        if not understood:
            return None
    return read


def _long_name(word: str) -> tuple[str, tuple[str, str]]:
    name, _, same = word.partition("/")
    arity = name[-1] if name[-1] in "=?" else ""
    name = name.removesuffix(arity)
    return name, (arity, same or name)


def _read_long(text: str, rest: list[str], known: dict[str, tuple[str, str]], read: ReadArgs) -> bool:
    typed, equals, value = text.partition("=")
    meant = {known[typed]} if typed in known else {known[name] for name in known if name.startswith(typed)}
    if len(meant) != 1:
        return False
    arity, name = meant.pop()
    if equals:
        read.options.append((name, value))
        return bool(arity)
    if arity == "=":
        if not rest:
            return False
        read.options.append((name, rest.pop(0)))
        return True
    read.options.append((name, None))
    return True


def _read_short(text: str, rest: list[str], letters: str, read: ReadArgs) -> bool:
    while text:
        letter, text = text[0], text[1:]
        position = letters.find(letter)
        if position < 0 or letter == ":":
            return False
        colons = letters[position + 1 : position + 3]
        if not colons.startswith(":"):
            read.options.append((letter, None))
            continue
        if not text and colons != "::" and not rest:
            return False
        read.options.append((letter, text or (rest.pop(0) if colons != "::" else None)))
        return True
    return True
