"""What this process is to others who share a log-in, and what they are to it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["lines", "may_end", "notebook", "others", "whoami"]

_LONGEST = 255  # openapi.yaml, Client
_WORDS = {"kernel": "notebook", "terminal": "terminal"}


def whoami() -> api.Client:
    """Return what this process tells the agent of itself: a kernel and its notebook, or a command."""
    path = notebook()
    if path is None:
        return {"kind": "terminal", "name": os.path.basename(sys.argv[0] if sys.argv else "")[:_LONGEST]}
    return {"kind": "kernel", "name": os.path.basename(path)[:_LONGEST]}


def notebook() -> str | None:
    """Return the path of the notebook whose kernel this is, empty where it is not known; None: this is no kernel."""
    # Of IPython this alone is asked for: a thread of a script may be about to import the rest.
    get_ipython = getattr(sys.modules.get("IPython.core.getipython"), "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    # The Jupyter server says it in the environment, VS Code in the notebook's own names.
    return os.environ.get("JPY_SESSION_NAME") or str(shell.user_ns.get("__vsc_ipynb_file__", ""))


def others(cluster: api.Cluster) -> list[api.User]:
    """Return who uses the log-in to a cluster (as the agent tells it) beside this process."""
    return [user for user in cluster.get("users", ()) if user["pid"] != os.getpid()]


def lines(users: Sequence[api.User]) -> str:
    """Return a line for each: what it is, and since when it uses the log-in."""
    told = []
    for user in users:
        kind = _WORDS.get(user["kind"], user["kind"])
        process = f", process {user['pid']}" if user["pid"] else ""
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(user["since"]))
        name = printable(f"{user['name']} ({kind}{process})" if user["name"] else f"{kind}{process}").replace("\n", " ")
        told.append(f"    {name} since {since}\n")
    return "".join(told)


def may_end(name: str, users: Sequence[api.User]) -> bool:
    """Say who else uses the log-in that is about to be ended, and ask; a notebook that is executed as a whole may.

    Raises
    ------
    UsageError
        This is a script, where nobody can be asked.
    """
    number = f"{len(users)} other{'s' if len(users) > 1 else ''} use{'' if len(users) > 1 else 's'} this log-in"
    sys.stdout.write(f"{number}:\n{lines(users)}")
    sys.stdout.flush()
    if whoami()["kind"] != "kernel" and not (sys.stdin and sys.stdin.isatty()):
        raise UsageError(
            f"Others use the log-in to {name}, and nobody can be asked here: it was not ended.",
            hint=f"`jupyter slurm disconnect --yes {name}` ends it all the same.",
        )
    try:
        return input(f"Disconnect from {name} all the same? [y/n] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
    except (OSError, RuntimeError, NotImplementedError):  # a notebook that is executed as a whole
        return True
