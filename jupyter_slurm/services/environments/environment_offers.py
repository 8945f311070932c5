"""Offer of the environments on a cluster: shown once, with the first Python cell that names none."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from jupyter_slurm.documentation import page_url
from jupyter_slurm.domain.scripts.environments import MODULE_PREFIX, module_command
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.slurm.client import decode_output, printable
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.transport.base import Transport

__all__ = ["EnvironmentOffers", "offer_text"]

log = logging.getLogger(__name__)

_FOLDER = "environment-offers"  # in the state directory: an empty file for each cluster whose offer was shown
_SEARCH_TIMEOUT_S = 30.0  # seconds; `module avail` reads many files on some sites
_MAX_OFFERED = 6
_KINDS = {"conda": "conda", "venv": "venv", "module": "module"}

# Prints lines "KIND<TAB>NAME". Named conda environments, virtual environments in usual places, modules with a Python.
_SEARCH = rf"""
for root in "${{CONDA_EXE:+${{CONDA_EXE%/bin/conda}}}}" "$MAMBA_ROOT_PREFIX" "$HOME/.conda" "$HOME/miniconda3" \
    "$HOME/anaconda3" "$HOME/miniforge3" "$HOME/mambaforge" "$HOME/micromamba" /opt/conda
do
    [ -n "$root" ] || continue
    for prefix in "$root"/envs/*; do
        if [ -d "$prefix/conda-meta" ]; then printf 'conda\t%s\n' "$prefix"; fi
    done
done
for file in "$HOME"/*/pyvenv.cfg "$HOME"/.venv/pyvenv.cfg "$HOME"/*/.venv/pyvenv.cfg "$HOME"/*/venv/pyvenv.cfg \
    "$HOME"/venvs/*/pyvenv.cfg "$HOME"/envs/*/pyvenv.cfg "$HOME"/.venvs/*/pyvenv.cfg "$HOME"/.virtualenvs/*/pyvenv.cfg
do
    if [ -f "$file" ]; then printf 'venv\t%s\n' "${{file%/pyvenv.cfg}}"; fi
done
{module_command("sh")}
if command -v module >/dev/null 2>&1; then
    module -t avail 2>&1 | sed -n -e 's/([^)]*)//g' -e 's/<[^>]*>//g' -e '/[:/]$/d' \
        -e '/[Pp]ython\|[Cc]onda\|[Pp]y[Tt]orch\|[Tt]ensor[Ff]low/s/^\([^ ]*\).*/module\t\1/p'
fi
exit 0
"""


class EnvironmentOffers:
    """Offers of one cluster's environments. A search runs in the background, and no submission waits for it.

    Parameters
    ----------
    location : ClusterLocation
        Location of the cluster.
    transport : Transport
        Transport to the cluster.
    state_dir : str
        Folder in which the user's agents remember that the offer was shown.
    publish : callable
        Publishes a change of a job.
    """

    def __init__(
        self, location: ClusterLocation, transport: Transport, state_dir: str, publish: Callable[[TrackedJob], None]
    ) -> None:
        self._location, self._transport, self._publish = location, transport, publish
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
        try:
            found = await self._transport.run(["/bin/sh", "-c", _SEARCH], timeout=_SEARCH_TIMEOUT_S)
        except SlurmError as error:
            log.info("the environments of %s are not known: %s", self._location.id, error)
            self._task = None  # the next cell tries again
            return
        self._text = offer_text(decode_output(found.stdout), self._location)
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


def offer_text(listed: str, location: ClusterLocation) -> str:
    """Return the notice for what a search has listed; empty without an environment.

    Parameters
    ----------
    listed : str
        Lines ``KIND<TAB>NAME``.
    location : ClusterLocation
        Location of the cluster: paths in the home directory are written with ``~``.
    """
    words: dict[str, str] = {}
    for line in listed.splitlines():
        kind, tab, name = line.partition("\t")
        if tab and name and kind in _KINDS and name.isprintable():
            words.setdefault(_word(kind, name, location.home), _KINDS[kind])
    if not words:
        return ""
    offered = [f"{word} ({kind})" for word, kind in list(words.items())[:_MAX_OFFERED]]
    more = f", and {len(words) - _MAX_OFFERED} more" if len(words) > _MAX_OFFERED else ""
    return printable(
        f"Environments on {location.id}: {', '.join(offered)}{more}. This cell runs with the default Python. To choose "
        f"an environment, add its env=… to the %%sbatch line: {page_url('how-to/choose-an-environment')}"
    )


def _word(kind: str, name: str, home: str) -> str:
    """Return the word of a magic line that chooses an environment."""
    if kind == "module":
        name = MODULE_PREFIX + name
    elif name.startswith(home.rstrip("/") + "/"):
        name = "~" + name[len(home.rstrip("/")) :]
    word = f"env={name}"
    return word if shlex.quote(name.replace("~", "")) == name.replace("~", "") else f'"{word}"'
