"""Operators of a shell in a magic line: ``|``, ``>``, ``<``, ``&&``, ``;``; and placeholders, such as ``<account>``.

No shell reads a magic line, so that Slurm's commands would get them as arguments. Quoted ones are arguments.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from jupyter_slurm.domain.magic_line.expand import Lookup
from jupyter_slurm.domain.magic_line.tokenizer import NO_VARIABLES, Token, tokenize
from jupyter_slurm.errors import UsageError

__all__ = [
    "as_batch_job",
    "as_command",
    "as_shell_text",
    "as_step",
    "check_operators",
    "check_placeholders",
    "without_input",
]

_Advice = Callable[[str, Sequence[Token], str], str]

_BEGINNING = re.compile(r"\|\|?|&&|&?>>?|&|;|\d?(?:<<?<?|>>?|>\|)")
_END = re.compile(r"(?<!\\)(?:&&|\|\|?|[;&])\Z")
_PLACEHOLDER = re.compile(r"(?:(?:--)?[A-Za-z][\w-]*=)?(?P<name><[^<>\s]+(?: \w+)*(?<! \d)>)(?=\s|\Z)")
_NEXT_MAGIC = re.compile(r"(?<=[|;&] )%(?=s)")
_AS_ARGUMENT = "To pass it as an argument, quote it: '{}'."


def check_operators(line: str, tokens: Sequence[Token], advise: _Advice | None = None) -> None:
    """Refuse an operator of a shell that is not quoted.

    Parameters
    ----------
    line : str
        The line, as typed.
    tokens : sequence of Token
        Its words.
    advise : callable, optional
        Returns what to write instead of the line, its words and the operator.

    Raises
    ------
    UsageError
        ``details["span"]`` has the position of the operator.
    """
    for token in tokens:
        typed = line[token.start : token.end]
        found = _BEGINNING.match(typed) or _END.search(typed)
        if found:
            sign, at = found[0], token.start + found.start()
            raise UsageError(
                f"No shell reads this line, and {sign} is an operator of the shell.",
                hint=_hint(line, tokens, token, sign, advise),
                span=[at, at + len(sign)],
            )


def check_placeholders(line: str, tokens: Iterable[Token]) -> None:
    """Refuse the placeholder of a guide, such as ``<account>``, which looks like an operator or a value.

    The arguments of a script or command are not checked: a program may take ``--eos=<s>``.

    Raises
    ------
    UsageError
        ``details["span"]`` has the position of the placeholder.
    """
    for token in tokens:
        if found := _PLACEHOLDER.match(line, token.start):
            name = found["name"]
            raise UsageError(
                f"The line has the placeholder {name}.",
                hint=f"Replace {name} with your own value. {_AS_ARGUMENT.format(name)}",
                span=[*found.span("name")],
            )


def _hint(line: str, tokens: Sequence[Token], token: Token, sign: str, advise: _Advice | None) -> str:
    """Return what to write instead: in quotes if no word follows, as for the value of an option."""
    typed, quoted = line[token.start : token.end], _AS_ARGUMENT.format(sign)
    if typed.removesuffix(sign).endswith("="):
        return f"Quote the value: {typed.removesuffix(sign)}'{sign}'."
    at = token.start if typed.startswith(sign) else token.end - len(sign)
    if sign == ";" and line[at + 1 :].strip() and "".join(line[:at].split()[-1:]).startswith("sweep="):
        return "Write the value of sweep= without blanks, or in quotes: sweep='a:1,2; b:3,4'."
    if token is tokens[-1] and _END.search(typed):
        return f"Leave it out. {quoted}" if sign in (";", "&") else quoted
    return f"{advise(line, tokens, sign) if advise else 'Leave it and the words after it out.'} {quoted}"


def as_shell_text(line: str, tokens: Sequence[Token]) -> str:
    """Return words as text for a shell: as typed, and inserted values in quotes."""
    return " ".join(_shell_word(line[token.start : token.end], token) for token in tokens)


def _shell_word(typed: str, token: Token) -> str:
    if token.typed == len(token.text):
        return typed
    head, tail = (found[0] if found else "" for found in (_BEGINNING.match(typed), _END.search(typed)))
    value = token.text[len(head) : len(token.text) - len(tail)]
    return f"{head}{shlex.quote(value) if value else ''}{tail}"


def as_command(command: str) -> _Advice:
    """Return the advice for a command of Slurm: a shell of the login node runs the line."""

    def advise(line: str, tokens: Sequence[Token], sign: str) -> str:
        text = _NEXT_MAGIC.sub("", as_shell_text(line, tokens))
        return f"Use `%slurm sh {command} {text}`: the login shell reads that line."

    return advise


def as_step(first: Token | None) -> _Advice:
    """Return the advice for ``%srun``, whose command begins with a word: a shell on the node runs the command."""

    def advise(line: str, tokens: Sequence[Token], sign: str) -> str:
        words = [token for token in tokens if first is not None and token.start >= first.start]
        before = as_shell_text(line, [token for token in tokens if token not in words])
        if not words or words[0].text.startswith(sign):
            return "Write a command in front of it."
        shell = f"sh -c {shlex.quote(as_shell_text(line, words))}"
        return f"Use `{' '.join(filter(None, ('%srun', before, shell)))}`: a shell on the node reads that text."

    return advise


def as_batch_job(line: str, tokens: Sequence[Token], sign: str) -> str:
    """Return the advice for ``%sbatch``."""
    if ">" in sign:
        return "Name the file of the job's output with -o FILE, before the script."
    if "<" in sign:
        return "Name the script, or read it with `< FILE`."
    return "Write one magic in each line. `after=JOB` lets a job wait for another job."


def without_input(
    line: str, lookup: Lookup | None = None, variables: Mapping[str, str] = NO_VARIABLES
) -> tuple[str, str | None]:
    """Return a line without ``< FILE``, with blanks in its place, and the name of the file; None without one.

    Raises
    ------
    UsageError
        The name is missing or a placeholder, or the line has two; ``details["span"]`` has the position.
    """
    tokens, name = tokenize(line, lookup, variables), None
    for number, token in enumerate(tokens):
        if line[token.start : token.start + 1] != "<" or line[token.start : token.start + 2] == "<<":
            continue
        check_placeholders(line, [token])
        glued = token.text[1:]
        following = tokens[number + 1 : number + 2]
        if name is not None or not (glued or following):
            raise UsageError(
                "The line has two scripts." if name is not None else "No file follows <.",
                hint="Use `%sbatch [options] < job.sh`.",
                span=[token.start, token.end],
            )
        name, end = (glued, token.end) if glued else (following[0].text, following[0].end)
        line = line[: token.start] + " " * (end - token.start) + line[end:]
    return line, name
