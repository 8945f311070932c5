"""Examinations of the clusters of profiles: one at a time for each, with the findings of the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jupyter_slurm.errors import AgentBusy, UsageError
from jupyter_slurm.services.clusters.remote_cluster import Site

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.diagnostics.login_examination import Examination

__all__ = ["Examinations"]


class Examinations:
    """Examinations of all clusters.

    Parameters
    ----------
    site : callable
        Returns the site of a profile.
    """

    def __init__(self, site: Callable[[str], Site]) -> None:
        self._site = site
        self._last: dict[str, Examination] = {}
        self._running: set[str] = set()

    async def examine(self, cluster: str, *, job: str = "none", options: Sequence[str] = ()) -> api.Examination:
        """Examine the cluster of a profile and its route; see :class:`Examination`.

        Raises
        ------
        AgentBusy
            Another examination of the cluster is in progress.
        """
        from jupyter_slurm.services.diagnostics.login_examination import Examination  # imports paramiko, which is slow

        site = self._site(cluster)
        if cluster in self._running:
            raise AgentBusy(
                f"A check of {cluster} is already running.", hint="Wait until it has ended.", retry_after=10
            )
        self._last[cluster] = examination = Examination(site)
        self._running.add(cluster)
        try:
            await (
                examination.check_by_job(options) if job == "now" else examination.run_checks(has_job=job == "later")
            )
        finally:
            self._running.discard(cluster)
        return examination.to_api()

    def to_api(self, cluster: str) -> api.Examination:
        """Return the findings of the last examination so far."""
        if cluster not in self._last:
            raise UsageError(
                f"There is no running check of {cluster}.", hint=f"Start one with `jupyter slurm doctor {cluster}`."
            )
        return self._last[cluster].to_api()

    async def admit(self, cluster: str, host: str) -> api.AdmitKeyResponse:
        """Install the user's key on a host; see :func:`jupyter_slurm.services.diagnostics.login_examination.admit`."""
        from jupyter_slurm.services.diagnostics.login_examination import admit

        return await admit(self._site(cluster), host)
