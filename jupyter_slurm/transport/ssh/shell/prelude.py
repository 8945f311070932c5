"""The prelude of a cluster: the user's commands for the remote shell, so that Slurm is found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from jupyter_slurm.domain.scripts.environments import module_command
from jupyter_slurm.domain.scripts.script import quote_argv
from jupyter_slurm.transport.ssh.prompts import printable

__all__ = ["PreludeEnd", "no_command_hint", "prelude_text"]

_MAX_PRELUDE_CHARACTERS: Final = 2000  # characters
# Commands of Modules and Lmod. Their start takes a tenth of a second and sets variables, so only their users get it.
_MODULES: Final = re.compile(r"(?<![\w/.-])(module|ml)(?![\w/.-])")


@dataclass(frozen=True)
class PreludeEnd:
    """Result of a prelude: its exit code and its error output.

    Attributes
    ----------
    exit_code : int
        Exit code of its last command.
    said : str
        Its standard error, truncated to the end.
    """

    exit_code: int
    output: str

    @classmethod
    def from_shell(cls, exit_code: int, stderr: bytes) -> PreludeEnd:
        """Parse the value in a shell's answer."""
        return cls(exit_code, printable(stderr[-_MAX_PRELUDE_CHARACTERS:], _MAX_PRELUDE_CHARACTERS).strip())

    def __str__(self) -> str:
        """Return the end in words; empty if there is nothing to report."""
        if not self.exit_code and not self.output:
            return ""
        return f"The prelude ended with exit code {self.exit_code}" + (f": {self.output}" if self.output else "")


def prelude_text(prelude: str) -> str:
    """Return the shell text that runs a prelude and keeps its exit code as ``js_prelude``.

    The remote shell is a ``/bin/sh``, which often has no definition of Modules or Lmod. If the prelude uses them, the
    text defines them first.
    """
    first = module_command("sh") if _MODULES.search(prelude) else ""
    run = f"eval {quote_argv([prelude])}" if prelude else ":"
    return f"{{ {first}{run}\n}} </dev/null; js_prelude=$?\n"


def no_command_hint(message: str = "") -> str:
    """Return the advice for a login shell that runs no command and printed this message."""
    if re.search("password has expired|password change required", message, re.IGNORECASE):
        return (
            "The host runs no command until you have changed your password. Run `ssh HOST` in a terminal, and type a "
            "new password."
        )
    return (
        "Run `ssh HOST` in a terminal to see the cause. If your password has expired, change it in that terminal. "
        "Check that your start-up files (.bashrc, .zshrc, .cshrc, config.fish) do not end the shell, replace it (exec "
        "fish) or wait for input. "
        "If they are slow, set `patience` (seconds) under [shell] in the profile."
    )
