"""Names of environments and folders for a form: used before, named in the profile, or found on the cluster."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Iterable

from jupyter_slurm.domain.cluster_facts import NamedEntity
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.environments.environment_search import MADE, EnvironmentSearch
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.slurm.client import decode_output
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.transport.base import Transport

__all__ = ["PlaceNames"]

log = logging.getLogger(__name__)

_USED = "last used"
_MAX_USED = 5
_MAX_MADE = 50
_MAX_FOLDERS = 200
_TIMEOUT_S = 5.0  # seconds; a file system may hang

# Prints the folders whose path begins with $1, each with a slash at its end and a zero byte.
_LIST = f"""n=0
for folder in "$1"*/; do
    case $folder in */./ | */../) continue ;; esac
    [ -d "$folder" ] || continue
    printf '%s\\0' "$folder"
    n=$((n+1)); [ $n -lt {_MAX_FOLDERS} ] || break
done
exit 0"""


class PlaceNames:
    """Names of the environments and folders of one cluster.

    Parameters
    ----------
    location : ClusterLocation
        Has the environments of the profile, and the home directory.
    transport : Transport
        Transport to the cluster.
    search : EnvironmentSearch
        Search for the environments of the cluster.
    entries : callable
        Returns the known jobs.
    """

    def __init__(
        self,
        location: ClusterLocation,
        transport: Transport,
        search: EnvironmentSearch,
        entries: Callable[[], Iterable[TrackedJob]],
    ) -> None:
        self._location, self._transport, self._search, self._entries = location, transport, search, entries

    async def environments(self, wait: float) -> list[NamedEntity]:
        """Return values of ``env=``: of the profile, the last used ones, those made by jobs, and those of a search.

        Parameters
        ----------
        wait : float
            Seconds to wait at most for the search.
        """
        described = self._location.environments.items()
        named = [NamedEntity(name, ", ".join(sorted(table))) for name, table in described]
        used = [NamedEntity(name, _USED) for name in self._used(_environment_of)]
        found = await self._search.find(wait)
        made = [NamedEntity(name, MADE) for name in self._used(_made_by, _MAX_MADE)]
        kinds = dict([*found, *made])
        used = [NamedEntity(name, ", ".join(filter(None, [kinds.get(name), about]))) for name, about in used]
        return _unique([*named, *used, *made, *found])

    async def folders(self, start: str) -> list[NamedEntity]:
        """Return the folders whose path begins with a text, each with a slash at its end.

        Parameters
        ----------
        start : str
            Beginning of a path, absolute or with ``~``. Empty: the last used folders, and those of the home directory.
        """
        if start == "":
            used = [NamedEntity(name, _USED) for name in self._used(self._folder_of)]
            return _unique([*used, *await self._list("~/")])
        return await self._list(f"{start}/" if start == "~" else start)

    async def stop(self) -> None:
        """End a search."""
        await self._search.stop()

    async def _list(self, start: str) -> list[NamedEntity]:
        home = self._location.home.rstrip("/")
        is_below_home = start.startswith("~/")
        path = home + start[1:] if is_below_home else start
        if not path.startswith("/") or "\0" in path:
            return []
        try:
            done = await self._transport.run(["/bin/sh", "-c", _LIST, "sh", path], timeout=_TIMEOUT_S)
        except SlurmError as error:
            log.info("the folders of %s are not known: %s", self._location.id, error)
            return []
        found = [one for one in decode_output(done.stdout).split("\0") if one and one.isprintable()]
        return [NamedEntity("~" + one[len(home) :] if is_below_home else one, "") for one in found]

    def _used(self, name_of: Callable[[TrackedJob], str], limit: int = _MAX_USED) -> list[str]:
        """Return the last used names, the latest first."""
        newest = sorted(self._entries(), key=lambda entry: entry.submit_time or 0.0, reverse=True)
        names = dict.fromkeys(name for entry in newest if (name := name_of(entry)))
        return list(names)[:limit]

    def _folder_of(self, entry: TrackedJob) -> str:
        """Return the folder of a session, as a user would type it."""
        session = entry.record.session if entry.record else None
        folder, home = (session.dir if session else None) or "", self._location.home.rstrip("/")
        if folder.startswith(home + "/"):
            folder = "~" + folder[len(home) :]
        return posixpath.join(folder, "") if folder.startswith(("/", "~")) else ""


def _environment_of(entry: TrackedJob) -> str:
    """Return the environment of a job, unless its name depends on the folder of the job."""
    environment = entry.record.environment if entry.record else None
    name = environment.name if environment else ""
    is_relative = "/" in name and not name.startswith(("/", "~", "docker://"))
    return "" if is_relative else name


def _made_by(entry: TrackedJob) -> str:
    """Return the environment that a job has made; empty if it has made none."""
    build = entry.record.environment_build if entry.record else None
    return build.name if build and entry.is_finished and entry.exit_code == 0 else ""


def _unique(names: Iterable[NamedEntity]) -> list[NamedEntity]:
    """Return the first entity of each name."""
    found: dict[str, NamedEntity] = {}
    for one in names:
        found.setdefault(one.name, one)
    return list(found.values())
