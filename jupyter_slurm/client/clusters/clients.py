"""Clients of the agent that share a login: the description of this process, and the list of the others."""

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

__all__ = ["lines", "may_end", "notebook", "other_clients", "whoami"]

_MAX_NAME_CHARACTERS = 255  # openapi.yaml, Client
_CLIENT_KIND_NAMES = {"kernel": "notebook", "terminal": "terminal"}


def whoami() -> api.Client:
    """Return the description of this process for the agent: a kernel and its notebook, or a command."""
    path = notebook()
    if path is None:
        return {"kind": "terminal", "name": os.path.basename(sys.argv[0] if sys.argv else "")[:_MAX_NAME_CHARACTERS]}
    return {"kind": "kernel", "name": os.path.basename(path)[:_MAX_NAME_CHARACTERS]}


def notebook() -> str | None:
    """Return the path of the notebook of this kernel, empty if unknown; None if this process is no kernel."""
    # Only this part of IPython is used: a thread of a script may be importing the rest.
    get_ipython = getattr(sys.modules.get("IPython.core.getipython"), "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    # The Jupyter server sets an environment variable, VS Code a variable in the notebook's namespace.
    return os.environ.get("JPY_SESSION_NAME") or str(shell.user_ns.get("__vsc_ipynb_file__", ""))


def other_clients(cluster: api.Cluster) -> list[api.User]:
    """Return the other clients that use the login to a cluster (an API object)."""
    return [user for user in cluster.get("users", ()) if user["pid"] != os.getpid()]


def lines(users: Sequence[api.User]) -> str:
    """Return a line for each client: its description, and since when it uses the login."""
    told = []
    for user in users:
        kind = _CLIENT_KIND_NAMES.get(user["kind"], user["kind"])
        process = f", process {user['pid']}" if user["pid"] else ""
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(user["since"]))
        name = printable(f"{user['name']} ({kind}{process})" if user["name"] else f"{kind}{process}").replace("\n", " ")
        told.append(f"    {name} since {since}\n")
    return "".join(told)


def may_end(name: str, users: Sequence[api.User]) -> bool:
    """Name the other users of a login before its end, and ask. A notebook that is executed as a whole may end it.

    Raises
    ------
    UsageError
        This process is a script, which cannot ask the user.
    """
    number = f"{len(users)} other{'s' if len(users) > 1 else ''} use{'' if len(users) > 1 else 's'} this login"
    sys.stdout.write(f"{number}:\n{lines(users)}")
    sys.stdout.flush()
    if whoami()["kind"] != "kernel" and not (sys.stdin and sys.stdin.isatty()):
        raise UsageError(
            f"The login to {name} was not ended: other clients use it, and a script cannot ask for confirmation.",
            hint=f"Use `jupyter slurm disconnect --yes {name}` to end the login anyway.",
        )
    try:
        return input(f"Disconnect from {name} anyway? [y/n] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
    except (OSError, RuntimeError, NotImplementedError):  # a notebook that is executed as a whole
        return True
