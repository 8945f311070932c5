"""Jump hosts in the forms of ssh_config(5): ProxyJump, and the older equivalent ProxyCommand."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from jupyter_slurm.errors import ConfigError

__all__ = ["as_jump", "parse_jump"]

# Flags of ssh(1) that do not affect how a jump host is reached, and options with a value that jupyter_slurm follows.
_FLAGS: Final = frozenset("aknqtTvxXY")
_VALUES: Final = frozenset("FJlopW")
# Options of ssh_config(5) that may be dropped if jupyter_slurm's connection replaces that ssh.
_FREE: Final = frozenset(
    "addkeystoagent clearallforwardings compression connectionattempts connecttimeout controlmaster controlpath "
    "controlpersist exitonforwardfailure forwardagent forwardx11 forwardx11trusted ipqos loglevel permitlocalcommand "
    "requesttty serveralivecountmax serveraliveinterval sessiontype stdinnull tcpkeepalive updatehostkeys".split()
)
_NO_ERRORS: Final = re.compile(r"\s+2>>?\s*/dev/null\s*$")


def as_jump(command: str, is_target: Callable[[str], bool], config_file: str | None) -> str | None:
    """Return the jump hosts of ``ssh -W %h:%p HOST``, the form of older guides; None for any other command.

    OpenSSH turns ProxyJump into the same command. As a jump host, its questions reach the user, whereas a process
    without a terminal cannot ask.

    Parameters
    ----------
    command : str
        The ProxyCommand.
    is_target : callable
        Returns whether the value of ``-W`` is the host and port in question.
    config_file : str or None
        The file that ``ssh -F`` has to name.
    """
    command = _NO_ERRORS.sub("", command)
    if re.search(r"[;&|<>`$()\n]", command):
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if words[:1] == ["exec"]:
        del words[0]
    if not words or os.path.basename(words[0]) != "ssh":
        return None
    told: dict[str, str] = {}
    try:
        for letter, value in _options(words[1:]):
            if letter == "o":
                letter, value = _setting(value)
            if letter:
                told.setdefault(letter, value)  # the first value wins, as in OpenSSH
    except LookupError:
        return None
    if not is_target(told.get("W", "")) or not told.get("host") or told.get("F") != config_file:
        return None
    user, host, port = parse_jump(told["host"])
    user, port_text = told.get("l", user), told.get("p", str(port or ""))
    name = (f"{user}@" if user else "") + (f"[{host}]" if ":" in host else host)
    return (f"{told['J']}," if "J" in told else "") + name + (f":{port_text}" if port_text else "")


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of an ssh and their values, the host as ``host``; KeyError: an unsupported option."""
    rest, has_host = iter(arguments), False
    for word in rest:
        if not word.startswith("-") or word == "-":
            if has_host:
                raise KeyError(word)  # a command for the remote host
            has_host = True
            yield "host", word
        elif word == "--":
            continue
        else:
            letters = word[1:]
            while letters and letters[0] in _FLAGS:
                letters = letters[1:]
            if letters and letters[0] not in _VALUES:
                raise KeyError(letters)
            if letters:
                yield letters[0], letters[1:] or next(rest, "")


def _setting(text: str) -> tuple[str, str]:
    """Return the letter option for ``-o``, or none if it may be dropped; KeyError: unsupported."""
    name, value = (*re.split(r"\s*=\s*|\s+", text.strip(), maxsplit=1), "")[:2]
    name = name.lower()
    if name in _FREE or (name == "batchmode" and value == "no"):
        return "", ""
    if name == "stricthostkeychecking" and value != "yes":  # an unknown key needs the user's consent anyway
        return "", ""
    return {"user": "l", "port": "p", "proxyjump": "J"}[name], value


def parse_jump(text: str) -> tuple[str | None, str, int | None]:
    """Split ``[user@]host[:port]`` as ``ssh -G`` prints it (with brackets around an address that contains a colon).

    Raises
    ------
    ConfigError
        The text does not have this form.
    """
    user, _, rest = text.removeprefix("ssh://").rstrip("/").rpartition("@")
    match = re.fullmatch(r"\[([^]]+)\](?::(\d+))?", rest) or re.fullmatch(r"([^:]+)(?::(\d+))?", rest)
    if match is None:
        raise ConfigError(
            f"{text!r} is not a valid jump host.",
            hint="Correct ProxyJump in ~/.ssh/config, or `jump` in the profile. Write an IPv6 address in "
            "brackets: [ADDRESS].",
        )
    return user or None, match[1], int(match[2]) if match[2] else None
