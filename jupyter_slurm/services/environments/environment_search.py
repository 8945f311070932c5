"""Search for the environments on a cluster: conda, virtual environments in the usual places, and modules."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from jupyter_slurm.domain.cluster_facts import NamedEntity
from jupyter_slurm.domain.scripts.environments import MODULE_PREFIX, module_command
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.slurm.client import decode_output
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.transport.base import Transport

__all__ = ["MADE", "EnvironmentSearch"]

log = logging.getLogger(__name__)

MADE = "made"
"""Kind of the environments that ``env create`` has made."""

_TIMEOUT_S = 30.0  # seconds; `module avail` reads many files on some sites
_CACHE_AGE_S = 600.0  # seconds
_RETRY_INTERVAL_S = 30.0  # seconds after a search that failed
_KINDS = ("conda", "venv", "module", MADE)

# Prints lines "KIND<TAB>NAME". Environments that jobs have made in the folder $1, named conda environments, virtual
# environments in usual places, modules with a Python.
_SEARCH = rf"""
for link in "$1"/*; do
    if [ -L "$link" ]; then printf '{MADE}\t%s\n' "${{link##*/}}"; fi
done
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


class EnvironmentSearch:
    """Search of one cluster, in the background, at most once in ten minutes.

    Parameters
    ----------
    location : ClusterLocation
        Location of the cluster: paths in the home directory are written with ``~``.
    transport : Transport
        Transport to the cluster.
    """

    def __init__(self, location: ClusterLocation, transport: Transport) -> None:
        self._location, self._transport = location, transport
        self._task: asyncio.Task[None] | None = None
        self._found: list[NamedEntity] = []
        self._next_at = 0.0  # time.monotonic()

    async def find(self, wait: float) -> list[NamedEntity]:
        """Return the values of ``env=`` that choose the environments, each with its kind.

        Parameters
        ----------
        wait : float
            Seconds to wait at most for the first search; later ones run in the background.
        """
        if self._task is None and time.monotonic() >= self._next_at:
            self._task = asyncio.create_task(self._search(), name="environments")
        if self._task is not None and not self._found and wait > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await asyncio.shield(self._task)
        return self._found

    async def stop(self) -> None:
        """End a search."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _search(self) -> None:
        from jupyter_slurm.services.environments.created_environments import environment_folder

        self._next_at = time.monotonic() + _RETRY_INTERVAL_S
        folder = environment_folder(self._location)
        try:
            found = await self._transport.run(["/bin/sh", "-c", _SEARCH, "sh", folder], timeout=_TIMEOUT_S)
        except SlurmError as error:
            log.info("the environments of %s are not known: %s", self._location.id, error)
        else:
            self._found = _parse(decode_output(found.stdout), self._location.home)
            self._next_at = time.monotonic() + _CACHE_AGE_S
        finally:
            self._task = None


def _parse(listed: str, home: str) -> list[NamedEntity]:
    """Return the environments in lines ``KIND<TAB>NAME``."""
    found: dict[str, str] = {}
    for line in listed.splitlines():
        kind, tab, name = line.partition("\t")
        if tab and name and kind in _KINDS and name.isprintable():
            found.setdefault(_value(kind, name, home.rstrip("/")), kind)
    return [NamedEntity(*item) for item in found.items()]


def _value(kind: str, name: str, home: str) -> str:
    """Return the value of ``env=`` that chooses an environment."""
    if kind == "module":
        return MODULE_PREFIX + name
    return "~" + name[len(home) :] if name.startswith(home + "/") else name
