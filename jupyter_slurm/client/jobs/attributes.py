"""Attributes of a job, read from its API object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_slurm.client.render.job_card import is_finished
from jupyter_slurm.domain.queries.cluster import expand_hosts

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["JobAttributesMixin"]


class JobAttributesMixin:
    """A job whose state, times and files are attributes."""

    if TYPE_CHECKING:

        @property
        def data(self) -> api.Job: ...  # noqa: D102

    @property
    def state(self) -> str:
        """Return the state, in Slurm's words: PENDING, RUNNING, COMPLETED …"""
        return str(self.data["state"])

    @property
    def is_finished(self) -> bool:
        """Return whether the job is finished."""
        return is_finished(self.data)

    @property
    def reason(self) -> str | None:
        """Return Slurm's reason why the job waits or failed."""
        return self.data.get("reason")

    @property
    def reason_text(self) -> str | None:
        """Return the reason in words."""
        return self.data.get("reason_text")

    @property
    def next_step(self) -> str | None:
        """Return the suggested next step."""
        return self.data.get("next_step")

    @property
    def name(self) -> str | None:
        """Return the job's name."""
        return self.data.get("name")

    @property
    def partition(self) -> str | None:
        """Return the partition."""
        return self.data.get("partition")

    @property
    def nodes(self) -> str | None:
        """Return the node list, in Slurm's short form; see :attr:`node_names`."""
        return self.data.get("nodes")

    @property
    def node_names(self) -> list[str]:
        """Return the names of the nodes, one by one; an empty list before the start.

        Raises
        ------
        ParseError
            Slurm's list is not one of nodes, or has more than 65,536.
        """
        return expand_hosts(self.nodes or "")

    @property
    def exit_code(self) -> int | None:
        """Return the exit code; None if a signal or Slurm ended the job: cancelled, at its time limit, …"""
        return self.data.get("exit_code")

    @property
    def signal(self) -> int | None:
        """Return the signal that ended the job."""
        return self.data.get("signal")

    @property
    def submit_time(self) -> float | None:
        """Return the time of submission."""
        return self.data.get("submit_time")

    @property
    def start_time(self) -> float | None:
        """Return the time of the start."""
        return self.data.get("start_time")

    @property
    def end_time(self) -> float | None:
        """Return the time of the end."""
        return self.data.get("end_time")

    @property
    def stdout_path(self) -> str | None:
        """Return the path of the standard output."""
        return self.data.get("stdout")

    @property
    def stderr_path(self) -> str | None:
        """Return the path of the standard error, equal to that of the standard output unless they were separated."""
        return self.data.get("stderr")
