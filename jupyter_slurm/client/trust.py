"""Trust in clusters: whether what comes back from one may run code on this computer (pickles, scripts in displays)."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
from typing import TYPE_CHECKING, Final

from jupyter_slurm.agent.hosting.discovery import read_private, write_private
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.client.settings import settings
from jupyter_slurm.documentation import page_url
from jupyter_slurm.errors import ConfigError

if TYPE_CHECKING:
    from jupyter_slurm.config import Settings

__all__ = ["HOW_TO_TRUST", "ask_trust", "is_trusted"]

_FILE: Final = "trusted-clusters.json"
HOW_TO_TRUST: Final = (
    f'To trust the cluster, write trust = "always" as the first line of its site profile: '
    f"{page_url('explanation/trust')}"
)

_declined: set[str] = set()  # clusters that the user of this process does not trust


def is_trusted(cluster: str, chosen: Settings | None = None) -> bool:
    """Return whether code from a cluster may run on this computer, without a question to the user.

    Slurm of this computer is trusted: its jobs run as this user, with the same files.

    Parameters
    ----------
    cluster : str
        Name of the cluster.
    chosen : Settings, optional
        Settings; default: those of this process.
    """
    if cluster == "local" or cluster.startswith("local-"):
        return True
    chosen = chosen or settings()
    setting, host = _setting(cluster, chosen)
    return setting == "always" or (setting == "ask" and _remembered(chosen).get(cluster) == host)


def ask_trust(cluster: str, what: str) -> bool:
    """Return whether code from a cluster may run in this process; ask the user once, if there is one, and remember it.

    Parameters
    ----------
    cluster : str
        Name of the cluster.
    what : str
        What would be loaded, for the question.
    """
    if is_trusted(cluster):
        return True
    setting, host = _setting(cluster, settings())
    if setting != "ask" or cluster in _declined or threading.current_thread() is not threading.main_thread():
        return False
    question = (
        f"{what} can only be loaded from a pickle, which can run code on this computer. "
        f"Trust the cluster {cluster} ({host}) from now on? (yes/no) "
    )
    try:
        answer = input(printable(question))
    except (EOFError, OSError, RuntimeError, NotImplementedError):  # nobody can be asked
        return False
    if answer.strip().lower() not in ("y", "yes"):
        _declined.add(cluster)
        return False
    _remember(cluster, host)
    return True


def _setting(cluster: str, chosen: Settings) -> tuple[str, str]:
    """Return the setting for a cluster, and its login node."""
    from jupyter_slurm.sites.profile import read_profile  # checks schemas; most processes need none

    setting: str = chosen.trust
    try:
        path, raw = read_profile(cluster, chosen.sites)
        own, host = _of_profile(cluster, raw, path)
    except ConfigError:  # without a valid profile there is no login to the cluster either
        return setting, ""
    return own or setting, host


@functools.lru_cache(maxsize=64)
def _of_profile(name: str, raw: bytes, path: str) -> tuple[str | None, str]:
    from jupyter_slurm.sites.profile import parse_profile

    profile = parse_profile(name, raw, path)
    return profile.trust, profile.host


def _remembered(chosen: Settings) -> dict[str, str]:
    """Return the login nodes of trusted clusters, by name: another host of that name is another cluster."""
    try:
        found = json.loads(read_private(os.path.join(chosen.state_dir, _FILE)))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _remember(cluster: str, host: str) -> None:
    known = {**_remembered(settings()), cluster: host}
    with contextlib.suppress(OSError):  # then it is asked again
        os.makedirs(settings().state_dir, mode=0o700, exist_ok=True)
        write_private(os.path.join(settings().state_dir, _FILE), json.dumps(known).encode())
