"""Magics ``%slurm sh``, ``%%slurm sh`` and ``%slurm man``: commands on the login node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from jupyter_slurm.client.clusters.login_command import CapturedText, LimitedText, run_login_command
from jupyter_slurm.client.output import live_view
from jupyter_slurm.client.settings import settings
from jupyter_slurm.errors import UsageError
from jupyter_slurm.sites.profile import list_profiles

__all__ = ["MANUAL_USAGE", "SH_USAGE", "run_cell", "run_line", "run_manual", "run_text"]

SH_USAGE = "%slurm sh [out=NAME] COMMAND, or %%slurm sh [out=NAME] with the commands in the cell"
"""The usage of ``%slurm sh``."""

MANUAL_USAGE = "%slurm man PAGE"
"""The usage of ``%slurm man``."""

_SH_HINT = "Use `%slurm sh [out=NAME] COMMAND`, or `%%slurm sh [out=NAME]` with the commands in the cell."
_PAGE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_OUT = re.compile(r"\s*out=(?P<name>\S*)(?:\s+|$)")
_END_OF_OPTIONS = re.compile(r"--(?:\s+|$)")  # as in a terminal: `jupyter slurm sh -- ls`


def run_line(shell: Any, line: str) -> None:
    """Run the command of a line, unchanged: the login shell reads its quotes and variables."""
    name, command = _split(line)
    first, marker, rest = command.partition(" -- ")
    if marker and first in ("local", *list_profiles(settings().sites)):  # as in a terminal
        raise UsageError(
            f"{first} is a cluster, and %slurm sh takes none: it uses the cluster of the notebook.",
            hint=f"Choose the cluster first: `%slurm use {first}`, then `%slurm sh {rest}`.",
        )
    _run(shell, command, name)


def run_cell(shell: Any, line: str, cell: str) -> None:
    """Run the commands of a cell."""
    name, rest = _split(line)
    if rest:
        raise UsageError(f"%%slurm sh has no keyword {rest!r}.", hint=_SH_HINT)
    _run(shell, cell, name)


def run_text(shell: Any, text: str) -> None:
    """Run a text in the login shell, and show its output as it arrives."""
    _run(shell, text, "")


def run_manual(shell: Any, words: Sequence[str]) -> None:
    """Show the manual page of the cluster's own Slurm for a command or a file, such as ``sbatch`` or ``slurm.conf``."""
    if len(words) != 1 or _PAGE.fullmatch(words[0]) is None:
        raise UsageError(
            "%slurm man takes the name of one manual page.", hint=f"Use `{MANUAL_USAGE}`, such as `%slurm man sbatch`."
        )
    run_text(shell, f"MANPAGER=cat PAGER=cat man {words[0]}")


def _split(line: str) -> tuple[str, str]:
    """Return the name of ``out=``, empty if there is none, and the command."""
    found = _OUT.match(line)
    if found is not None and not found["name"].isidentifier():
        raise UsageError(f"out={found['name']}: this is not a name of a variable.", hint=_SH_HINT)
    rest = line[found.end() if found else 0 :].strip()
    marker = _END_OF_OPTIONS.match(rest)
    return found["name"] if found else "", rest[marker.end() :] if marker else rest


def _run(shell: Any, text: str, name: str) -> None:
    limit = settings().output_limit if live_view.notebook() is not None else None
    captured, texts = CapturedText(), {stream: LimitedText(stream, limit) for stream in ("stdout", "stderr")}
    out = captured.show if name else texts["stdout"].show
    try:
        run_login_command(text, out=out, err=texts["stderr"].show)
    finally:
        for one in texts.values():
            one.finish()
        if name:
            shell.push({name: captured.text()})
