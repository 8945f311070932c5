"""The prelude of a cluster: what a person has the far shell do first, so that Slurm is found there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from jupyter_slurm.domain.scripts.environments import module_command
from jupyter_slurm.domain.scripts.script import quote_argv
from jupyter_slurm.transport.ssh.prompts import printable

__all__ = ["PreludeEnd", "prelude_text"]

_MOST: Final = 2000  # characters
# Words of Modules and Lmod. Their start takes a tenth of a second and sets variables: it is for those who use them.
_MODULES: Final = re.compile(r"(?<![\w/.-])(module|ml)(?![\w/.-])")


@dataclass(frozen=True)
class PreludeEnd:
    """How a prelude ended.

    Attributes
    ----------
    exit_code : int
        Of its last command.
    said : str
        What it printed on stderr, of a long text the end.
    """

    exit_code: int
    said: str

    @classmethod
    def told(cls, exit_code: int, stderr: bytes) -> PreludeEnd:
        """Return it, from what a shell told."""
        return cls(exit_code, printable(stderr[-_MOST:], _MOST).strip())

    def __str__(self) -> str:
        """Return it in words, or nothing where there is nothing to tell."""
        if not self.exit_code and not self.said:
            return ""
        return f"The prelude ended with exit code {self.exit_code}" + (f": {self.said}" if self.said else "")


def prelude_text(prelude: str) -> str:
    """Return the shell text that runs a prelude and keeps its exit code as ``js_prelude``.

    The far shell is a ``/bin/sh``, which start-up files have often told nothing of Modules or Lmod: where the prelude
    uses them, they are made known first.
    """
    first = module_command("sh") if _MODULES.search(prelude) else ""
    run = f"eval {quote_argv([prelude])}" if prelude else ":"
    return f"{{ {first}{run}\n}} </dev/null; js_prelude=$?\n"
