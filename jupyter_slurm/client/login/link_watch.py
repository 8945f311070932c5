"""A call that waits for a link which does not answer: who made it is told so, in one line, and may give it up."""

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
_LOOK = 5.0  # seconds that the agent has for what it knows without asking


class LinkWatch:
    """That of a cluster while one call waits.

    Parameters
    ----------
    client : AgentClient
        Who calls.
    cluster : str
        Its id.
    """

    def __init__(self, client: AgentClient, cluster: str) -> None:
        self._client, self._cluster = client, cluster
        self._is_told = self._is_here = False
        self._asked: set[str] = set()

    def tell(self) -> None:
        """Say so, once, if it is the link that is waited for."""
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
        """Return what an interrupt of a question means."""
        from jupyter_slurm.client.interrupts import WaitInterrupted

        return WaitInterrupted(f"Interrupted: {self._cluster} had not answered.")

    def __call__(self) -> None:
        """Say so, and put to the person what hosts ask when the link is made again: it may be waited for that, too."""
        self.tell()
        if not self._is_told:
            return
        from jupyter_slurm.client.login.prompts import put  # it uses this

        with contextlib.suppress(SlurmError):
            for prompt in self._client.get("/v1/prompts", timeout=_LOOK):
                if prompt["cluster"] == self._cluster and prompt["questions"] and prompt["id"] not in self._asked:
                    self._asked.add(prompt["id"])
                    try:
                        put(self._client, prompt, declines=False)
                    except SlurmError as error:  # nobody can be asked here; somebody may be, somewhere else
                        _say(f"{error.message} {error.hint}".strip())


def _say(text: str) -> None:
    sys.stderr.write(f"{printable(text)}\n")
    sys.stderr.flush()


def while_waiting(client: AgentClient, path: str) -> LinkWatch | None:
    """Return what is to be done now and then while a call has no answer; None where that is nobody's business.

    Of a thread in the background nothing is said: it would stand under any cell.
    """
    found = _OF_A_CLUSTER.match(path)
    is_heard = found is not None and threading.current_thread() is threading.main_thread()
    return LinkWatch(client, found[1]) if found is not None and is_heard else None
