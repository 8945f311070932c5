"""Login to the cluster of a kernel: the user answers prompts at another front end, once."""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from jupyter_slurm.client.clusters.cluster import chosen, registered
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.kernels.kernel import KEYWORDS
from jupyter_slurm.client.render.sentences import sentences
from jupyter_slurm.client.sessions.launch import named_in, resolve_cluster
from jupyter_slurm.domain.magic_line.parser import MagicLine, parse_cell_line
from jupyter_slurm.errors import HostKeyError, LoginFailed, SlurmError

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.domain import api_types as api

__all__ = ["ClusterLogin", "start_in_background"]

_T = TypeVar("_T")
_ANSWER_TIMEOUT_S = 10.0  # seconds for an answer of the agent without a request to Slurm


class ClusterLogin:
    """Login to the cluster that a kernelspec names.

    Parameters
    ----------
    arguments : sequence of str
        Request of the kernelspec: cluster, options of sbatch, keywords.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = list(arguments)
        self._cluster: Cluster | None = None
        self._refusal: SlurmError | None = None  # by a host, or by the user
        self._login_call: tuple[Future[None], SlurmError] | None = None  # a login that needs an answer of the user

    @property
    def cluster(self) -> Cluster:
        """Return the cluster after :meth:`arrive`."""
        assert self._cluster is not None
        return self._cluster

    def arrive(self) -> MagicLine:
        """Log in to the cluster; return the parsed request.

        Raises
        ------
        SlurmError
            The cluster cannot be reached now. After a refusal, no prompt appears until a login from another front end.
        """
        name, line = named_in(shlex.join(self._arguments))
        told = None if self._refusal is None else self._connection(registered(name or chosen()))
        if self._refusal is not None and (told is None or told["state"] != "connected"):
            raise self._refusal
        self._refusal = None
        try:
            self._check_login()
            self._cluster = resolve_cluster(name)
        except (HostKeyError, LoginFailed) as error:
            self._refusal = error
            raise
        except SlurmError as error:
            if (
                type(error) is SlurmError and self._login_call is None
            ):  # a prompt for another front end raises no subclass
                self._login_call = start_in_background(registered(name or chosen()).log_in), error
            raise
        return parse_cell_line(line, option_table(self._cluster, "sbatch"), KEYWORDS)

    def _check_login(self) -> None:
        """Receive the result of a login prompt; until then nothing changes."""
        if self._login_call is not None:
            answer, before = self._login_call
            if not answer.done():
                raise before
            self._login_call = None
            answer.result()

    def trouble(self) -> str:
        """Return the cause of a connection outage; empty if it is unknown, or the user cannot remove it."""
        cluster = self._cluster
        if cluster is None or not cluster.is_remote:
            return ""
        with contextlib.suppress(SlurmError):
            answer = f"a terminal with `jupyter slurm connect {cluster.name}`, or in JupyterLab's panel"
            for prompt in cluster.client.get("/v1/prompts", timeout=_ANSWER_TIMEOUT_S):
                if prompt["cluster"] == cluster.name and prompt["questions"]:
                    return f"{prompt['host']} asks for a login. Answer in {answer}."
            told = self._connection(cluster)
            if told is not None and told["state"] == "disconnected":
                return sentences(f"There is no connection to {cluster.name}", told["message"], f"Log in from {answer}")
            if told is not None and told["state"] == "lost":
                return sentences(told["message"])
        return ""

    @staticmethod
    def _connection(cluster: Cluster) -> api.Connection | None:
        """Return the state of the login, as the agent knows it without a request."""
        known: list[api.Cluster] = cluster.client.get("/v1/clusters", timeout=_ANSWER_TIMEOUT_S)
        return next((one.get("connection") for one in known if one["id"] == cluster.name), None)


def start_in_background(call: Callable[[], _T]) -> Future[_T]:
    """Start a call that does not delay the end of this process."""
    made: Future[_T] = Future()

    def make() -> None:
        if not made.set_running_or_notify_cancel():
            return
        try:
            made.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is heard
            made.set_exception(error)

    threading.Thread(target=make, name="jupyter-slurm-call", daemon=True).start()
    return made
