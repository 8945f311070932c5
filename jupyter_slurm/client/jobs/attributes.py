"""Attributes of a job that are read from what the agent knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_slurm.client.render.job_card import is_finished

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
        """The state, in Slurm's words: PENDING, RUNNING, COMPLETED …"""
        return str(self.data["state"])

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will happen."""
        return is_finished(self.data)

    @property
    def reason(self) -> str | None:
        """Why it waits or failed, as Slurm says it."""
        return self.data.get("reason")

    @property
    def reason_text(self) -> str | None:
        """The reason in words."""
        return self.data.get("reason_text")

    @property
    def next_step(self) -> str | None:
        """What can be done about it."""
        return self.data.get("next_step")

    @property
    def name(self) -> str | None:
        """The job's name."""
        return self.data.get("name")

    @property
    def partition(self) -> str | None:
        """The partition."""
        return self.data.get("partition")

    @property
    def nodes(self) -> str | None:
        """The node list, in Slurm's short form."""
        return self.data.get("nodes")

    @property
    def exit_code(self) -> int | None:
        """The exit code; None where a signal ended it, or Slurm did: cancelled, at its time limit, …"""
        return self.data.get("exit_code")

    @property
    def signal(self) -> int | None:
        """The signal that ended it."""
        return self.data.get("signal")

    @property
    def submit_time(self) -> float | None:
        """When it was submitted."""
        return self.data.get("submit_time")

    @property
    def start_time(self) -> float | None:
        """When it started."""
        return self.data.get("start_time")

    @property
    def end_time(self) -> float | None:
        """When it ended."""
        return self.data.get("end_time")

    @property
    def stdout_path(self) -> str | None:
        """The file of its standard output."""
        return self.data.get("stdout")

    @property
    def stderr_path(self) -> str | None:
        """The file of its standard error; the same one unless they were separated."""
        return self.data.get("stderr")
