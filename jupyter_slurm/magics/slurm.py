"""``%slurm``: which cluster this notebook uses, and sessions there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from jupyter_slurm.domain.line import tokenize
from jupyter_slurm.errors import UsageError
from jupyter_slurm.handles import cluster as clusters
from jupyter_slurm.handles.table import CommandText
from jupyter_slurm.handles.terminal import printable
from jupyter_slurm.handles.tunnel import tunnels
from jupyter_slurm.handles.users import lines

if TYPE_CHECKING:
    from jupyter_slurm.handles.session import Session

__all__ = ["USES", "run"]

USES = {
    "use": "%slurm use CLUSTER (a site profile), or %slurm use local",
    "disconnect": "%slurm disconnect CLUSTER",
    "list": "%slurm list",
    "launch": "%slurm launch [CLUSTER] [options of sbatch] [words] [-- command with a {port}]",
}
"""The words of ``%slurm``, and how each is used."""


def run(shell: Any, line: str, local_ns: Mapping[str, Any]) -> CommandText | Session | None:
    """Run ``%slurm use NAME``, ``%slurm disconnect NAME``, ``%slurm list`` or ``%slurm launch …``."""
    if (found := re.match(r"\s*launch(?=\s|$)", line)) is not None:
        from jupyter_slurm.magics.sessions import run as launch  # few do

        return launch(shell, line[found.end() :], local_ns)
    words = [token.text for token in tokenize(line)]
    action = words[0] if words else "list"
    if action not in USES:
        near = get_close_matches(action, USES, n=1)
        raise UsageError(
            f"%slurm has no word {action!r}" + (f"; did you mean {near[0]!r}?" if near else "."),
            hint="; ".join(USES.values()),
        )
    if len(words[1:]) != (action != "list"):
        raise UsageError(f"%slurm {action} takes {'no' if action == 'list' else 'one'} name.", hint=USES[action])
    if action == "use":
        cluster = clusters.use(words[1])
        return CommandText(f"This notebook uses {cluster.name} from now on.\n")
    if action == "disconnect":
        done = clusters.disconnect(words[1])
        return CommandText(f"Disconnected from {words[1]}. Jobs go on.\n" if done else "Nothing was done.\n")
    opened = [printable(repr(one)) for each in clusters.every() for one in tunnels(each)]
    told = [f"{name}  {state}\n{lines(users)}" for name, state, users in clusters.overview()]
    return CommandText("".join([*told, *(f"{one}\n" for one in opened)]))
