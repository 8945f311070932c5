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

__all__ = ["LinkWatch", "while_waiting"]

_OF_A_CLUSTER = re.compile(r"/v1/clusters/([^/]+)/.")
_LOOK = 5.0  # seconds for an answer that needs no request to Slurm


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
        self._is_told = self._is_here = False
        self._asked: set[str] = set()

    def tell(self) -> None:
        """Notify the user, once, if the link is the cause of the wait."""
        if self._is_told or self._is_here:
            return
        with contextlib.suppress(SlurmError):
            told = self._client.get(f"/v1/clusters/{self._cluster}", timeout=_LOOK)
            connection = told.get("connection") or {}
            self._is_here = not connection  # a Slurm of this machine
            if connection.get("state") == "lost":
                self._is_told = True
                why = printable(connection["message"]).replace("\n", " ")
                _say(
                    f"The link to {told['id']} does not answer ({why}). It is waited for; interrupt to give up waiting."
                )

    def interrupted(self) -> KeyboardInterrupt:
        """Return the error for an interrupt during a prompt."""
        from jupyter_slurm.client.interrupts import WaitInterrupted

        return WaitInterrupted(f"Interrupted: {self._cluster} had not answered.")

    def __call__(self) -> None:
        """Notify the user, and put the prompts of a reconnection to the user, which may be the cause of the wait."""
        self.tell()
        if not self._is_told:
            return
        from jupyter_slurm.client.login.prompts import put  # that module imports this one

        with contextlib.suppress(SlurmError):
            for prompt in self._client.get("/v1/prompts", timeout=_LOOK):
                if prompt["cluster"] == self._cluster and prompt["questions"] and prompt["id"] not in self._asked:
                    self._asked.add(prompt["id"])
                    try:
                        put(self._client, prompt, declines=False)
                    except SlurmError as error:  # this front end cannot ask the user, another one may
                        _say(f"{error.message} {error.hint}".strip())


def _say(text: str) -> None:
    sys.stderr.write(f"{printable(text)}\n")
    sys.stderr.flush()


def while_waiting(client: AgentClient, path: str) -> LinkWatch | None:
    """Return a callback for the time in which a call has no answer; None if no notification is wanted.

    A background thread prints nothing: its text would appear under any cell.
    """
    found = _OF_A_CLUSTER.match(path)
    is_heard = found is not None and threading.current_thread() is threading.main_thread()
    return LinkWatch(client, found[1]) if found is not None and is_heard else None
