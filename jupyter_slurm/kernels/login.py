"""The cluster of a kernel, and the log-in that it takes: a person answers at another front door, and is asked once."""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from jupyter_slurm.client.clusters.cluster import chosen, registered
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.kernels.kernel import WORDS
from jupyter_slurm.client.render.job_card import sentences
from jupyter_slurm.client.sessions.launch import named_in, there
from jupyter_slurm.domain.magic_line.parser import MagicLine, parse_cell_line
from jupyter_slurm.errors import HostKeyError, LoginFailed, SlurmError

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.domain import api_types as api

__all__ = ["ClusterLogin"]

_ANSWERS_WITHIN = 10.0  # seconds that the agent has for what it knows without asking


class ClusterLogin:
    """The way into the cluster that a kernelspec names.

    Parameters
    ----------
    words : sequence of str
        What the kernelspec asks for: cluster, options of sbatch, our words.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self._there: Cluster | None = None
        self._refusal: SlurmError | None = None  # by a host, or by the person
        self._asked: tuple[Future[None], SlurmError] | None = None  # a log-in that somebody has to answer for

    @property
    def cluster(self) -> Cluster:
        """The cluster, once :meth:`arrive` has been there."""
        assert self._there is not None
        return self._there

    def arrive(self) -> MagicLine:
        """Come to the cluster, logged in; return what is wanted there.

        Raises
        ------
        SlurmError
            It cannot be reached now. After a refusal nobody is asked again, until somebody has logged in elsewhere.
        """
        name, line = named_in(shlex.join(self._words))
        told = None if self._refusal is None else self._connection(registered(name or chosen()))
        if self._refusal is not None and (told is None or told["state"] != "connected"):
            raise self._refusal
        self._refusal = None
        try:
            self._hear()
            self._there = there(name)
        except (HostKeyError, LoginFailed) as error:
            self._refusal = error
            raise
        except SlurmError as error:
            if type(error) is SlurmError and self._asked is None:  # what is not ours to answer has no class of its own
                self._asked = _begun(registered(name or chosen()).log_in), error
            raise
        return parse_cell_line(line, option_table(self._there, "sbatch"), WORDS)

    def _hear(self) -> None:
        """Hear what somebody has answered; until then there is nothing new to say."""
        if self._asked is not None:
            answer, before = self._asked
            if not answer.done():
                raise before
            self._asked = None
            answer.result()

    def trouble(self) -> str:
        """Return what the way there waits for; empty: nobody knows, or nothing can be done about it."""
        cluster = self._there
        if cluster is None or not cluster.is_remote:
            return ""
        with contextlib.suppress(SlurmError):
            answer = f"`jupyter slurm connect {cluster.name}` in a terminal, or JupyterLab's panel"
            for prompt in cluster.client.get("/v1/prompts", timeout=_ANSWERS_WITHIN):
                if prompt["cluster"] == cluster.name and prompt["questions"]:
                    return f"{prompt['host']} asks for a log-in: {answer}, answers it."
            told = self._connection(cluster)
            if told is not None and told["state"] == "disconnected":
                return sentences(f"Nobody is logged in to {cluster.name}", told["message"], f"{answer}, logs in")
            if told is not None and told["state"] == "lost":
                return sentences(told["message"])
        return ""

    @staticmethod
    def _connection(cluster: Cluster) -> api.Connection | None:
        """Return how the log-in stands, by what the agent knows already."""
        known: list[api.Cluster] = cluster.client.get("/v1/clusters", timeout=_ANSWERS_WITHIN)
        return next((one.get("connection") for one in known if one["id"] == cluster.name), None)


def _begun(call: Callable[[], None]) -> Future[None]:
    """Make a call that nobody waits for at the end of this process."""
    made: Future[None] = Future()

    def make() -> None:
        try:
            call()
            made.set_result(None)
        except BaseException as error:  # noqa: BLE001 - it is raised where it is heard
            made.set_exception(error)

    threading.Thread(target=make, name="jupyter-slurm-log-in", daemon=True).start()
    return made
