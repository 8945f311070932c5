"""Watch over a call that waits for a silent link: the caller is notified in one line, and may cancel the call."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from typing import TYPE_CHECKING

from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import SlurmError

if TYPE_CHECKING:
    from jupyter_slurm.agent.client.agent_client import AgentClient

__all__ = ["LinkWatch", "create_link_watch"]

_CLUSTER_PATH = re.compile(r"/v1/clusters/([^/]+)/.")
_STATUS_TIMEOUT_S = 5.0  # seconds for an answer that needs no request to Slurm


class LinkWatch:
    """Watch over the link of a cluster during one call.

    Parameters
    ----------
    client : AgentClient
        Client of the caller.
    cluster : str
        Id of the cluster.
    """

    def __init__(self, client: AgentClient, cluster: str) -> None:
        self._client, self._cluster = client, cluster
        self._is_reported = self._is_local = False
        self._clusters: set[str] = set()

    def report(self) -> None:
        """Notify the user, once, if the link is the cause of the wait."""
        if self._is_reported or self._is_local:
            return
        with contextlib.suppress(SlurmError):
            told = self._client.get(f"/v1/clusters/{self._cluster}", timeout=_STATUS_TIMEOUT_S)
            connection = told.get("connection") or {}
            self._is_local = not connection  # a Slurm of this machine
            if connection.get("state") == "lost":
                self._is_reported = True
                why = printable(connection["message"]).replace("\n", " ")
                _print_notice(f"The connection to {told['id']} does not answer ({why}). Waiting; interrupt to stop.")

    def interrupted(self) -> KeyboardInterrupt:
        """Return the error for an interrupt during a prompt."""
        from jupyter_slurm.client.interrupts import WaitInterrupted

        return WaitInterrupted(f"Interrupted: {self._cluster} has not answered.")

    def __call__(self) -> None:
        """Notify the user, and put the prompts of a reconnection to the user, which may be the cause of the wait."""
        self.report()
        if not self._is_reported:
            return
        from jupyter_slurm.client.login.prompt_display import answer_prompt  # that module imports this one

        with contextlib.suppress(SlurmError):
            for prompt in self._client.get("/v1/prompts", timeout=_STATUS_TIMEOUT_S):
                if prompt["cluster"] == self._cluster and prompt["questions"] and prompt["id"] not in self._clusters:
                    self._clusters.add(prompt["id"])
                    try:
                        answer_prompt(self._client, prompt, declines=False)
                    except SlurmError as error:  # this front end cannot ask the user, another one may
                        _print_notice(f"{error.message} {error.hint}".strip())


def _print_notice(text: str) -> None:
    sys.stderr.write(f"{printable(text)}\n")
    sys.stderr.flush()


def create_link_watch(client: AgentClient, path: str) -> LinkWatch | None:
    """Return a callback for the time in which a call has no answer; None if no notification is wanted.

    A background thread prints nothing: its text would appear under any cell.
    """
    found = _CLUSTER_PATH.match(path)
    is_heard = found is not None and threading.current_thread() is threading.main_thread()
    return LinkWatch(client, found[1]) if found is not None and is_heard else None
