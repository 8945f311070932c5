"""Login shells: how each runs a text after its start-up files, whose output is told apart from that of the text."""

from __future__ import annotations

import posixpath
from typing import Final

__all__ = ["AfterStartup", "ahead_argv", "shell_argv"]

MAX_NOISE_BYTES: Final = 1 << 16
"""Output of start-up files that is kept for an error message, in bytes."""

# The file with the text is the argument after these. Aliases and functions of start-up files do not replace the echo.
_POSIX: Final = '{wait}command echo {mark}; command echo {mark} >&2; . "$0"'
_FISH: Final = "{wait}builtin echo {mark}; builtin echo {mark} >&2; source $argv[1]"
# csh takes no -c after -l, so that it reads the files of a login itself.
_CSH_LOGIN: Final = "if (-r /etc/csh.login) source /etc/csh.login; if (-r ~/.login) source ~/.login; "
_CSH: Final = "'/bin/sh' -c '{wait}echo {mark}; echo {mark} >&2' \"$argv[1]\"; source \"$argv[1]\""
# Shells that do the same, whether they wait or not; the redirection waits for the file.
_POSIX_WAIT: Final = 'command true <"$0.go"; '
_WAITS: Final = {
    **dict.fromkeys(("bash", "dash", "sh", "zsh"), _POSIX_WAIT),
    "fish": 'builtin true <"$argv[1].go"; ',
    **dict.fromkeys(("csh", "tcsh"), ': <"$0.go"; '),
}
_NO_SHELLS: Final = ("", "false", "nologin")


def shell_argv(shell: str, mark: str, *, is_login: bool) -> list[str]:
    """Return the command that runs a file as this login shell; the path of the file is its last argument.

    Parameters
    ----------
    shell : str
        Path of the user's login shell.
    mark : str
        Line that both streams have between the output of the start-up files and that of the text; letters and digits.
    is_login : bool
        Whether the shell reads the start-up files of a login, too. With Modules or Lmod these take a tenth of a second
        or more, and ``ssh HOST COMMAND`` does not read them either.
    """
    return _argv(shell, mark, is_login, "")


def ahead_argv(shell: str, mark: str, *, is_login: bool) -> list[str] | None:
    """Return the same command, which waits after its start-up files until it can open the file with ``.go`` appended.

    None: it is not known whether this shell would do the same.
    """
    wait = _WAITS.get(posixpath.basename(shell))
    return None if wait is None else _argv(shell, mark, is_login, wait)


def _argv(shell: str, mark: str, is_login: bool, wait: str) -> list[str]:
    name, login = posixpath.basename(shell), ["-l"] if is_login else []
    if name in _NO_SHELLS:
        return ["/bin/sh", *login, "-c", _POSIX.format(mark=mark, wait=wait)]
    if name in ("csh", "tcsh"):
        return [shell, "-c", (_CSH_LOGIN if is_login else "") + _CSH.format(mark=mark, wait=wait)]
    return [shell, *login, "-c", (_FISH if name == "fish" else _POSIX).format(mark=mark, wait=wait)]


class AfterStartup:
    """One stream of a login shell, without the output of its start-up files.

    Parameters
    ----------
    mark : str
        See :func:`shell_argv`.
    """

    def __init__(self, mark: str) -> None:
        self._mark, self._held = mark.encode("ascii") + b"\n", b""
        self.has_begun = False

    @property
    def noise(self) -> bytes:
        """Return the end of the output of start-up files, if the text has not begun."""
        return self._held

    def feed(self, data: bytes) -> bytes:
        """Return the output of the text in new data."""
        if self.has_begun:
            return data
        before, found, rest = (self._held + data).partition(self._mark)
        self.has_begun = bool(found)
        self._held = b"" if found else before[-MAX_NOISE_BYTES:]
        return rest
