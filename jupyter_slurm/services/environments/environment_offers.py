"""Offer of the environments on a cluster: shown once, with the first Python cell that names none."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jupyter_slurm.documentation import page_url
from jupyter_slurm.domain.cluster_facts import NamedEntity
from jupyter_slurm.services.environments.environment_search import EnvironmentSearch
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.slurm.client import printable
from jupyter_slurm.services.slurm.location import ClusterLocation

__all__ = ["EnvironmentOffers", "offer_text"]

log = logging.getLogger(__name__)

_FOLDER = "environment-offers"  # in the state directory: an empty file for each cluster whose offer was shown
_SEARCH_WAIT_S = 60.0  # seconds; the search itself ends earlier
_MAX_OFFERED = 6


class EnvironmentOffers:
    """Offers of one cluster's environments. A search runs in the background, and no submission waits for it.

    Parameters
    ----------
    location : ClusterLocation
        Location of the cluster.
    search : EnvironmentSearch
        Search for the environments of the cluster.
    state_dir : str
        Folder in which the user's agents remember that the offer was shown.
    publish : callable
        Publishes a change of a job.
    """

    def __init__(
        self,
        location: ClusterLocation,
        search: EnvironmentSearch,
        state_dir: str,
        publish: Callable[[TrackedJob], None],
    ) -> None:
        self._location, self._environments, self._publish = location, search, publish
        self._shown = Path(state_dir) / _FOLDER / location.id
        self._task: asyncio.Task[None] | None = None
        self._text = ""

    def consider(self, requested: Mapping[str, object], entry: TrackedJob | None) -> None:
        """Begin a search for a Python cell without an environment, if the offer was never shown."""
        is_chosen = bool(requested.get("env") or requested.get("python") or self._location.environments)
        if entry is None or requested["kind"] != "python" or is_chosen or not self._location.is_remote:
            return
        if self._text and not self._shown.exists():
            self._show(entry)
        elif self._task is None and not self._shown.exists():
            self._task = asyncio.create_task(self._search(entry), name="environments")

    async def stop(self) -> None:
        """End a search."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _search(self, entry: TrackedJob) -> None:
        found = await self._environments.find(_SEARCH_WAIT_S)
        if not found:
            self._task = None  # the next cell tries again
            return
        self._text = offer_text(found, self._location)
        if not entry.is_finished:  # the next cell shows it, for the output of this one may be complete
            self._show(entry)

    def _show(self, entry: TrackedJob) -> None:
        entry.submission.environment_offer = self._text
        try:
            self._shown.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._shown.touch(mode=0o600)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._shown, error)
        self._publish(entry)


def offer_text(environments: Sequence[NamedEntity], location: ClusterLocation) -> str:
    """Return the notice for the environments that a search has found.

    Parameters
    ----------
    environments : sequence of NamedEntity
        Values of ``env=``, with their kinds.
    location : ClusterLocation
        Location of the cluster.
    """
    offered = [f"{_word(name)} ({kind})" for name, kind in environments[:_MAX_OFFERED]]
    more = f", and {len(environments) - _MAX_OFFERED} more" if len(environments) > _MAX_OFFERED else ""
    return printable(
        f"Environments on {location.id}: {', '.join(offered)}{more}. This cell runs with the default Python. To choose "
        f"an environment, add its env=… to the %%sbatch line: {page_url('how-to/choose-an-environment')}"
    )


def _word(name: str) -> str:
    """Return the word of a magic line that chooses an environment."""
    word = f"env={name}"
    return word if shlex.quote(name.replace("~", "")) == name.replace("~", "") else f'"{word}"'
