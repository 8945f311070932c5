"""Place of the environments that jobs have made, and their look-up by name (``runner/environment/store.py``)."""

from __future__ import annotations

import posixpath
import re
from typing import Final, NamedTuple

from jupyter_slurm.services.slurm.client import decode_output
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.transport.base import Transport

__all__ = ["CreatedEnvironments", "environment_folder", "find_created"]

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_MAX_NAMES: Final = 1000

# Prints "KIND<TAB>PATH<TAB>CUDA DRIVER" of the environment $2: its real path, which later builds do not change, and
# what its packages are built for; else the names.
_FIND: Final = r"""cd "$1" 2>/dev/null || exit 0
if [ -n "$2" ] && [ -L "$2" ]; then
    for kind in venv/pyvenv.cfg conda/conda-meta; do
        if [ -e "$2/${kind#*/}" ]; then
            cuda=$(sed -n 's/.*"cuda": \([0-9]*\), "min_driver": \([0-9]*\)[,}].*/\1 \2/p' "$2/jupyter_slurm.json")
            printf '%s\t%s\t%s\n' "${kind%%/*}" "$(cd -P "$2" && pwd)" "$cuda"
            exit 0
        fi
    done
fi
for one in *; do if [ -L "$one" ]; then printf 'name\t%s\n' "$one"; fi; done"""


class CreatedEnvironments(NamedTuple):
    """Answer of a look-up.

    Attributes
    ----------
    kind : str
        ``venv`` or ``conda``; empty if there is no environment of the name.
    path : str
        Absolute path of the environment.
    cuda, min_driver : int
        Major versions of the CUDA that the packages are built for, and of its first driver; 0 if they need none.
    names : list of str
        Names of the environments, if there is none of the name.
    """

    kind: str
    path: str
    names: list[str]
    cuda: int = 0
    min_driver: int = 0


def environment_folder(location: ClusterLocation) -> str:
    """Return the folder of the environments of a cluster, beside its job directories: the nodes see both."""
    return posixpath.join(location.folder, "environments")


async def find_created(transport: Transport, location: ClusterLocation, name: str) -> CreatedEnvironments:
    """Return the environment of a name, or the names of all."""
    wanted = name if _NAME.fullmatch(name) else ""
    done = await transport.run(["/bin/sh", "-c", _FIND, "sh", environment_folder(location), wanted])
    names = []
    for line in decode_output(done.stdout).splitlines()[:_MAX_NAMES]:
        kind, _, value = line.partition("\t")
        if kind in ("venv", "conda") and value.startswith("/"):
            path, _, numbers = value.rpartition("\t")
            needs = [int(number) for number in numbers.split()] if re.fullmatch(r"\d{1,4} \d{1,4}", numbers) else [0, 0]
            return CreatedEnvironments(kind, path, [], *needs)
        if _NAME.fullmatch(value):
            names.append(value)
    return CreatedEnvironments("", "", names)
