"""The magics, as light stubs: their implementations are imported at first use."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import IPython

from jupyter_slurm.magics.cell_beginning import move_magic_up, read_question

if TYPE_CHECKING:
    from jupyter_slurm.magics.completion.completer import MatcherResult

__all__ = ["COMMANDS", "register", "unregister"]

COMMANDS = (
    "sacct",
    "sacctmgr",
    "sattach",
    "sbcast",
    "scancel",
    "scontrol",
    "sdiag",
    "sinfo",
    "sprio",
    "squeue",
    "sreport",
    "sshare",
    "sstat",
    "strigger",
)
"""Slurm commands with a line magic of their own."""

_COMPLETED = re.compile(
    r"(?:[\w., ]+=)?\s*(?P<line>%(?:%(?:sbatch|srun|remote|slurm)|"
    rf"sbatch|srun|remote|salloc|slurm|{'|'.join(COMMANDS)})\s.*)"
)

_Magic = Callable[..., Any]


def register(shell: Any) -> None:
    """Register the magics in a shell."""
    shell.register_magic_function(_batch_magic(shell), "line_cell", "sbatch")
    shell.register_magic_function(_run_magic(shell), "line_cell", "srun")
    shell.register_magic_function(_remote_magic(shell), "line_cell", "remote")
    shell.register_magic_function(_allocation_magic(shell), "line", "salloc")
    shell.register_magic_function(_slurm_magic(shell), "line_cell", "slurm")
    for command in COMMANDS:
        shell.register_magic_function(_command_magic(shell, command), "line", command)
    _forget_matcher(shell)
    for transform in (move_magic_up, read_question):
        if transform not in shell.input_transformers_cleanup:
            shell.input_transformers_cleanup.append(transform)
    if IPython.version_info >= (8, 6):  # earlier versions have another matcher API
        shell.Completer.custom_matchers.append(_matcher(shell))


def unregister(shell: Any) -> None:
    """Remove the magics of jupyter_slurm from a shell, and no others."""
    for table in shell.magics_manager.magics.values():
        for name in ("sbatch", "srun", "remote", "salloc", "slurm", *COMMANDS):
            if getattr(table.get(name), "__module__", None) == __name__:
                del table[name]
    _forget_matcher(shell)
    cleanup = shell.input_transformers_cleanup
    cleanup[:] = [transform for transform in cleanup if transform not in (move_magic_up, read_question)]


def _forget_matcher(shell: Any) -> None:
    matchers = shell.Completer.custom_matchers
    matchers[:] = [matcher for matcher in matchers if getattr(matcher, "matcher_identifier", "") != __name__]


def _matcher(shell: Any) -> _Magic:
    """Return the completer of the magic lines (IPython's Matcher API, version 2), which ignores other lines."""

    def match(context: Any) -> MatcherResult:
        found = _COMPLETED.fullmatch(context.text_until_cursor)
        if found is None:
            return {"completions": []}
        from jupyter_slurm.magics.completion.completer import complete

        lines = context.full_text.split("\n")
        return complete(shell, found["line"], "\n".join(lines[context.cursor_line + 1 :]))

    # IPython's @context_matcher sets this; its import is too expensive for a function that may never be called.
    match.matcher_api_version = 2  # type: ignore[attr-defined]
    match.matcher_identifier = __name__  # type: ignore[attr-defined]
    return match


def _batch_magic(shell: Any) -> _Magic:
    def sbatch(line: str, cell: str | None = None, local_ns: Mapping[str, object] | None = None) -> Any:
        _start_agent()
        from jupyter_slurm.magics.sbatch import submit_cell, submit_file

        if cell is None:
            return submit_file(shell, line, local_ns or {})
        return submit_cell(shell, line, cell, _callers_names(shell))

    return _dress(sbatch, "sbatch")


def _start_agent() -> None:
    """Start an agent while the implementation of the first magic is imported."""
    if "jupyter_slurm.client.clusters.cluster" not in sys.modules:
        from jupyter_slurm.client.agent_start import start_agent_early

        start_agent_early()


def _run_magic(shell: Any) -> _Magic:
    def srun(line: str, cell: str | None = None, local_ns: Mapping[str, object] | None = None) -> Any:
        from jupyter_slurm.magics.srun import run_cell, run_command

        if cell is None:
            return run_command(shell, line, local_ns or {})
        return run_cell(shell, line, cell, _callers_names(shell))

    return _dress(srun, "srun")


def _remote_magic(shell: Any) -> _Magic:
    def remote(line: str, cell: str | None = None, local_ns: Mapping[str, object] | None = None) -> Any:
        from jupyter_slurm.magics.remote import run_cell, run_line

        if cell is None:
            return run_line(shell, line, local_ns or {})
        return run_cell(shell, line, cell, _callers_names(shell))

    return _dress(remote, "remote")


def _callers_names(shell: Any) -> Mapping[str, object]:
    """Return the variables of the caller of run_cell_magic(): IPython passes them to line magics only."""
    frame, runs = sys._getframe(1), type(shell).run_cell_magic.__code__
    while frame.f_code is not runs and frame.f_back is not None:
        frame = frame.f_back
    caller = frame.f_back
    return {} if caller is None or caller.f_locals is shell.user_ns else caller.f_locals


def _allocation_magic(shell: Any) -> _Magic:
    def salloc(line: str, local_ns: Mapping[str, object] | None = None) -> Any:
        _start_agent()
        from jupyter_slurm.magics.salloc import run

        return run(shell, line, local_ns or {})

    return _dress(salloc, "salloc")


def _slurm_magic(shell: Any) -> _Magic:
    def slurm(line: str, cell: str | None = None, local_ns: Mapping[str, object] | None = None) -> Any:
        from jupyter_slurm.magics.slurm import run, run_cell

        return run(shell, line, local_ns or {}) if cell is None else run_cell(shell, line, cell)

    return _dress(slurm, "slurm")


def _command_magic(shell: Any, command: str) -> _Magic:
    def magic(line: str, local_ns: Mapping[str, object] | None = None) -> Any:
        from jupyter_slurm.magics.slurm_commands import run

        return run(shell, command, line, local_ns or {})

    return _dress(magic, command)


def _dress(magic: Any, name: str) -> _Magic:
    """Set IPython's attributes of a magic: jupyter_slurm expands names, and ``?`` requests the help lazily."""

    def getdoc() -> str:
        from jupyter_slurm.magics.help import help_for

        return help_for(name)

    magic.__name__ = magic.__qualname__ = name
    magic.getdoc = getdoc
    magic.needs_local_scope = True
    # set by IPython's @no_var_expand; the expansion would mangle awk '{print}'
    magic._ipython_magic_no_var_expand = True
    return magic  # type: ignore[no-any-return]
