"""Slurm installations: that of this machine, or one unpacked into its own directory."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from jupyter_slurm.embedded.machine.packages import command_to_install, find_program, missing_packages
from jupyter_slurm.errors import EmbeddedError, MissingPackages

__all__ = ["Installation", "refuse_missing"]


def refuse_missing(packages: Sequence[str]) -> None:
    """Raise MissingPackages with the command that installs them as the hint, if packages are missing."""
    if packages:
        raise MissingPackages(
            f"The embedded cluster needs system packages that are not installed: {', '.join(packages)}.",
            hint=command_to_install(packages),
            packages=list(packages),
        )


@dataclass(frozen=True, eq=False)
class Installation:
    """The Slurm of this machine."""

    def program(self, name: str) -> str:
        """Return the absolute path of a program. Raises EmbeddedError if it does not exist."""
        path = find_program(name)
        if path is None:
            raise EmbeddedError(f"{name} is not installed on this computer.", hint="Install it, and try again.")
        return path

    def check(self, *, accounting: bool) -> None:
        """Raise MissingPackages with the command that installs them as the hint, unless all needed programs exist."""
        refuse_missing(missing_packages(accounting=accounting))

    @property
    def root(self) -> str:
        """Return the directory of an unpacked Slurm; empty for that of this machine."""
        return ""

    @property
    def path(self) -> str:
        """Return the addition to PATH for the commands; empty for those of this machine."""
        return ""

    @property
    def plugin_dir(self) -> str:
        """Return the PluginDir of slurm.conf; empty for the built-in path."""
        return ""

    @property
    def stepd(self) -> str:
        """Return the path of slurmstepd for slurmd; empty for the built-in path."""
        return ""

    @cached_property
    def version(self) -> tuple[int, int]:
        """Return the major and minor version, such as (22, 5)."""
        text = subprocess.run([self.program("slurmd"), "-V"], capture_output=True, text=True, check=False).stdout
        match = re.search(r"(\d+)\.(\d+)", text)
        if match is None:
            raise EmbeddedError(
                f"The command slurmd -V printed {text!r}, which is not a version of Slurm.", hint="Reinstall Slurm."
            )
        return int(match[1]), int(match[2])
